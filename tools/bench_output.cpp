// The formats of bench's output: see bench_output.h.
#include "tools/bench_output.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <vector>

#include "tools/bench_compare.h"
#include "tools/terminal.h"

namespace lamina {
namespace {

std::string size_text(double bytes) {
  constexpr double kMib = 1024.0 * 1024.0;
  return bytes >= 1024 * kMib ? fmt::format("{:.2f} GiB", bytes / (1024 * kMib))
                              : fmt::format("{:.2f} MiB", bytes / kMib);
}

std::string params_text(double n) {
  return n >= 1e9 ? fmt::format("{:.2f} B", n / 1e9) : fmt::format("{:.2f} M", n / 1e6);
}

std::string optional_text(const std::optional<double>& value) {
  return value ? fmt::format("{:.1f}", *value) : std::string();
}

/// One column of the table in one row.
struct Cell {
  const char* title;
  size_t width;
  bool left;
  std::string text;
};

std::vector<Cell> cells_of(const BenchRow& row, const BenchOutput::Options& options) {
  const BenchModel& model = row.model;
  std::vector<Cell> cells{{"model", 30, true, model.label},
                          {"size", 10, false, size_text(static_cast<double>(model.size))},
                          {"params", 10, false, params_text(static_cast<double>(model.n_params))},
                          {"backend", 10, true, model.backend},
                          {"threads", 7, false, std::to_string(model.n_threads)}};
  if (options.n_batch) cells.push_back({"n_batch", 7, false, std::to_string(model.n_batch)});
  cells.push_back({"test", 15, false, row.result.test.name()});
  cells.push_back({"t/s", 20, false, fmt::format("{:.2f} ± {:.2f}", row.rate.average, row.rate.deviation)});
  cells.push_back({"median", 8, false, fmt::format("{:.2f}", row.rate.median)});
  cells.push_back({"min", 8, false, fmt::format("{:.2f}", row.rate.least)});
  cells.push_back({"max", 8, false, fmt::format("{:.2f}", row.rate.most)});
  cells.push_back({"first token ms", 14, false, optional_text(row.first_token_ms())});
  cells.push_back({"GB/s", 7, false, optional_text(row.gb_s)});
  cells.push_back({"% bw", 6, false, optional_text(row.bandwidth_percent)});
  if (options.compares) {
    const Comparison& c = row.comparison.value();
    cells.push_back(
        {"against old", 16, false, c.verdict == "new" ? c.verdict : fmt::format("{:+.1f} % {}", c.percent, c.verdict)});
  }
  return cells;
}

/// A value as csv has it: in double quotes, inner ones doubled; nothing for null.
std::string csv_text(const nlohmann::ordered_json& value) {
  std::string text = value.is_string()         ? value.get<std::string>()
                     : value.is_number_float() ? fmt::format("{:.6f}", value.get<double>())
                     : value.is_null()         ? std::string()
                                               : value.dump();
  for (size_t i = text.find('"'); i != std::string::npos; i = text.find('"', i + 2)) text.insert(i, 1, '"');
  return fmt::format("\"{}\"", text);
}

}  // namespace

void BenchOutput::begin() {
  if (options_.format == "json") write_stdout("[");
}

void BenchOutput::add(const BenchRow& row) {
  if (options_.format == "md") {
    add_to_table(row);
  } else if (options_.format == "csv") {
    add_csv(to_json(row));
  } else {
    const std::string object = to_json(row).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    write_stdout(options_.format == "jsonl" ? object + "\n" : (first_ ? "\n  " : ",\n  ") + object);
  }
  first_ = false;
}

void BenchOutput::end() {
  if (options_.format == "json") write_stdout("\n]\n");
  if (options_.format != "md" || first_) return;
  if (options_.compares) write_stdout(fmt::format("\n{}\n", kNoiseRule));
  write_stdout("\nbuild: lamina " LAMINA_VERSION "\n");
}

void BenchOutput::add_csv(const nlohmann::ordered_json& fields) {
  std::vector<std::string> titles, values;
  for (const auto& [name, value] : fields.items()) {
    if (value.is_array()) continue;  // llama-bench has the samples in json only
    titles.push_back(name);
    values.push_back(csv_text(value));
  }
  if (first_) write_stdout(fmt::format("{}\n", fmt::join(titles, ",")));
  write_stdout(fmt::format("{}\n", fmt::join(values, ",")));
}

void BenchOutput::add_to_table(const BenchRow& row) {
  std::string titles = "|", rule = "|", values = "|";
  for (const Cell& cell : cells_of(row, options_)) {
    titles +=
        cell.left ? fmt::format(" {:<{}} |", cell.title, cell.width) : fmt::format(" {:>{}} |", cell.title, cell.width);
    rule += fmt::format(" {:-<{}}{} |", "", cell.width - (cell.left ? 0 : 1), cell.left ? "" : ":");
    values +=
        cell.left ? fmt::format(" {:<{}} |", cell.text, cell.width) : fmt::format(" {:>{}} |", cell.text, cell.width);
  }
  write_stdout((first_ ? titles + "\n" + rule + "\n" : "") + values + "\n");
}

}  // namespace lamina

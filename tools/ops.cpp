// `lamina ops`: each op alone, on the shapes of a model or of a llama of a billion weights. Out: a table (md) or an
// array of objects (json) with time, bytes and operations a second and the share of the roof that binds, and a picture
// with --plot; or with --fusion norms inside linear ops against norms as ops of their own; or with --ladder what
// op_ladder.h says.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "engine/kv_pages.h"
#include "gguf/error.h"
#include "gguf/whole_file.h"
#include "model/builder.h"
#include "model/config.h"
#include "tools/model_options.h"
#include "tools/op_ladder.h"
#include "tools/roofline.h"
#include "tools/signal_flag.h"
#include "tools/terminal.h"
#include "tools/verbs.h"

namespace lamina {
namespace {

using Json = nlohmann::ordered_json;

struct OpsOptions {
  ModelOptions model;
  std::string types, format = "md", plot;
  uint32_t n_prompt = 128, n_depth = 512;
  bool fusion = false, ladder = false;
};

/// A program to take ops from, with what it refers to.
struct Source {
  std::optional<gguf::File> file;
  SyntheticWeights weights;
  Program program;
};

/// "Q4_0,Q4_K", "all" for every type that a weight can have, or "" for two of them.
std::vector<const gguf::Type*> parse_types(const std::string& names) {
  if (names.empty()) return {gguf::find_type("Q4_K"), gguf::find_type("Q8_0")};
  std::vector<const gguf::Type*> types;
  if (names == "all") {
    for (const gguf::Type& type : gguf::types())
      if (type.kind != gguf::TypeKind::kData) types.push_back(&type);
    return types;
  }
  std::istringstream list(names);
  for (std::string name; std::getline(list, name, ',');) {
    const gguf::Type* type = gguf::find_type(name);
    if (type == nullptr || type->kind == gguf::TypeKind::kData) {
      fail(ErrorKind::kUsage, "--types: '{}' is no type of weights", printable(name));
    }
    types.push_back(type);
  }
  if (types.empty()) fail(ErrorKind::kUsage, "--types names no type");
  return types;
}

std::vector<std::unique_ptr<Source>> sources_of(const OpsOptions& options) {
  std::vector<std::unique_ptr<Source>> sources;
  if (options.model.model.empty()) {
    for (const gguf::Type* type : parse_types(options.types)) {
      Source& source = *sources.emplace_back(std::make_unique<Source>());
      source.program = llama_1b_layer(*type, source.weights);
    }
    return sources;
  }
  Source& source = *sources.emplace_back(std::make_unique<Source>());
  source.file = gguf::File::open(find_model(options.model.model));
  source.program =
      build_program(*source.file, read_config(*source.file), {.n_ctx = options.n_depth + options.n_prompt});
  return sources;
}

/// One row, and the rows of a prompt.
std::vector<OpRows> rows_of(const OpsOptions& options) {
  std::vector<OpRows> rows = {{1, options.n_depth}};
  if (options.n_prompt > 1) rows.push_back({options.n_prompt, options.n_depth});
  return rows;
}

/// Writes rows as they come.
class Report {
 public:
  Report(bool json, const Peaks& peaks) : json_(json), peaks_(peaks) {
    write_stdout(
        json_ ? "["
              : fmt::format("| {:<40} | {:>22} | {:<12} | {:>5} | {:>10} | {:>7} | {:>9} | {:>7} | {:<7} | {:>6} |\n"
                            "| {:-<40} | {:->21}: | {:-<12} | {:->4}: | {:->9}: | {:->6}: | {:->8}: | {:->6}: | {:-<7} "
                            "| {:->5}: |\n",
                            "op", "shape", "types", "rows", "us", "GB/s", "GFLOP/s", "FLOP/B", "roof", "% of it",  //
                            "", "", "", "", "", "", "", "", "", ""));
  }

  void add(const OpRow& row) {
    const OpSpeed& s = row.speed;
    const bool has_roofs = peaks_.read_bytes_per_second > 0;
    const Roof roof = has_roofs ? roof_of(s, peaks_) : Roof{};
    const double gb_s = s.bytes / s.seconds * 1e-9, gflop_s = s.operations / s.seconds * 1e-9;
    if (json_) {
      const Json object = {{"op", row.label.name},
                           {"shape", row.label.shape},
                           {"types", row.label.types},
                           {"rows", row.rows.n_rows},
                           {"depth", row.rows.depth},
                           {"ns", s.seconds * 1e9},
                           {"bytes", s.bytes},
                           {"flop", s.operations},
                           {"gb_s", gb_s},
                           {"gflop_s", gflop_s},
                           {"flop_per_byte", s.operations / s.bytes},
                           {"roof", has_roofs ? Json(roof.name) : Json()},
                           {"roof_percent", has_roofs ? Json(100 * roof.share_of_roof) : Json()}};
      write_stdout((first_ ? "\n  " : ",\n  ") + object.dump(-1, ' ', false, Json::error_handler_t::replace));
      first_ = false;
      return;
    }
    write_stdout(fmt::format(
        "| {:<40} | {:>22} | {:<12} | {:>5} | {:>10.1f} | {:>7.2f} | {:>9.2f} | {:>7.2f} | {:<7} | {:>6} |\n",
        row.label.name, row.label.shape, row.label.types, row.rows.n_rows, s.seconds * 1e6, gb_s, gflop_s,
        s.operations / s.bytes, roof.name, has_roofs ? fmt::format("{:.1f}", 100 * roof.share_of_roof) : ""));
  }

  void end() {
    if (json_) return write_stdout("\n]\n");
    if (peaks_.read_bytes_per_second == 0) return;
    write_stdout(
        fmt::format("\npeaks: {:.1f} GB/s read from memory, {:.0f} GFLOP/s int8, {:.0f} GFLOP/s float32; what comes "
                    "from caches may exceed 100 %\n",
                    peaks_.read_bytes_per_second * 1e-9, peaks_.int8_flops * 1e-9, peaks_.float32_flops * 1e-9));
  }

 private:
  bool json_;
  Peaks peaks_;
  bool first_ = true;
};

void measure_ops(const OpsOptions& options, Device& device) {
  const Peaks peaks = device.measure_peaks();
  if (!options.plot.empty() && peaks.read_bytes_per_second == 0) {
    fail(ErrorKind::kUsage, "--plot: device {} has no measured peaks", device.name());
  }
  const std::vector<std::unique_ptr<Source>> sources = sources_of(options);
  const SignalFlag signals;
  std::vector<OpRow> rows;
  std::set<std::string> seen;  // ops without weights are the same for each type
  Report report(options.format == "json", peaks);
  for (const auto& source : sources) {
    for (const size_t i : distinct_ops(source->program)) {
      const OpLabel label = label_of(source->program, source->program.ops[i]);
      if (sources.size() > 1 && !seen.insert(label.name + label.shape + label.types).second) continue;
      if (signals.flag()->load()) break;
      OpTimer timer(device, source->program, {i}, {options.n_prompt, options.n_depth});
      for (const OpRows& which : rows_of(options)) {
        rows.push_back({label, which, timer.measure(which)});
        report.add(rows.back());
      }
    }
  }
  report.end();
  if (!options.plot.empty()) {
    const std::string svg =
        roofline_svg(rows, peaks, fmt::format("lamina ops on {} (red: one row, blue: many)", device.name()));
    WholeFile file(options.plot);
    file.write(std::as_bytes(std::span(svg)));
    file.finish();
  }
  signals.check();
}

/// Norms inside linear ops against norms as ops of their own: each alone on shapes of the program, and with a model
/// whole steps.
void measure_fusion(const OpsOptions& options, Device& device) {
  const SignalFlag signals;
  const auto row = [](const std::string& what, uint32_t n_rows, double fused, double separate) {
    write_stdout(fmt::format("| {:<60} | {:>5} | {:>12.1f} | {:>12.1f} | {:>8.2f} |\n", what, n_rows, fused * 1e6,
                             separate * 1e6, separate / fused));
  };
  write_stdout(fmt::format(
      "| {:<60} | {:>5} | {:>12} | {:>12} | {:>8} |\n| {:-<60} | {:->4}: | {:->11}: | {:->11}: | {:->7}: |\n", "op",
      "rows", "us fused", "us separate", "ratio", "", "", "", "", ""));
  for (const auto& source : sources_of(options)) {
    const Program& fused = source->program;
    for (const size_t i : distinct_ops(fused)) {
      const auto* linear = std::get_if<LinearOp>(&fused.ops[i]);
      if (linear == nullptr || !linear->norm || signals.flag()->load()) continue;
      Program one = fused;
      one.ops = {fused.ops[i]};
      const Program two = with_separate_norms(one);
      const OpRows most{options.n_prompt, options.n_depth};
      OpTimer fused_timer(device, one, {0}, most), separate_timer(device, two, {0, 1}, most);
      const OpLabel label = label_of(fused, fused.ops[i]);
      for (const OpRows& which : rows_of(options))
        row(fmt::format("{} {} {}", label.name, label.shape, label.types), which.n_rows,
            fused_timer.measure(which).seconds, separate_timer.measure(which).seconds);
    }
    if (!source->file) continue;
    const Capacity capacity{
        .max_rows = options.n_prompt, .max_outputs = 1, .n_pages = pages_for(options.n_depth + options.n_prompt)};
    const auto whole = device.compile(fused, *source->file, capacity, {});
    const auto apart = device.compile(with_separate_norms(fused), *source->file, capacity, {});
    for (const OpRows& which : rows_of(options)) {
      const Step step = step_of(which, fused.n_vocab);
      row("whole step of the model", which.n_rows, best_seconds(*whole, step, 2), best_seconds(*apart, step, 2));
    }
  }
  signals.check();
}

void ops(const OpsOptions& options) {
  if (options.ladder) {
    return write_ladder(
        parse_types(options.types),
        {.n_threads = options.model.n_threads, .n_prompt = options.n_prompt, .json = options.format == "json"});
  }
  const auto device = make_device(options.model);
  if (options.fusion) measure_fusion(options, *device);
  else measure_ops(options, *device);
}

}  // namespace

void add_ops(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("ops", "Measure the speed of each op alone");
  const auto options = std::make_shared<OpsOptions>();
  CLI::Option* model = verb->add_option(
      "MODEL", options->model.model, "a GGUF file, or the name of a fetched model (default: a llama of 1.1 B weights)");
  add_device_option(*verb, options->model);
  add_threads_option(*verb, options->model);
  verb->add_option("--types", options->types, "types of weights, as Q4_0,Q4_K, or all (default: Q4_K,Q8_0)")
      ->excludes(model);
  verb->add_option("-p,--n-prompt", options->n_prompt, "rows of a prompt, measured beside one row")
      ->check(CLI::Range(1, 16384))
      ->capture_default_str();
  CLI::Option* depth = verb->add_option("-d,--n-depth", options->n_depth, "positions before them")
                           ->check(CLI::Range(0, 1 << 24))
                           ->capture_default_str();
  CLI::Option* format = verb->add_option("-o,--output", options->format, "md or json")
                            ->check(CLI::IsMember({"md", "json"}))
                            ->capture_default_str();
  CLI::Option* plot = verb->add_option("--plot", options->plot, "file for a picture of the roofs and the ops (SVG)");
  verb->add_flag("--fusion", options->fusion, "instead: norms inside linear ops against norms as ops of their own")
      ->excludes(plot)
      ->excludes(format);
  verb->add_flag("--ladder", options->ladder,
                 "instead: one product of each type on every instruction set of this CPU and with few to many rows")
      ->excludes(model)
      ->excludes(plot)
      ->excludes(depth)
      ->excludes("--fusion")
      ->excludes("--device");
  verb->callback([options] { ops(*options); });
}

}  // namespace lamina

// The noise rule and the older run's file: see bench_compare.h.
#include "tools/bench_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <ranges>
#include <sstream>
#include <utility>

#include "gguf/error.h"
#include "tools/terminal.h"

namespace lamina {
namespace {

constexpr size_t kLeastRepetitions = 4;
constexpr double kLeastPercent = 2;

/// What a row must share with another to be compared with it. Not the device: comparing devices is a use.
template <class Json>
std::string key_of(const Json& fields) {
  const std::string file = std::filesystem::path(fields.at("model_filename").template get<std::string>()).filename();
  std::string key = file;
  for (const char* name : {"n_batch", "n_threads", "n_prompt", "n_gen", "n_depth"}) {
    key += fmt::format(" {}", fields.at(name).template get<uint64_t>());
  }
  return key;
}

}  // namespace

Comparison compare_rates(const std::vector<double>& before, const std::vector<double>& now) {
  const Summary old_rate = summary_of(before), new_rate = summary_of(now);
  Comparison result{.verdict = "same", .percent = 100 * (new_rate.median / old_rate.median - 1)};
  if (std::min(before.size(), now.size()) < kLeastRepetitions) {
    result.verdict = "unsure";
  } else if (result.percent >= kLeastPercent && new_rate.least > old_rate.most) {
    result.verdict = "faster";
  } else if (result.percent <= -kLeastPercent && new_rate.most < old_rate.least) {
    result.verdict = "slower";
  }
  return result;
}

OlderRun::OlderRun(const std::string& path) {
  std::istringstream lines(read_text(path, ErrorKind::kUsage));
  size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.empty()) continue;
    try {
      const auto fields = nlohmann::json::parse(line);
      Row row{key_of(fields), fields.at("samples_ts").get<std::vector<double>>()};
      if (row.rates.empty()) fail(ErrorKind::kUsage, "no samples_ts");
      rows_.push_back(std::move(row));
    } catch (const std::exception& error) {
      fail(ErrorKind::kUsage, "--compare '{}', line {}: {}", printable(path), number, printable(error.what(), 200));
    }
  }
}

Comparison OlderRun::compare(const BenchRow& row) const {
  const std::string key = key_of(to_json(row));
  for (const Row& old : rows_ | std::views::reverse) {
    if (old.key == key) return compare_rates(old.rates, row.result.tokens_per_second);
  }
  return {.verdict = "new", .percent = 0};
}

}  // namespace lamina

// A row's fields by name: see bench_row.h.
#include "tools/bench_row.h"

#include <cmath>
#include <vector>

namespace lamina {
namespace {

nlohmann::ordered_json optional(const std::optional<double>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

}  // namespace

std::optional<double> BenchRow::first_token_ms() const {
  return result.test.n_prompt > 0 ? std::optional(nanoseconds.median * 1e-6) : std::nullopt;
}

nlohmann::ordered_json to_json(const BenchRow& row) {
  const BenchTest& test = row.result.test;
  std::vector<int64_t> samples_ns;
  for (const double ns : row.result.nanoseconds) samples_ns.push_back(std::llround(ns));
  nlohmann::ordered_json json{{"build_commit", LAMINA_VERSION},
                              {"cpu_info", row.model.cpu_info},
                              {"backends", row.model.backend},
                              {"model_filename", row.model.filename},
                              {"model_type", row.model.label},
                              {"model_size", row.model.size},
                              {"model_n_params", row.model.n_params},
                              {"n_batch", row.model.n_batch},
                              {"n_threads", row.model.n_threads},
                              {"type_k", row.model.kv_type},
                              {"type_v", row.model.kv_type},
                              {"n_prompt", test.n_prompt},
                              {"n_gen", test.n_gen},
                              {"n_depth", test.n_depth},
                              {"test_time", row.test_time},
                              {"avg_ns", std::llround(row.nanoseconds.average)},
                              {"stddev_ns", std::llround(row.nanoseconds.deviation)},
                              {"avg_ts", row.rate.average},
                              {"stddev_ts", row.rate.deviation},
                              {"median_ts", row.rate.median},
                              {"min_ts", row.rate.least},
                              {"max_ts", row.rate.most},
                              {"first_token_ms", optional(row.first_token_ms())},
                              {"gb_s", optional(row.gb_s)},
                              {"bandwidth_percent", optional(row.bandwidth_percent)}};
  if (row.comparison) {
    json["verdict"] = row.comparison->verdict;
    json["change_percent"] = row.comparison->percent;
  }
  json["samples_ns"] = samples_ns;
  json["samples_ts"] = row.result.tokens_per_second;
  return json;
}

}  // namespace lamina

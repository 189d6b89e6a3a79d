// One row of `lamina bench`: a test under one configuration, with all that tables, JSON and pictures show of it.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "engine/bench.h"

namespace lamina {

/// What is the same for all tests of one loaded model.
struct BenchModel {
  std::string cpu_info, backend, filename, label;
  uint64_t size = 0, n_params = 0;
  uint32_t n_batch = 0, n_threads = 0;
  std::string kv_type;
};

/// How a row stands to the same one of an older run.
struct Comparison {
  std::string verdict;  ///< "faster", "slower", "same"; "unsure": too few repetitions; "new": not in the older run
  double percent = 0;   ///< change of the median rate
};

struct BenchRow {
  BenchModel model;
  BenchResult result = {};
  std::string test_time = {};
  Summary nanoseconds = {}, rate = {};
  std::optional<double> gb_s = {};               ///< generation only
  std::optional<double> bandwidth_percent = {};  ///< generation on the CPU only
  std::optional<Comparison> comparison = {};

  /// Milliseconds from a prompt to the first token behind it (its argmax included); nothing for generation.
  std::optional<double> first_token_ms() const;
};

/// llama-bench's fields in its order, as far as they mean something here, then those that it has not.
nlohmann::ordered_json to_json(const BenchRow& row);

}  // namespace lamina

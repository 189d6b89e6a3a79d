// Is it faster than before? In: rows of an older run (bench -o jsonl, lamina's or llama-bench's) and a new row.
// Out: a verdict that single slow repetitions do not sway.
#pragma once
#include <string>
#include <vector>

#include "tools/bench_row.h"

namespace lamina {

inline constexpr const char* kNoiseRule =
    "faster, slower: the medians differ by 2 % or more and no repetition of one run lies within the other's range; "
    "same: otherwise; unsure: fewer than 4 repetitions, which chance alone could set apart";

/// The verdict by kNoiseRule on rates of two runs; neither may be empty. Of two equal runs with 4 repetitions each, 1
/// in 35 has its ranges apart by chance, with 5 each 1 in 126.
Comparison compare_rates(const std::vector<double>& before, const std::vector<double>& now);

class OlderRun {
 public:
  /// Throws Error(kUsage) when `path` cannot be read or a line is not an object with the fields that are needed.
  explicit OlderRun(const std::string& path);

  /// Compares with the row of the same model file name, threads, batch and test; the last one when there are several.
  Comparison compare(const BenchRow& row) const;

 private:
  struct Row {
    std::string key;
    std::vector<double> rates;
  };
  std::vector<Row> rows_;
};

}  // namespace lamina

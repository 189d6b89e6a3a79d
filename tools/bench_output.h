// What `lamina bench` prints. In: rows, as they come. Out: llama-bench's table (md), or csv, json or jsonl with its
// field names, order and quoting; valid up to the last row also when the run ends early.
#pragma once
#include <string>
#include <utility>

#include "tools/bench_row.h"

namespace lamina {

class BenchOutput {
 public:
  struct Options {
    std::string format;     ///< md, csv, json or jsonl
    bool n_batch = false;   ///< the table has a column for it
    bool compares = false;  ///< and one for the comparison
  };
  explicit BenchOutput(Options options) : options_(std::move(options)) {}

  /// To be called once before and once behind all rows.
  void begin();
  void end();

  void add(const BenchRow& row);

 private:
  void add_csv(const nlohmann::ordered_json& fields);
  void add_to_table(const BenchRow& row);

  Options options_;
  bool first_ = true;
};

}  // namespace lamina

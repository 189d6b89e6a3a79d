// Speed tests as llama-bench does them: prompt processing (ppN: one prompt of N tokens) and generation (tgN: N steps of
// one token), each optionally after `depth` tokens that are not timed. Times of the steps only: no text, no sampling
// but argmax. In: an engine and a test. Out: the time of each repetition and what follows from it.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace lamina {

struct BenchTest {
  uint32_t n_prompt = 0;
  uint32_t n_gen = 0;  ///< one of the two is 0
  uint32_t n_depth = 0;

  uint32_t n_tokens() const { return n_prompt + n_gen; }
  std::string name() const;  ///< "pp512", "tg128", "pp512 @ d1024"
};

/// What repetitions have in common.
struct Summary {
  double average = 0;
  double deviation = 0;  ///< of the sample; 0 for one value
  double median = 0;
  double least = 0, most = 0;
};

/// `values` must not be empty.
Summary summary_of(std::vector<double> values);

struct BenchResult {
  BenchTest test;
  std::vector<double> nanoseconds;        ///< of each repetition
  std::vector<double> tokens_per_second;  ///< the same as rates
};

/// Runs `test` once to warm up (a single step for generation), then `repetitions` times. The engine must hold a
/// sequence of depth + prompt + generated tokens. Returns what was measured before `cancel` was set.
BenchResult run_bench(Engine& engine, const BenchTest& test, uint32_t repetitions, const std::atomic<bool>* cancel);

}  // namespace lamina

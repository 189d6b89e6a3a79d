// The best logits of each output row, kept while the logits are made: each thread offers what it has multiplied to
// lists of its own, and once all have, the lists become one. Ties go to the lowest token and what is not a number never
// counts, so it makes no difference which thread saw what.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "kernels/memory.h"

namespace lamina::cpu {

class BestLogits {
 public:
  void allocate(int n_threads, uint32_t max_outputs);

  /// Empties all lists, which from now on hold `n_best` (at most kMaxBest) each.
  void begin(uint32_t n_outputs, uint32_t n_best);

  /// Logits of the tokens from `first` on, `n` of them, of one output row.
  void offer(int thread, uint32_t output, uint32_t first, const float* logits, uint32_t n);

  /// Joins the threads' lists and orders them, the best first. No thread may be offering.
  void merge();

  /// The best of an output row, after merge(); fewer than asked for when the row has no more numbers.
  std::span<const TokenLogit> of(uint32_t output) const;

  uint64_t bytes() const { return all_.bytes(); }

 private:
  /// While logits are offered a list is a heap with its worst in front.
  struct List {
    uint32_t size;
    TokenLogit best[kMaxBest];
  };
  List& list(size_t thread, size_t output) const { return all_.as<List>()[thread * max_outputs_ + output]; }
  void add(List& list, const TokenLogit& candidate) const;

  Memory all_;  ///< [n_threads][max_outputs] lists
  size_t n_threads_ = 0, max_outputs_ = 0;
  uint32_t n_outputs_ = 0, n_best_ = 0;
};

}  // namespace lamina::cpu

// Bounded heaps, one a thread and output row: see best_logits.h.
#include "kernels/cpu/best_logits.h"

#include <algorithm>

namespace lamina::cpu {

void BestLogits::allocate(int n_threads, uint32_t max_outputs) {
  n_threads_ = static_cast<size_t>(n_threads);
  max_outputs_ = max_outputs;
  all_ = Memory(n_threads_ * max_outputs_ * sizeof(List), "the best logits");
}

void BestLogits::begin(uint32_t n_outputs, uint32_t n_best) {
  n_outputs_ = n_outputs;
  n_best_ = n_best;
  for (size_t thread = 0; thread < n_threads_; ++thread)
    for (size_t output = 0; output < n_outputs; ++output) list(thread, output).size = 0;
}

void BestLogits::add(List& to, const TokenLogit& candidate) const {
  if (to.size == n_best_) {
    if (!is_better(candidate, to.best[0])) return;
    std::pop_heap(to.best, to.best + to.size--, is_better);
  }
  to.best[to.size++] = candidate;
  std::push_heap(to.best, to.best + to.size, is_better);
}

void BestLogits::offer(int thread, uint32_t output, uint32_t first, const float* logits, uint32_t n) {
  List& to = list(static_cast<size_t>(thread), output);
  if (to.size == n_best_) {  // most tiles have nothing to add: a loop without branches sees that
    bool any = false;
    for (uint32_t i = 0; i < n; ++i) any |= logits[i] >= to.best[0].logit;
    if (!any) return;
  }
  for (uint32_t i = 0; i < n; ++i)
    if (logits[i] == logits[i]) add(to, {logits[i], static_cast<int32_t>(first + i)});
}

void BestLogits::merge() {
  for (size_t output = 0; output < n_outputs_; ++output) {
    List& to = list(0, output);
    for (size_t thread = 1; thread < n_threads_; ++thread) {
      const List& from = list(thread, output);
      for (uint32_t i = 0; i < from.size; ++i) add(to, from.best[i]);
    }
    std::sort_heap(to.best, to.best + to.size, is_better);
  }
}

std::span<const TokenLogit> BestLogits::of(uint32_t output) const {
  const List& from = list(0, output);
  return {from.best, from.size};
}

}  // namespace lamina::cpu

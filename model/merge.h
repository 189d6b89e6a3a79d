// The loop that byte-level BPE and SentencePiece share: of all neighbours that may be merged take the best (of equals
// the leftmost), merge them, look at the new neighbours, until nothing is left to merge. In: the smallest symbols of a
// text and a rule `find(left, right)`. Out: the symbols that remain. A long text costs n log n (a linked list and a
// heap), so a million equal letters are no trouble; short ones, which are nearly all, are scanned.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lamina {

/// `size` bytes of a text from `begin` on; `id` is what the merge rule calls them.
struct Symbol {
  uint32_t begin = 0;
  uint32_t size = 0;
  int32_t id = -1;
};

/// What a merge rule says of two neighbours: the symbol they become, or id -1. Lower priorities go first.
template <class Priority>
struct Merge {
  Priority priority{};
  int32_t id = -1;
};

/// Merges the few symbols of a word in place; quadratic in their number.
template <size_t kMax, class Find>
void merge_by_scanning(std::vector<Symbol>& symbols, const Find& find) {
  using Found = decltype(find(symbols[0], symbols[0]));
  std::array<Found, kMax> found;  // found[i]: symbols i and i + 1
  size_t n = symbols.size();
  for (size_t i = 0; i + 1 < n; ++i) found[i] = find(symbols[i], symbols[i + 1]);
  while (n > 1) {
    size_t best = n;
    for (size_t i = 0; i + 1 < n; ++i) {
      if (found[i].id >= 0 && (best == n || found[i].priority < found[best].priority)) best = i;
    }
    if (best == n) break;
    symbols[best].size += symbols[best + 1].size;
    symbols[best].id = found[best].id;
    --n;
    for (size_t i = best + 1; i < n; ++i) symbols[i] = symbols[i + 1];
    for (size_t i = best + 1; i + 1 < n; ++i) found[i] = found[i + 1];
    if (best > 0) found[best - 1] = find(symbols[best - 1], symbols[best]);
    if (best + 1 < n) found[best] = find(symbols[best], symbols[best + 1]);
  }
  symbols.resize(n);
}

/// Merges any number of symbols in place.
template <class Find>
void merge_by_heap(std::vector<Symbol>& symbols, const Find& find) {
  constexpr uint32_t kNone = UINT32_MAX;
  using Found = decltype(find(symbols[0], symbols[0]));
  struct Candidate {
    Found found;
    uint32_t left, right;
    uint32_t size;  // of both together: differs from what is there once one of them has grown
  };
  const auto worse = [](const Candidate& a, const Candidate& b) {
    if (a.found.priority != b.found.priority) return a.found.priority > b.found.priority;
    return a.left > b.left;
  };
  const auto n = static_cast<uint32_t>(symbols.size());
  std::vector<uint32_t> previous(n), next(n);
  std::vector<Candidate> heap;
  const auto candidate = [&](uint32_t left, uint32_t right) {
    const Found found = find(symbols[left], symbols[right]);
    return Candidate{found, left, right, symbols[left].size + symbols[right].size};
  };
  const auto push = [&](uint32_t left, uint32_t right) {
    const Candidate pushed = candidate(left, right);
    if (pushed.found.id < 0) return;
    heap.push_back(pushed);
    std::push_heap(heap.begin(), heap.end(), worse);
  };
  for (uint32_t i = 0; i < n; ++i) {
    previous[i] = i == 0 ? kNone : i - 1;
    next[i] = i + 1 == n ? kNone : i + 1;
    if (i + 1 == n) break;
    const Candidate first = candidate(i, i + 1);
    if (first.found.id >= 0) heap.push_back(first);
  }
  std::make_heap(heap.begin(), heap.end(), worse);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), worse);
    const Candidate best = heap.back();
    heap.pop_back();
    Symbol& left = symbols[best.left];
    Symbol& right = symbols[best.right];
    if (left.size == 0 || right.size == 0 || left.size + right.size != best.size) continue;  // outdated
    left.size = best.size;
    left.id = best.found.id;
    right.size = 0;
    next[best.left] = next[best.right];
    if (next[best.left] != kNone) {
      previous[next[best.left]] = best.left;
      push(best.left, next[best.left]);
    }
    if (previous[best.left] != kNone) push(previous[best.left], best.left);
  }
  std::erase_if(symbols, [](const Symbol& symbol) { return symbol.size == 0; });
}

/// Merges `symbols` (each of size > 0) in place by `find(const Symbol&, const Symbol&) -> Merge<Priority>`.
template <class Find>
void merge_symbols(std::vector<Symbol>& symbols, const Find& find) {
  constexpr size_t kFew = 48;
  if (symbols.size() <= kFew) {
    merge_by_scanning<kFew>(symbols, find);
  } else {
    merge_by_heap(symbols, find);
  }
}

}  // namespace lamina

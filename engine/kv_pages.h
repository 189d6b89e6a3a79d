// KV memory is handed out in pages of 64 positions: a pool of page numbers, and a page table per sequence.
// In: how many positions a sequence holds. Out: the page numbers that a Step needs. The pages' memory belongs to the
// Executable; only the numbers are kept here, so growing and rewinding a sequence are edits of a table.
#pragma once
#include <cstdint>
#include <vector>

#include "kernels/device.h"

namespace lamina {

/// Pages that hold `n` positions.
constexpr uint32_t pages_for(uint32_t n) { return (n + kPagePositions - 1) / kPagePositions; }

/// The free pages among 0 .. n_pages - 1. Not for several threads at once.
class PagePool {
 public:
  explicit PagePool(uint32_t n_pages);

  /// A free page. Throws Error(kRuntime) when all are in use.
  uint32_t take();
  void give_back(uint32_t page);

  uint32_t n_pages() const { return n_pages_; }
  uint32_t n_free() const { return static_cast<uint32_t>(free_.size()); }

 private:
  uint32_t n_pages_;
  std::vector<uint32_t> free_;  ///< the next one to take is at the end
};

/// The pages of one sequence: position p lives in pages()[p / 64]. Gives them back when it goes.
class PageTable {
 public:
  explicit PageTable(PagePool& pool) : pool_(pool) {}
  ~PageTable() { resize(0); }
  PageTable(const PageTable&) = delete;
  PageTable& operator=(const PageTable&) = delete;

  /// Takes or gives back pages until the table holds exactly those of positions 0 .. n - 1. When the pool runs out it
  /// throws and keeps what it got.
  void resize(uint32_t n);

  const std::vector<uint32_t>& pages() const { return pages_; }

 private:
  PagePool& pool_;
  std::vector<uint32_t> pages_;
};

}  // namespace lamina

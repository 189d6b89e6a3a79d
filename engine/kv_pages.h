// KV memory is handed out in pages of 64 positions: a pool of page numbers, and a page table per sequence.
// In: how many positions a sequence holds. Out: the page numbers that a Step needs. The pages' memory belongs to the
// Executable; only the numbers are kept here, so growing, rewinding and sharing a prefix are edits of a table.
#pragma once
#include <cstdint>
#include <vector>

#include "kernels/device.h"

namespace lamina {

/// Pages that hold `n` positions.
constexpr uint32_t pages_for(uint32_t n) { return (n + kPagePositions - 1) / kPagePositions; }

/// The pages 0 .. n_pages - 1, with a count of the tables that hold each. Not for several threads at once.
class PagePool {
 public:
  explicit PagePool(uint32_t n_pages);

  /// A free page, for one holder. Throws Error(kRuntime) when all are in use.
  uint32_t take();

  /// Another holder for a page in use.
  void share(uint32_t page);

  /// One holder less; the page is free when there are none.
  void give_back(uint32_t page);

  bool is_shared(uint32_t page) const { return n_holders_[page] > 1; }
  uint32_t n_pages() const { return static_cast<uint32_t>(n_holders_.size()); }
  uint32_t n_free() const { return static_cast<uint32_t>(free_.size()); }

 private:
  std::vector<uint32_t> n_holders_;  ///< [n_pages]
  std::vector<uint32_t> free_;       ///< the next one to take is at the end
};

/// The pages of one sequence: position p lives in pages()[p / 64]. Gives them back when it goes.
class PageTable {
 public:
  explicit PageTable(PagePool& pool) : pool_(pool) {}
  ~PageTable() { resize(0); }
  PageTable(const PageTable&) = delete;
  PageTable& operator=(const PageTable&) = delete;

  /// Room for the page numbers of n positions, so that resize() allocates nothing up to there.
  void reserve(uint32_t n) { pages_.reserve(pages_for(n)); }

  /// Takes or gives back pages until the table holds exactly those of positions 0 .. n - 1. When the pool runs out it
  /// throws and keeps what it got.
  void resize(uint32_t n);

  /// Gives back all pages and holds the first `n_pages` of another table of the same pool too. What lies in shared
  /// pages must not be overwritten.
  void share(const PageTable& other, uint32_t n_pages);

  /// Whether another table holds the page of position `pos` too.
  bool is_shared(uint32_t pos) const { return pool_.is_shared(pages_[pos / kPagePositions]); }

  const std::vector<uint32_t>& pages() const { return pages_; }

 private:
  PagePool& pool_;
  std::vector<uint32_t> pages_;
};

}  // namespace lamina

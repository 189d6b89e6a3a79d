// Page numbers: a stack of free ones, and tables that grow and shrink at their end.
#include "engine/kv_pages.h"

#include "gguf/error.h"

namespace lamina {

PagePool::PagePool(uint32_t n_pages) : n_holders_(n_pages, 0), free_(n_pages) {
  for (uint32_t i = 0; i < n_pages; ++i) free_[i] = n_pages - 1 - i;
}

uint32_t PagePool::take() {
  if (free_.empty()) {
    fail(ErrorKind::kRuntime, "all {} KV pages of {} positions are in use", n_pages(), kPagePositions);
  }
  const uint32_t page = free_.back();
  free_.pop_back();
  n_holders_[page] = 1;
  return page;
}

void PagePool::share(uint32_t page) {
  LAMINA_CHECK(n_holders_.at(page) > 0);
  ++n_holders_[page];
}

void PagePool::give_back(uint32_t page) {
  LAMINA_CHECK(n_holders_.at(page) > 0);
  if (--n_holders_[page] == 0) free_.push_back(page);
}

void PageTable::resize(uint32_t n) {
  const uint32_t wanted = pages_for(n);
  while (pages_.size() < wanted) pages_.push_back(pool_.take());
  while (pages_.size() > wanted) {
    pool_.give_back(pages_.back());
    pages_.pop_back();
  }
}

void PageTable::share(const PageTable& other, uint32_t n_pages) {
  LAMINA_CHECK(&other != this && &other.pool_ == &pool_ && n_pages <= other.pages_.size());
  resize(0);
  pages_.assign(other.pages_.begin(), other.pages_.begin() + n_pages);
  for (const uint32_t page : pages_) pool_.share(page);
}

}  // namespace lamina

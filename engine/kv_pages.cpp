// Page numbers: a stack of free ones, and tables that grow and shrink at their end.
#include "engine/kv_pages.h"

#include "gguf/error.h"

namespace lamina {

PagePool::PagePool(uint32_t n_pages) : n_pages_(n_pages), free_(n_pages) {
  for (uint32_t i = 0; i < n_pages; ++i) free_[i] = n_pages - 1 - i;
}

uint32_t PagePool::take() {
  if (free_.empty()) {
    fail(ErrorKind::kRuntime, "all {} KV pages of {} positions are in use", n_pages_, kPagePositions);
  }
  const uint32_t page = free_.back();
  free_.pop_back();
  return page;
}

void PagePool::give_back(uint32_t page) {
  LAMINA_CHECK(page < n_pages_ && free_.size() < n_pages_);
  free_.push_back(page);
}

void PageTable::resize(uint32_t n) {
  const uint32_t wanted = pages_for(n);
  while (pages_.size() < wanted) pages_.push_back(pool_.take());
  while (pages_.size() > wanted) {
    pool_.give_back(pages_.back());
    pages_.pop_back();
  }
}

}  // namespace lamina

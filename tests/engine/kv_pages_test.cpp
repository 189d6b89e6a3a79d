// Page numbers: each is handed out once, tables hold what their positions need, all come back.
#include "engine/kv_pages.h"

#include <gtest/gtest.h>

#include <set>

#include "gguf/error.h"

namespace lamina {
namespace {

TEST(PagePool, HandsOutEachPageOnce) {
  PagePool pool(5);
  std::set<uint32_t> pages;
  for (int i = 0; i < 5; ++i) pages.insert(pool.take());
  EXPECT_EQ(pages, (std::set<uint32_t>{0, 1, 2, 3, 4}));
  EXPECT_THROW(pool.take(), Error);
  pool.give_back(3);
  EXPECT_EQ(pool.take(), 3u);
}

TEST(PageTable, HoldsWhatItsPositionsNeed) {
  PagePool pool(4);
  {
    PageTable table(pool);
    const struct {
      uint32_t n_positions, n_pages;
    } steps[] = {{0, 0}, {1, 1}, {64, 1}, {65, 2}, {256, 4}, {129, 3}, {128, 2}, {1, 1}, {192, 3}};
    for (const auto& step : steps) {
      table.resize(step.n_positions);
      EXPECT_EQ(table.pages().size(), step.n_pages) << step.n_positions;
      EXPECT_EQ(pool.n_free(), 4 - step.n_pages) << step.n_positions;
    }
  }
  EXPECT_EQ(pool.n_free(), 4u);
}

TEST(PageTable, KeepsItsFirstPagesWhenItGrowsAndShrinks) {
  PagePool pool(8);
  PageTable table(pool);
  table.resize(100);
  const std::vector<uint32_t> before = table.pages();
  table.resize(400);
  table.resize(100);
  EXPECT_EQ(table.pages(), before);
}

TEST(PageTable, ThrowsWhenThePoolIsEmptyAndGivesBackWhatItHas) {
  PagePool pool(2);
  {
    PageTable first(pool), second(pool);
    first.resize(64);
    EXPECT_THROW(second.resize(129), Error);
    first.resize(0);
    second.resize(128);
  }
  EXPECT_EQ(pool.n_free(), 2u);
}

}  // namespace
}  // namespace lamina

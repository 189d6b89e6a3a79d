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

TEST(PageTable, SharesPagesUntilTheLastHolderGivesThemBack) {
  PagePool pool(6);
  {
    PageTable first(pool), second(pool), third(pool);
    first.resize(200);
    second.resize(64);
    second.share(first, 2);
    third.share(second, 1);
    EXPECT_EQ(second.pages(), (std::vector<uint32_t>{first.pages()[0], first.pages()[1]}));
    EXPECT_EQ(pool.n_free(), 2u);  // first's four; second gave its own back
    EXPECT_TRUE(third.is_shared(63));
    EXPECT_TRUE(first.is_shared(64));
    EXPECT_FALSE(first.is_shared(128));
    first.resize(0);
    EXPECT_EQ(pool.n_free(), 4u);
    EXPECT_TRUE(second.is_shared(0));
    third.resize(0);
    EXPECT_FALSE(second.is_shared(0));
    EXPECT_EQ(pool.n_free(), 4u);
    second.resize(300);
    EXPECT_EQ(std::set<uint32_t>(second.pages().begin(), second.pages().end()).size(), 5u);
  }
  EXPECT_EQ(pool.n_free(), 6u);
}

}  // namespace
}  // namespace lamina

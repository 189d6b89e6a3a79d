// The thread team: every thread takes part, barriers hold, and it works with more threads than cores.
#include "kernels/pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace lamina {
namespace {

class PoolTest : public testing::TestWithParam<int> {};

TEST_P(PoolTest, RunsOnEveryThreadOnce) {
  Pool pool(GetParam());
  for (int round = 0; round < 20; round++) {
    std::vector<std::atomic<int>> seen(static_cast<size_t>(GetParam()));
    pool.run([&](int thread) { seen[static_cast<size_t>(thread)]++; });
    for (const std::atomic<int>& n : seen) EXPECT_EQ(n, 1);
  }
}

/// Between two barriers every thread sees what all wrote before the first.
TEST_P(PoolTest, BarriersSeparatePhases) {
  Pool pool(GetParam());
  const auto n = static_cast<size_t>(GetParam());
  std::vector<int> value(n, 0);
  std::atomic<int> wrong{0};
  constexpr int kPhases = 200;
  pool.run([&](int thread) {
    for (int phase = 1; phase <= kPhases; phase++) {
      value[static_cast<size_t>(thread)] = phase;
      pool.barrier();
      for (const int v : value) wrong += v != phase;
      pool.barrier();
    }
  });
  EXPECT_EQ(wrong, 0);
}

INSTANTIATE_TEST_SUITE_P(Threads, PoolTest, testing::Values(1, 2, 3, 7));

}  // namespace
}  // namespace lamina

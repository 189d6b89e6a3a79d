// The best logits are those of a sorted list, whichever thread offers what, in whichever order.
#include "kernels/cpu/best_logits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace lamina::cpu {
namespace {

TEST(BestLogits, AreThoseOfASortedList) {
  constexpr int kThreads = 3;
  constexpr uint32_t kOutputs = 2;
  BestLogits best;
  best.allocate(kThreads, kOutputs);
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const uint32_t n_vocab = 1 + random() % 600, n_best = 1 + random() % kMaxBest;
    const uint32_t range = 1 + random() % 1000;  // few values: many ties
    best.begin(kOutputs, n_best);
    std::vector<TokenLogit> want[kOutputs];
    std::vector<uint32_t> tiles;
    for (uint32_t first = 0; first < n_vocab; first += 16) tiles.push_back(first);
    for (uint32_t output = 0; output < kOutputs; ++output) {
      std::vector<float> logits(n_vocab);
      for (float& x : logits) x = random() % 16 == 0 ? NAN : -static_cast<float>(random() % range);
      for (uint32_t token = 0; token < n_vocab; ++token)
        if (!std::isnan(logits[token])) want[output].push_back({logits[token], static_cast<int32_t>(token)});
      std::shuffle(tiles.begin(), tiles.end(), random);
      for (const uint32_t first : tiles)
        best.offer(static_cast<int>(random() % kThreads), output, first, &logits[first],
                   std::min(16u, n_vocab - first));
    }
    best.merge();
    for (uint32_t output = 0; output < kOutputs; ++output) {
      std::vector<TokenLogit>& list = want[output];
      std::stable_sort(list.begin(), list.end(), [](auto a, auto b) { return a.logit > b.logit; });
      list.resize(std::min<size_t>(list.size(), n_best));
      const std::span<const TokenLogit> got = best.of(output);
      ASSERT_EQ(got.size(), list.size());
      for (size_t i = 0; i < list.size(); ++i) ASSERT_EQ(got[i].token, list[i].token) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace lamina::cpu

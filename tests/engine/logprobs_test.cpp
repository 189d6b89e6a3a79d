// Log-probabilities of a distribution that is known.
#include "engine/logprobs.h"

#include <gtest/gtest.h>

#include <cmath>

#include "gguf/error.h"

namespace lamina {
namespace {

TEST(Logprobs, GivesTheTokensAndTheBest) {
  // Probabilities 1/8, 1/2, 1/8, 1/4, all logits shifted by 100.
  std::vector<float> logits;
  for (const double p : {0.125, 0.5, 0.125, 0.25}) logits.push_back(static_cast<float>(100 + std::log2(p)));
  for (float& x : logits) x = 100 + (x - 100) * static_cast<float>(std::log(2.0));
  const auto entries = log_probabilities(logits, 2, 3);
  const int32_t tokens[] = {2, 1, 3, 0};  // ties: the lowest id
  const double probabilities[] = {0.125, 0.5, 0.25, 0.125};
  ASSERT_EQ(entries.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(entries[i].token, tokens[i]);
    EXPECT_NEAR(std::exp(entries[i].logprob), probabilities[i], 1e-5);
  }
  EXPECT_EQ(log_probabilities(logits, 0, 9).size(), 5u);
}

TEST(Logprobs, RefusesLogitsThatAreNotNumbers) {
  EXPECT_THROW(log_probabilities(std::vector<float>{0, NAN}, 0, 1), Error);
  EXPECT_THROW(log_probabilities(std::vector<float>{NAN, 0}, 0, 1), Error);
  EXPECT_THROW(log_probabilities(std::vector<float>{0, INFINITY}, 0, 1), Error);
}

}  // namespace
}  // namespace lamina

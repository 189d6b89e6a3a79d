// The base file's bytes, and the sums of a comparison on numbers that can be checked by hand.
#include "engine/kl_divergence.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "gguf/error.h"
#include "tests/gguf/file_builder.h"

namespace lamina {
namespace {

Scored scored(const std::vector<float>& logits, int32_t token) {
  return {.chunk = 0, .index = 0, .token = token, .logits = logits, .log_softmax = LogSoftmax(logits)};
}

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <class T>
T at(const std::string& bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

/// A base of 2 chunks of 4 tokens (one scored in each) with 3 in the vocabulary.
std::string small_base() {
  const Chunks chunks({0, 1, 2, 0, 1, 1, 2, 2, 0}, -1, {.n_ctx = 4});
  return text_of(kl_base_header(chunks, 3)) + text_of(kl_base_row(scored({1, 2, 3}, 0))) +
         text_of(kl_base_row(scored({3, -40, 1}, 2)));
}

std::string refusal(const std::string& bytes) {
  gguf::TempFolder folder;
  try {
    const KlBase base(folder.write("base", bytes));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kModel);
    return error.what();
  }
  return "";
}

TEST(KlBase, HasLlamaPerplexitysLayout) {
  const std::string bytes = small_base();
  ASSERT_EQ(bytes.size(), 8 + 3 * 4 + 8 * 4 + 2 * (2 * (2 * ((3 + 1) / 2) + 4)));  // research: nv = 2((n_vocab+1)/2)+4
  EXPECT_EQ(bytes.substr(0, 8), "_logits_");
  EXPECT_EQ(at<int32_t>(bytes, 8), 4);           // n_ctx
  EXPECT_EQ(at<int32_t>(bytes, 12), 3);          // n_vocab
  EXPECT_EQ(at<int32_t>(bytes, 16), 2);          // n_chunk
  EXPECT_EQ(at<int32_t>(bytes, 20 + 2 * 4), 2);  // the third token
  const size_t row = 20 + 8 * 4;
  EXPECT_FLOAT_EQ(at<float>(bytes, row), 2.0f / 65535);  // logits span 2
  EXPECT_NEAR(at<float>(bytes, row + 4), -2 - std::log(1 + std::exp(-1.0) + std::exp(-2.0)), 1e-6);
  EXPECT_EQ(at<uint16_t>(bytes, row + 8), 0);
  EXPECT_NEAR(at<uint16_t>(bytes, row + 10), 65535 / 2.0, 1);
  EXPECT_EQ(at<uint16_t>(bytes, row + 12), 65535);
  EXPECT_EQ(at<uint16_t>(bytes, row + 14), 0);  // padding
}

TEST(KlBase, GivesBackLogProbabilities) {
  gguf::TempFolder folder;
  KlBase base(folder.write("base", small_base()));
  EXPECT_EQ(base.n_ctx(), 4u);
  EXPECT_EQ(base.n_vocab(), 3u);
  EXPECT_EQ(base.n_chunk(), 2u);
  const double log_sum = std::log(1 + std::exp(-2.0));  // of logits 3, -40, 1; 16 is the range that is kept
  const std::vector<float> second = base.log_probabilities(1, 0);
  ASSERT_EQ(second.size(), 3u);
  EXPECT_NEAR(second[0], -log_sum, 16.0 / 65535);
  EXPECT_NEAR(second[1], -16 - log_sum, 16.0 / 65535);
  EXPECT_NEAR(second[2], -2 - log_sum, 16.0 / 65535);
  EXPECT_NEAR(base.log_probabilities(0, 0)[1], -1 - std::log(1 + std::exp(-1.0) + std::exp(-2.0)), 2.0 / 65535);
}

TEST(KlBase, KnowsItsText) {
  gguf::TempFolder folder;
  const KlBase base(folder.write("base", small_base()));
  base.check_same_text(Chunks({0, 1, 2, 0, 1, 1, 2, 2}, -1, {.n_ctx = 4}));
  base.check_same_vocabulary(3);
  EXPECT_THROW(base.check_same_vocabulary(4), Error);
  try {
    base.check_same_text(Chunks({0, 1, 2, 0, 1, 2, 2, 2}, -1, {.n_ctx = 4}));
    ADD_FAILURE() << "accepted another text";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_NE(std::string(error.what()).find("token 5"), std::string::npos) << error.what();
  }
}

TEST(KlBase, RefusesWhatIsNone) {
  const std::string good = small_base();
  EXPECT_EQ(refusal(good), "");
  EXPECT_NE(refusal(""), "");
  EXPECT_NE(refusal("GGUF and more"), "");
  for (size_t n : {8u, 19u, 21u, 60u}) EXPECT_NE(refusal(good.substr(0, n)), "") << n;
  EXPECT_NE(refusal(good.substr(0, good.size() - 1)).find("too few"), std::string::npos);
  for (const size_t field : {8u, 12u, 16u}) {
    for (const int32_t value : {0, -1, 1 << 24, 0x7fffffff}) {
      std::string bad = good;
      std::memcpy(bad.data() + field, &value, sizeof value);
      EXPECT_NE(refusal(bad), "") << field << " " << value;
    }
  }
}

TEST(TokenDivergence, IsThatOfTheFormulas) {
  const std::vector<float> base = {std::log(0.5f), std::log(0.5f)};
  const TokenDivergence d = compare(scored({0.0f, std::log(3.0f)}, 1), base);  // probabilities 1/4, 3/4
  EXPECT_NEAR(d.kl, 0.5 * std::log(2.0) + 0.5 * std::log(2.0 / 3), 1e-6);
  EXPECT_NEAR(d.nll, -std::log(0.75), 1e-6);
  EXPECT_NEAR(d.nll_base, -std::log(0.5), 1e-6);
  EXPECT_NEAR(d.delta_p, 0.25, 1e-6);
  EXPECT_FALSE(d.same_top);  // of equals the first
  EXPECT_TRUE(compare(scored({1.0f, 0.0f}, 1), base).same_top);
}

TEST(KlStatistics, SumUpTokens) {
  KlStatistics all;
  const double nll[] = {1, 2, 4}, base[] = {1, 1, 2}, kl[] = {0.1, 0.2, 0.6}, dp[] = {0.0, -0.3, 0.6};
  for (size_t i = 0; i < 3; ++i) {
    all.add({.nll = nll[i], .nll_base = base[i], .kl = kl[i], .delta_p = dp[i], .same_top = i != 1});
  }
  EXPECT_NEAR(all.perplexity().value, std::exp(7.0 / 3), 1e-9);
  EXPECT_NEAR(all.base_perplexity().value, std::exp(4.0 / 3), 1e-9);
  EXPECT_NEAR(all.log_ratio().value, 1, 1e-9);
  EXPECT_NEAR(all.log_ratio().error, std::sqrt((5.0 / 3 - 1) / 2), 1e-9);  // of 0, 1, 2
  EXPECT_NEAR(all.ratio().value, std::exp(1.0), 1e-9);
  EXPECT_NEAR(all.difference().value, std::exp(7.0 / 3) - std::exp(4.0 / 3), 1e-9);
  // cov = mean(1, 2, 8) - 7/3 * 4/3; var = 7 - 49/9 and 2 - 16/9
  EXPECT_NEAR(all.correlation(), (11.0 / 3 - 28.0 / 9) / std::sqrt((14.0 / 9) * (2.0 / 9)), 1e-9);
  EXPECT_NEAR(all.kl().value, 0.3, 1e-9);
  EXPECT_NEAR(all.delta_p().value, 0.1, 1e-9);
  EXPECT_NEAR(all.rms_delta_p().value, std::sqrt(0.15), 1e-9);
  EXPECT_NEAR(all.same_top().value, 2.0 / 3, 1e-9);
  EXPECT_NEAR(all.same_top().error, std::sqrt(2.0 / 3 * (1.0 / 3) / 2), 1e-9);
  EXPECT_NEAR(all.kl_quantile(1), 0.6, 1e-6);
  EXPECT_NEAR(all.kl_quantile(0.5), 0.2, 1e-6);
  EXPECT_NEAR(all.kl_quantile(0.75), 0.4, 1e-6);
  EXPECT_NEAR(all.delta_p_quantile(0), -0.3, 1e-6);
}

}  // namespace
}  // namespace lamina

// The sampler against distributions that are computed here, from the definitions of the filters.
#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gguf/error.h"
#include "kernels/reference/reference_device.h"
#include "tests/gguf/file_builder.h"

namespace lamina {
namespace {

using Logits = std::vector<float>;

/// softmax of {2, 1, 0.5, 0, -1}: 0.5630, 0.2071, 0.1256, 0.0762, 0.0280; shares of the best: 1, 0.368, 0.223, ...
const Logits kFive = {0.5F, 2, -1, 1, 0};

constexpr SamplerOptions kPlain{.temp = 1, .top_k = 0, .top_p = 1, .min_p = 0};

SamplerOptions with(double SamplerOptions::*member, double value, SamplerOptions options = kPlain) {
  options.*member = value;
  return options;
}

/// Draws many tokens and compares their counts with softmax(`expected`), where -infinity stands for what must never
/// come. The bound on chi-square, 30, is exceeded by chance once in 2e5 for 4 degrees of freedom.
void expect_distribution(SamplerOptions options, const Logits& logits, const std::vector<int32_t>& tokens,
                         const std::vector<double>& expected) {
  constexpr int kDraws = 20000;
  double total = 0;
  for (const double x : expected) total += std::exp(x);
  for (const uint64_t seed : {1u, 2u}) {
    options.seed = seed;
    Sampler sampler(options);
    std::vector<double> counts(logits.size());
    for (int i = 0; i < kDraws; ++i) ++counts[static_cast<size_t>(sampler.next(logits, tokens))];
    double chi_square = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      const double mean = kDraws * std::exp(expected[i]) / total;
      if (mean == 0) {
        EXPECT_EQ(counts[i], 0) << "token " << i;
      } else {
        chi_square += (counts[i] - mean) * (counts[i] - mean) / mean;
      }
    }
    EXPECT_LT(chi_square, 30);
  }
}

constexpr double kNever = -std::numeric_limits<double>::infinity();

TEST(Sampler, DrawsFromTheSoftmax) {
  expect_distribution(kPlain, kFive, {}, {0.5, 2, -1, 1, 0});
  expect_distribution(kPlain, {1e30F, 1e30F, -1e30F}, {}, {0, 0, kNever});
  expect_distribution(kPlain, {0, -INFINITY, 0}, {}, {0, kNever, 0});
}

TEST(Sampler, DividesByTheTemperature) {
  expect_distribution(with(&SamplerOptions::temp, 0.5), kFive, {}, {1, 4, -2, 2, 0});
  expect_distribution(with(&SamplerOptions::temp, 2), kFive, {}, {0.25, 1, -0.5, 0.5, 0});
  expect_distribution(with(&SamplerOptions::temp, 1e-300), kFive, {}, {kNever, 0, kNever, kNever, kNever});
}

TEST(Sampler, KeepsTheBestK) {
  SamplerOptions options = kPlain;
  options.top_k = 3;
  expect_distribution(options, kFive, {}, {0.5, 2, kNever, 1, kNever});
  options.top_k = -1;
  expect_distribution(options, kFive, {}, {0.5, 2, -1, 1, 0});
  options.top_k = 2;  // of equal logits the lowest ids
  expect_distribution(options, {0, 1, 1, 1}, {}, {kNever, 1, 1, kNever});
}

TEST(Sampler, KeepsTheFewestWithProbabilityP) {
  // 0.5630 + 0.2071 = 0.7701
  expect_distribution(with(&SamplerOptions::top_p, 0.5), kFive, {}, {kNever, 0, kNever, kNever, kNever});
  expect_distribution(with(&SamplerOptions::top_p, 0.77), kFive, {}, {kNever, 2, kNever, 1, kNever});
  expect_distribution(with(&SamplerOptions::top_p, 0.771), kFive, {}, {0.5, 2, kNever, 1, kNever});
  expect_distribution(with(&SamplerOptions::top_p, 0), kFive, {}, {kNever, 0, kNever, kNever, kNever});
}

TEST(Sampler, KeepsThoseWithAShareOfTheBest) {
  expect_distribution(with(&SamplerOptions::min_p, 0.3), kFive, {}, {kNever, 2, kNever, 1, kNever});
  expect_distribution(with(&SamplerOptions::min_p, 0.2), kFive, {}, {0.5, 2, kNever, 1, kNever});
  expect_distribution(with(&SamplerOptions::min_p, 1), {1, 1, 0}, {}, {0, 0, kNever});
}

TEST(Sampler, FiltersInTheDocumentedOrder) {
  // Of the two best, the first has 1 / (1 + 1/e) = 0.731 >= 0.7: top-p sees what top-k has left.
  SamplerOptions options = with(&SamplerOptions::top_p, 0.7);
  options.top_k = 2;
  expect_distribution(options, kFive, {}, {kNever, 0, kNever, kNever, kNever});
  // At temperature 2 three would be needed for 0.77, and four would have a share of 0.3: temperature comes last.
  const std::vector<double> two = {kNever, 1, kNever, 0.5, kNever};
  expect_distribution(with(&SamplerOptions::temp, 2, with(&SamplerOptions::top_p, 0.77)), kFive, {}, two);
  expect_distribution(with(&SamplerOptions::temp, 2, with(&SamplerOptions::min_p, 0.3)), kFive, {}, two);
  // A penalty of 2 on the best makes it 0, so that top-k drops it: penalties come first.
  options = with(&SamplerOptions::presence_penalty, 2);
  options.top_k = 2;
  expect_distribution(options, kFive, {1}, {0.5, kNever, kNever, 1, kNever});
}

TEST(Sampler, PenalisesTheWindow) {
  const std::vector<int32_t> tokens = {4, 4, 4, 2, 1, 3, 1};
  expect_distribution(with(&SamplerOptions::repeat_penalty, 2), kFive, tokens, {0.5, 1, -2, 0.5, 0});
  expect_distribution(with(&SamplerOptions::presence_penalty, 0.5), kFive, tokens, {0.5, 1.5, -1.5, 0.5, -0.5});
  expect_distribution(with(&SamplerOptions::frequency_penalty, 0.25), kFive, tokens, {0.5, 1.5, -1.25, 0.75, -0.75});
  SamplerOptions all = with(&SamplerOptions::repeat_penalty, 2);
  all.presence_penalty = 0.5;
  all.frequency_penalty = 0.25;
  expect_distribution(all, kFive, tokens, {0.5, 0, -2.75, -0.25, -1.25});
  all.repeat_last_n = 3;  // {1, 3, 1}
  expect_distribution(all, kFive, tokens, {0.5, 0, -1, -0.25, 0});
  all.repeat_last_n = 0;
  expect_distribution(all, kFive, tokens, {0.5, 2, -1, 1, 0});
  all.repeat_last_n = -1;
  expect_distribution(all, kFive, std::vector<int32_t>(100, 2), {0.5, 2, -1 * 2 - 0.5 - 25, 1, 0});
}

/// The chain as it is documented, one filter after the other on a list that is sorted once; `u` is the draw.
int32_t plain_chain(const SamplerOptions& options, const Logits& logits, double u) {
  std::vector<std::pair<double, int32_t>> list;  // negated logit, token
  for (const float x : logits) list.emplace_back(-x, static_cast<int32_t>(list.size()));
  std::sort(list.begin(), list.end());
  const double most = -list[0].first;
  const auto weight = [&](size_t i, double temp) { return std::exp((-list[i].first - most) / temp); };
  const auto total = [&](double temp) {
    double sum = 0;
    for (size_t i = 0; i < list.size(); ++i) sum += weight(i, temp);
    return sum;
  };
  if (options.top_k > 0) list.resize(std::min(list.size(), static_cast<size_t>(options.top_k)));
  size_t n = 0;
  for (double sum = 0, all = total(1); n < list.size() && (n == 0 || sum < options.top_p * all); ++n)
    sum += weight(n, 1);
  if (options.top_p < 1) list.resize(n);
  for (n = 0; n < list.size() && weight(n, 1) >= options.min_p;) ++n;
  list.resize(n);
  double left = u * total(options.temp);
  for (n = 0; n + 1 < list.size() && left >= weight(n, options.temp); ++n) left -= weight(n, options.temp);
  return list[n].second;
}

TEST(Sampler, ChoosesWhatThePlainChainChooses) {
  for (uint32_t seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    const auto number = [&](double least, double most) { return least + (most - least) * (random() * 0x1p-32); };
    const auto one_of = [&](std::initializer_list<double> values) { return values.begin()[random() % values.size()]; };
    Logits logits(1 + static_cast<size_t>(std::exp(number(0, 9))));
    const double spread = number(0, 20);  // in tenths, so that there are ties
    for (float& x : logits) x = static_cast<float>(std::round(10 * number(0, spread)) / 10);
    const SamplerOptions options{.temp = one_of({0.3, 1, 1.7, 8}),
                                 .top_k = static_cast<int32_t>(one_of({0, 1, 40, 2000})),
                                 .top_p = one_of({1, 0.999, 0.9, 0.3}),
                                 .min_p = one_of({0, 0, 0.001, 0.2}),
                                 .seed = seed};
    Sampler sampler(options);
    std::mt19937_64 draws(seed);
    for (int i = 0; i < 3; ++i) {
      const double u = static_cast<double>(draws() >> 11) * 0x1p-53;
      ASSERT_EQ(sampler.next(logits, {}), plain_chain(options, logits, u)) << "seed " << seed << ", draw " << i;
    }
  }
}

TEST(Sampler, WeighsByTheExponential) {
  // min-p decides by exp(logit - best): it must do so at the right value to 1e-14 of it.
  for (const float x : {-1e-6F, -0.3F, -0.35F, -1.25F, -7.5F, -33.3F, -87.9F, -600.1F}) {
    const double weight = std::exp(static_cast<double>(x));
    for (const double factor : {1 - 1e-14, 1 + 1e-14}) {
      SamplerOptions options = with(&SamplerOptions::min_p, weight * factor);
      options.temp = 1e6;  // what is kept has the same probability
      Sampler sampler(options);
      bool second = false;
      for (int i = 0; i < 100; ++i) second |= sampler.next(Logits{0, x}, {}) == 1;
      EXPECT_EQ(second, factor < 1) << x;
    }
  }
}

TEST(Sampler, DrawsByTheStandardsGenerator) {
  // Of two equal logits the first half of [0, 1) is token 0: the number's highest bit decides.
  std::mt19937_64 random(42);
  SamplerOptions options = kPlain;
  options.seed = 42;
  Sampler sampler(options);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(sampler.next(Logits{3, 3}, {}), static_cast<int32_t>(random() >> 63));
}

TEST(Sampler, TakesTheBestAtTemperatureZero) {
  const SamplerOptions greedy{.temp = 0};
  EXPECT_EQ(Sampler(greedy).next(kFive, {}), 1);
  EXPECT_EQ(Sampler(greedy).next(Logits{-1, 7, 7, 7}, {}), 1);  // ties: the lowest id
  EXPECT_EQ(Sampler(with(&SamplerOptions::repeat_penalty, 4, greedy)).next(kFive, std::vector<int32_t>{1}), 3);
}

TEST(Sampler, RefusesLogitsThatAreNotNumbers) {
  for (const SamplerOptions& options : {kPlain, SamplerOptions{.temp = 0}}) {
    for (const Logits& logits : {Logits{0, NAN}, Logits{0, INFINITY}, Logits{-INFINITY, -INFINITY}}) {
      try {
        Sampler(options).next(logits, {});
        ADD_FAILURE();
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kRuntime);
      }
    }
  }
}

TEST(Sampler, LeavesTheLogitsOfASessionAloneWhenTheArgmaxWillDo) {
  Engine engine(LAMINA_SOURCE_DIR "/tests/data/engine/chains.gguf", make_reference_device(),
                {.n_ctx = 64, .n_sequence = 2, .tokenizer = false});
  Session first(engine), second(engine);
  first.evaluate(std::vector<int32_t>{1});
  Sampler greedy({.temp = 0}), drawing({.temp = 1e-9});
  EXPECT_EQ(drawing.next(first), first.argmax());
  second.evaluate(std::vector<int32_t>{1});  // the first's logits are gone: reading them would abort
  EXPECT_EQ(greedy.next(first), first.argmax());
}

/// The best logits that a sampler asks for are enough: it chooses as from all, whatever is penalised and kept.
TEST(Sampler, ChoosesFromTheBestAsFromAll) {
  Engine engine(LAMINA_SOURCE_DIR "/tests/data/engine/chains.gguf", make_reference_device(),
                {.n_ctx = 256, .n_sequence = 2, .tokenizer = false});
  int n_bounded = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const auto one_of = [&](std::initializer_list<double> values) { return values.begin()[random() % values.size()]; };
    const SamplerOptions options{.temp = one_of({0, 0.5, 1, 30}),
                                 .top_k = static_cast<int32_t>(one_of({1, 3, 40, 200, 300})),
                                 .top_p = one_of({1, 0.9}),
                                 .min_p = one_of({0, 0.01}),
                                 .repeat_penalty = one_of({0.5, 1, 1.5, 100}),
                                 .repeat_last_n = static_cast<int32_t>(one_of({0, 5, 64, -1})),
                                 .presence_penalty = one_of({-1, 0, 3}),
                                 .frequency_penalty = one_of({0, 2}),
                                 .seed = seed};
    Sampler bounded(options), full(options);
    Session first(engine), second(engine);
    std::vector<int32_t> tokens = {static_cast<int32_t>(seed)};
    for (int i = 0; i < 12; ++i) {
      const uint32_t n_best = bounded.n_best(tokens, engine.n_vocab());
      n_bounded += n_best != 0;
      first.evaluate(tokens, nullptr, n_best);
      const int32_t got = bounded.next(first);
      second.evaluate(tokens);
      ASSERT_EQ(got, full.next(second)) << "seed " << seed << ", token " << i;
      tokens.push_back(got);
    }
  }
  EXPECT_GT(n_bounded, 100);  // or nothing was tested
}

/// What a file with the keys of `builder` asks for.
SamplerOptions sampling_of(const gguf::FileBuilder& builder) {
  const gguf::TempFolder folder;
  return model_sampling(gguf::File::open(folder.write("sampling.gguf", builder.build().bytes)));
}

TEST(ModelSampling, ReadsTheFilesValues) {
  using gguf::ValueType;
  gguf::FileBuilder builder;
  builder.key("general.sampling.temp", ValueType::kFloat32, gguf::raw(0.5F))
      .key("general.sampling.top_k", ValueType::kInt32, gguf::raw(int32_t{-1}))
      .key("general.sampling.top_p", ValueType::kFloat32, gguf::raw(0.25F))
      .key("general.sampling.min_p", ValueType::kFloat32, gguf::raw(0.125F))
      .key("general.sampling.penalty_repeat", ValueType::kFloat32, gguf::raw(1.5F))
      .key("general.sampling.penalty_last_n", ValueType::kInt32, gguf::raw(int32_t{7}))
      .key("general.sampling.mirostat", ValueType::kInt32, gguf::raw(int32_t{2}));  // warns
  const SamplerOptions options = sampling_of(builder);
  EXPECT_EQ(options.temp, 0.5);
  EXPECT_EQ(options.top_k, -1);
  EXPECT_EQ(options.top_p, 0.25);
  EXPECT_EQ(options.min_p, 0.125);
  EXPECT_EQ(options.repeat_penalty, 1.5);
  EXPECT_EQ(options.repeat_last_n, 7);
}

TEST(ModelSampling, RefusesAbsurdValues) {
  using gguf::ValueType;
  const struct {
    std::string key, stored, part;
    ValueType type;
  } cases[] = {
      {"temp", gguf::raw(-1.0F), "general.sampling.temp is -1", ValueType::kFloat32},
      {"temp", gguf::raw(NAN), "general.sampling.temp is nan", ValueType::kFloat32},
      {"top_p", gguf::raw(1.5F), "general.sampling.top_p is 1.5", ValueType::kFloat32},
      {"top_k", gguf::raw(uint64_t{1} << 40), "general.sampling.top_k is", ValueType::kUint64},
      {"min_p", gguf::raw_string("0.5"), "general.sampling.min_p", ValueType::kString},
  };
  for (const auto& row : cases) {
    try {
      sampling_of(gguf::FileBuilder().key("general.sampling." + row.key, row.type, row.stored));
      ADD_FAILURE() << row.part;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kModel);
      EXPECT_NE(std::string(error.what()).find(row.part), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace lamina

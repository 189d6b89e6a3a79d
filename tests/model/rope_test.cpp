// Rotary frequencies against formulas written here a second time, from the papers. In: configs. Out: inv_freq,
// magnitude.
#include "model/rope.h"

#include <gtest/gtest.h>

#include <cmath>

#include "gguf/error.h"
#include "tests/model/edited_file.h"

namespace lamina {
namespace {

constexpr double kPi = 3.14159265358979323846;

Config config_of(uint32_t n_rot, double base) {
  Config config;
  config.architecture = find_architecture("llama");
  config.n_rot = n_rot;
  config.freq_base = base;
  config.rope_ctx_original = 4096;
  return config;
}

void expect_near(double actual, double expected) { EXPECT_NEAR(actual, expected, 1e-12 * std::fabs(expected)); }

TEST(Rope, PlainFrequenciesFallGeometrically) {
  const Rope rope = make_rope(config_of(64, 10000), {});
  ASSERT_EQ(rope.inv_freq.size(), 32U);
  EXPECT_EQ(rope.magnitude, 1);
  EXPECT_EQ(rope.pairs, RopePairs::kAdjacent);
  for (int i = 0; i < 32; ++i) expect_near(rope.inv_freq[i], std::exp(-std::log(10000.0) * i / 32));
}

TEST(Rope, LinearScalingDividesEveryFrequency) {
  Config config = config_of(16, 500000);
  const Rope plain = make_rope(config, {});
  config.rope_factor = 8;
  const Rope scaled = make_rope(config, {});
  for (int i = 0; i < 8; ++i) expect_near(scaled.inv_freq[i], plain.inv_freq[i] / 8);
}

/// Llama 3's factors, from its rule: wavelengths below 8192/4 stay, above 8192/1 are stretched 8 times, between them
/// the frequency is mixed. They reach a file as rope_freqs.weight.
TEST(Rope, Llama3FactorsDivideTheFrequencies) {
  const Config config = config_of(128, 500000);
  std::vector<float> factors(64);
  std::vector<double> expected(64);
  for (int i = 0; i < 64; ++i) {
    const double frequency = std::pow(500000.0, -i / 64.0), wavelength = 2 * kPi / frequency;
    const double mix = std::fmin(std::fmax((8192 / wavelength - 1) / (4 - 1), 0), 1);
    expected[i] = (1 - mix) * frequency / 8 + mix * frequency;
    factors[i] = static_cast<float>(frequency / expected[i]);
  }
  const Rope rope = make_rope(config, factors);
  for (int i = 0; i < 64; ++i) EXPECT_NEAR(rope.inv_freq[i] / expected[i], 1, 1e-7) << i;
}

/// YaRN as in the paper: the number of turns r of a pair within the original context decides between interpolation
/// (r below beta_slow) and none (r above beta_fast). The ramp is linear in the pair's index between rounded ends.
TEST(Rope, YarnKeepsFastPairsAndStretchesSlowOnes) {
  Config config = config_of(128, 1000000);
  config.yarn = true;
  config.rope_factor = 4;
  config.rope_ctx_original = 32768;
  const Rope rope = make_rope(config, {});
  const auto turns = [](int i) { return 32768 * std::pow(1e6, -i / 64.0) / (2 * kPi); };
  int low = 0, high = 0;  // the last pair with at least 32 turns, the first with at most 1
  while (turns(low + 1) >= 32) ++low;
  while (turns(high) > 1) ++high;
  for (int i = 0; i < 64; ++i) {
    const double frequency = std::pow(1e6, -i / 64.0);
    const double stretched = std::fmin(std::fmax(static_cast<double>(i - low) / (high - low), 0), 1);
    expect_near(rope.inv_freq[i], frequency * (1 - stretched) + frequency / 4 * stretched);
  }
  expect_near(rope.magnitude, 0.1 * std::log(4.0) + 1);
  EXPECT_EQ(rope.inv_freq[0], 1);
  expect_near(rope.inv_freq[63], std::pow(1e6, -63 / 64.0) / 4);
}

TEST(Rope, YarnWithoutAFactorChangesNothing) {
  Config config = config_of(64, 10000);
  const Rope plain = make_rope(config, {});
  config.yarn = true;
  const Rope yarn = make_rope(config, {});
  for (int i = 0; i < 32; ++i) expect_near(yarn.inv_freq[i], plain.inv_freq[i]);
  EXPECT_EQ(yarn.magnitude, 1);
}

TEST(Rope, YarnMagnitudeTakesTheFilesFactors) {
  Config config = config_of(64, 10000);
  config.yarn = true;
  config.rope_factor = 40;
  config.rope_attn_factor = 1.5;
  config.yarn_log_multiplier = 0.5;
  const double log_factor = std::log(40.0);
  expect_near(make_rope(config, {}).magnitude, 1.5 * (0.1 * log_factor + 1) / (0.05 * log_factor + 1));
}

TEST(Rope, WindowedLayersOfGemma3UseTheirOwnBaseUnscaled) {
  Config config = config_of(16, 1000000);
  config.architecture = find_architecture("gemma3");
  config.rope_pairs = RopePairs::kHalves;
  config.freq_base_window = 10000;
  config.rope_factor = 8;
  const Rope global = make_rope(config, {}), local = make_window_rope(config, {});
  for (int i = 0; i < 8; ++i) {
    expect_near(global.inv_freq[i], std::pow(1e6, -i / 8.0) / 8);
    expect_near(local.inv_freq[i], std::pow(1e4, -i / 8.0));
  }
  EXPECT_EQ(local.pairs, RopePairs::kHalves);
}

TEST(Rope, WindowedLayersOfOlmo2KeepTheirPlainRopeUnderYarn) {
  Config config = config_of(16, 500000);
  config.architecture = find_architecture("olmo2");
  config.freq_base_window = 500000;
  config.yarn = true;
  config.rope_factor = 8;
  const Rope local = make_window_rope(config, {});
  for (int i = 0; i < 8; ++i) expect_near(local.inv_freq[i], std::pow(5e5, -i / 8.0));
  EXPECT_EQ(local.magnitude, 1);
  expect_near(make_rope(config, {}).magnitude, 0.1 * std::log(8.0) + 1);
}

TEST(Rope, WindowedLayersOfCohere2AreScaledWithTheirOwnBase) {
  Config config = config_of(16, 500000);
  config.architecture = find_architecture("cohere2");
  config.freq_base_window = 50000;
  config.rope_factor = 4;
  const Rope local = make_window_rope(config, {});
  for (int i = 0; i < 8; ++i) expect_near(local.inv_freq[i], std::pow(5e4, -i / 8.0) / 4);
}

/// Only n_rot of a head's dimensions turn, and their number sets the speeds: not the head's size.
TEST(Rope, PartialRotationSpacesItsFrequenciesOverTheRotatedDimensions) {
  EditedFile file("gpt2-dense.gguf");
  file.rename("phi2").set("phi2.rope.dimension_count", 4U).set("phi2.rope.freq_base", 10000.0F);
  const Rope rope = make_rope(read_config(file.open()), {});
  ASSERT_EQ(rope.n_rot(), 4U);
  expect_near(rope.inv_freq[0], 1);
  expect_near(rope.inv_freq[1], 0.01);
  EXPECT_EQ(rope.pairs, RopePairs::kHalves);
}

TEST(Rope, SectionsPairHalvesOnlyInGlm4) {
  for (const std::string architecture : {"glm4", "llama"}) {
    EditedFile file("llama-dense.gguf");
    file.rename(architecture);
    EXPECT_EQ(make_rope(read_config(file.open()), {}).pairs, RopePairs::kAdjacent);
    file.set_array(architecture + ".rope.dimension_sections", {4, 4, 4, 4});
    EXPECT_EQ(make_rope(read_config(file.open()), {}).pairs,
              architecture == "glm4" ? RopePairs::kHalves : RopePairs::kAdjacent);
  }
}

TEST(Rope, YarnTakesItsKeys) {
  EditedFile file("llama-dense.gguf");
  file.rename("mistral3").set("mistral3.rope.scaling.type", "yarn").set("mistral3.rope.scaling.factor", 16.0F);
  file.set("mistral3.rope.scaling.original_context_length", 64U).set("mistral3.rope.scaling.yarn_ext_factor", 0.5F);
  file.set("mistral3.rope.scaling.yarn_beta_fast", 4.0F).set("mistral3.rope.scaling.yarn_beta_slow", 0.5F);
  file.set("mistral3.rope.scaling.yarn_attn_factor", 2.0F).set("mistral3.rope.scaling.yarn_log_multiplier", 1.0F);
  const Rope rope = make_rope(read_config(file.open()), {});
  expect_near(rope.magnitude, 2);  // 2 * (0.1 ln 16 + 1) / (0.1 ln 16 + 1)
  // Turns of pair i within 64 positions: 10.2 * 10^(-i / 2). At least 4: pair 0. At most 0.5: pair 3.
  for (int i = 0; i < 8; ++i) {
    const double kept = 0.5 * (1 - std::fmin(i / 3.0, 1)), frequency = std::pow(1e4, -i / 8.0);
    expect_near(rope.inv_freq[i], frequency * kept + frequency / 16 * (1 - kept));
  }
}

TEST(Rope, LongropeChoosesItsFactorsByTheContextSize) {
  EditedFile edited("phi3-dense.gguf");
  const gguf::File file = edited.set("phi3.rope.scaling.original_context_length", 32U).open();
  const Config config = read_config(file);
  const auto values = [&](const char* name) {
    std::vector<float> floats(8);
    const gguf::Tensor* tensor = file.tensor(name);
    gguf::dequantize(*tensor->type, tensor->data.data(), 8, floats.data());
    return floats;
  };
  EXPECT_EQ(rope_factors(file, config, 32), values("rope_factors_short.weight"));
  EXPECT_EQ(rope_factors(file, config, 33), values("rope_factors_long.weight"));
}

TEST(Rope, LongropeMultipliesByTheAttentionFactor) {
  EditedFile file("phi3-dense.gguf");
  file.set("phi3.rope.scaling.attn_factor", 1.25F).set("phi3.rope.scaling.type", "longrope");
  EXPECT_EQ(make_rope(read_config(file.open()), {}).magnitude, 1.25);
}

TEST(Rope, RefusesFactorsThatCannotDivide) {
  EditedFile edited("llama-dense.gguf");
  const gguf::File file = edited.tensor("rope_freqs.weight", {8}).open();  // zeros
  try {
    rope_factors(file, read_config(file), 256);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("tensor rope_freqs.weight holds the factor 0"), std::string::npos);
  }
}

TEST(Rope, TypeNoneIgnoresTheFactor) {
  EditedFile file("qwen2-dense.gguf");
  file.set("qwen2.rope.scaling.factor", 4.0F);
  EXPECT_EQ(make_rope(read_config(file.open()), {}).inv_freq[0], 0.25);
  file.set("qwen2.rope.scaling.type", "none");
  EXPECT_EQ(make_rope(read_config(file.open()), {}).inv_freq[0], 1);
}

}  // namespace
}  // namespace lamina

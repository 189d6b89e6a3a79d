// What metadata is accepted: every required key missing one by one, absurd values, and which keys count for which
// architecture. In: fixtures with single keys changed. Out: a Config, or one line that names the key and its value.
#include "model/config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "gguf/error.h"
#include "tests/model/edited_file.h"

namespace lamina {
namespace {

/// The message with which the metadata are refused, or "accepted".
std::string refusal(const EditedFile& edited) {
  const gguf::File file = edited.open();
  try {
    read_config(file);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kModel);
    return error.what();
  }
  return "accepted";
}

testing::AssertionResult says(const std::string& message, const std::string& part) {
  if (message.find(part) != std::string::npos && message.find('\n') == std::string::npos) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << message << "\n lacks: " << part;
}

Config config_of(const EditedFile& edited) { return read_config(edited.open()); }

TEST(Config, NamesEachRequiredKeyThatIsMissing) {
  const char* everywhere[] = {"block_count", "embedding_length", "context_length", "feed_forward_length",
                              "attention.head_count"};
  for (const std::string architecture : {"llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "gpt2"}) {
    std::vector<std::string> keys(std::begin(everywhere), std::end(everywhere));
    keys.push_back(architecture == "gpt2" ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon");
    for (const std::string& key : keys) {
      EditedFile file(architecture + "-dense.gguf");
      file.remove(architecture + "." + key);
      EXPECT_TRUE(says(refusal(file), architecture + "." + key + " is missing"));
    }
  }
}

TEST(Config, NamesTheExpertKeysOfAMixture) {
  EditedFile file("qwen3-dense.gguf");
  file.rename("qwen3moe");
  EXPECT_TRUE(says(refusal(file), "qwen3moe.expert_count is missing"));
  file.set("qwen3moe.expert_count", 4U);
  EXPECT_TRUE(says(refusal(file), "qwen3moe.expert_used_count is missing"));
  for (const uint32_t n : {0U, 5U}) {
    file.set("qwen3moe.expert_used_count", n);
    EXPECT_TRUE(says(refusal(file), fmt::format("qwen3moe.expert_used_count is {}", n)));
  }
  file.set("qwen3moe.expert_count", 1U << 31);
  EXPECT_TRUE(says(refusal(file), "qwen3moe.expert_count is 2147483648"));
}

TEST(Config, RefusesAbsurdIntegers) {
  const uint32_t max = std::numeric_limits<uint32_t>::max();
  const std::map<std::string, std::vector<uint32_t>> absurd = {{"block_count", {0, 513, 1U << 31, max}},
                                                               {"embedding_length", {0, max}},
                                                               {"context_length", {0, max}},
                                                               {"vocab_size", {0, 129, max}},
                                                               {"feed_forward_length", {0, max}},
                                                               {"attention.head_count", {0, 3, 4097, max}},
                                                               {"attention.head_count_kv", {0, 3, 8, max}},
                                                               {"attention.key_length", {0, max}},
                                                               {"attention.value_length", {0, max}},
                                                               {"rope.dimension_count", {0, 3, 18, max}}};
  for (const auto& [key, values] : absurd) {
    for (const uint32_t value : values) {
      EditedFile file("llama-dense.gguf");
      file.set("llama." + key, value);
      const std::string message = refusal(file);
      EXPECT_TRUE(says(message, fmt::format("{}", value)) && says(message, "llama.")) << key << " = " << value;
    }
  }
}

TEST(Config, RefusesAbsurdNumbers) {
  const float nan = NAN, infinity = INFINITY;
  const std::map<std::string, std::vector<float>> absurd = {
      {"attention.layer_norm_rms_epsilon", {0, -1, nan, infinity, 1}},
      {"rope.freq_base", {0, -1, nan, infinity, 1e-40F}},
      {"rope.scaling.factor", {0, -1, nan, infinity}},
      {"rope.scaling.attn_factor", {0, -1, nan}},
      {"attention.scale", {-1, nan, infinity}}};
  for (const auto& [key, values] : absurd) {
    for (const float value : values) {
      EditedFile file("llama-dense.gguf");
      file.set("llama." + key, value);
      EXPECT_TRUE(says(refusal(file), "llama." + key + " is ")) << value;
    }
  }
}

TEST(Config, RefusesValuesOfAnotherType) {
  const auto with = [](const std::string& key, auto value) {
    EditedFile file("llama-dense.gguf");
    file.set(key, value);
    return refusal(file);
  };
  EXPECT_TRUE(says(with("llama.block_count", "two"), "llama.block_count is \"two\"; it must be an integer"));
  EXPECT_TRUE(says(with("llama.block_count", 2.5F), "llama.block_count is 2.5; it must be an integer"));
  EXPECT_TRUE(says(with("llama.block_count", true), "llama.block_count is true; it must be an integer"));
  EXPECT_TRUE(says(with("llama.rope.freq_base", "1e4"), "llama.rope.freq_base is \"1e4\"; it must be a number"));
  EXPECT_TRUE(says(with("llama.rope.scaling.type", "su"), "llama.rope.scaling.type is \"su\""));
  EXPECT_TRUE(says(with("llama.rope.scaling.type", 1U), "llama.rope.scaling.type is 1"));
}

TEST(Config, RefusesUnknownArchitecturesListingTheKnown) {
  for (const std::string name : {"nosuch", "", "LLAMA"}) {
    EditedFile file("llama-dense.gguf");
    file.set("general.architecture", name.c_str());
    for (const Architecture& known : architectures()) EXPECT_TRUE(says(refusal(file), std::string(known.name)));
  }
  EditedFile file("llama-dense.gguf");
  file.set("general.architecture", 7U);
  EXPECT_TRUE(says(refusal(file), "general.architecture is 7; it must be a string"));
  file.set("general.architecture", std::string(1 << 20, 'a').c_str());
  EXPECT_LT(refusal(file).size(), 500U);
}

TEST(Config, ReadsAnArrayAsOneValueALayer) {
  EditedFile file("llama-dense.gguf");
  file.set_array("llama.attention.head_count_kv", {2, 1, 7}).set_array("llama.feed_forward_length", {96, 32});
  const Config config = config_of(file);
  EXPECT_EQ(config.layers[0].n_head_kv, 2U);
  EXPECT_EQ(config.layers[1].n_head_kv, 1U);
  EXPECT_EQ(config.layers[1].n_ff, 32U);
  file.set_array("llama.attention.head_count_kv", {2});
  EXPECT_TRUE(says(refusal(file), "llama.attention.head_count_kv is an array of 1; it lacks a value for layer 1"));
  file.set_array("llama.attention.head_count_kv", {2, 0});
  EXPECT_TRUE(says(refusal(file), "llama.attention.head_count_kv is 0"));
  file.set_array("llama.attention.head_count_kv", {2, 2}).set_array("llama.block_count", {2});
  EXPECT_TRUE(says(refusal(file), "llama.block_count is an array of 1; it must be an integer"));
}

TEST(Config, FillsInWhatIsMissing) {
  EditedFile file("llama-dense.gguf");
  for (const char* key : {"attention.head_count_kv", "attention.key_length", "attention.value_length",
                          "rope.dimension_count", "rope.freq_base", "vocab_size"}) {
    file.remove(std::string("llama.") + key);
  }
  const Config config = config_of(file);
  EXPECT_EQ(config.layers[1].n_head_kv, 4U);
  EXPECT_EQ(config.head_dim_k, 16U);
  EXPECT_EQ(config.head_dim_v, 16U);
  EXPECT_EQ(config.n_rot, 16U);
  EXPECT_EQ(config.freq_base, 10000);
  EXPECT_EQ(config.n_vocab, 128U);
  EXPECT_EQ(config.attention_scale, 0.25);
}

TEST(Config, CountsAKeyOnlyWhereTheRowReadsIt) {
  const auto config_with = [](const std::string& architecture, const std::string& key, float value) {
    EditedFile file(architecture + "-dense.gguf");
    file.set(architecture + "." + key, value);
    return config_of(file);
  };
  EXPECT_EQ(config_with("llama", "final_logit_softcapping", 5).final_softcap, 0);
  EXPECT_EQ(config_with("gemma3", "final_logit_softcapping", 5).final_softcap, 5);
  EXPECT_EQ(config_with("gemma3", "attn_logit_softcapping", 5).attention_softcap, 0);
  EXPECT_EQ(config_with("gemma2", "attn_logit_softcapping", 5).attention_softcap, 5);
  EXPECT_EQ(config_with("llama", "attention.scale", 5).attention_scale, 5);
  EXPECT_EQ(config_with("gemma3", "attention.scale", 5).attention_scale, 0.25);
  EXPECT_EQ(config_with("gpt2", "rope.freq_base", -1).freq_base, 10000);
  EXPECT_EQ(config_with("qwen3", "attention.sliding_window", -1).window, 0U);
  EXPECT_EQ(config_with("llama", "attention.temperature_scale", -1).temperature_scale, 0);
  EXPECT_EQ(config_with("llama", "embedding_scale", -1).embedding_scale, 1);
  EXPECT_EQ(config_with("llama", "residual_scale", -1).residual_scale, 1);
  EXPECT_EQ(config_with("llama", "logit_scale", -1).logit_scale, 1);
  EXPECT_EQ(config_with("llama", "use_parallel_residual", -1).parallel, false);
  EXPECT_EQ(config_with("llama", "expert_shared_feed_forward_length", -1).n_ff_shared, 0U);
}

/// Which layers are windowed, as a string of w and f.
std::string windows(const Config& config) {
  std::string result;
  for (const LayerConfig& layer : config.layers) result += layer.windowed ? 'w' : 'f';
  return result;
}

TEST(Config, ReadsWindowPatterns) {
  EditedFile file("gemma3-dense.gguf");
  file.set("gemma3.block_count", 8U);
  EXPECT_EQ(windows(config_of(file)), "wwwwwfww");  // missing: the row's period of 6
  const std::map<uint32_t, std::string> periods = {{0, "wwwwwwww"}, {1, "ffffffff"}, {2, "wfwfwfwf"}, {3, "wwfwwfww"}};
  for (const auto& [period, expected] : periods) {
    file.set("gemma3.attention.sliding_window_pattern", period);
    EXPECT_EQ(windows(config_of(file)), expected) << period;
  }
  file.set_array("gemma3.attention.sliding_window_pattern", {1, 0, 0, 1, 1, 1, 0, 0, 1, 1});
  EXPECT_EQ(windows(config_of(file)), "wffwwwff");
  file.set_array("gemma3.attention.sliding_window_pattern", {1, 0, 0, 1, 1, 1, 0});
  EXPECT_TRUE(says(refusal(file), "gemma3.attention.sliding_window_pattern is an array of 7"));
  file.remove("gemma3.attention.sliding_window");
  EXPECT_EQ(windows(config_of(file)), "ffffffff");
}

/// Which layers rotate, as a string of r and n.
std::string rotations(const Config& config) {
  std::string result;
  for (const LayerConfig& layer : config.layers) result += layer.rotated ? 'r' : 'n';
  return result;
}

TEST(Config, LeavesLayersUnrotatedWhereTheRowSays) {
  EditedFile file("gemma3-dense.gguf");
  file.rename("smollm3").set("smollm3.block_count", 9U);
  EXPECT_EQ(rotations(config_of(file)), "rrrnrrrnr");

  file.rename("cohere2").set("cohere2.block_count", 8U).set("cohere2.logit_scale", 1.0F);
  file.set("cohere2.attention.layer_norm_epsilon", 1e-5F);
  EXPECT_EQ(windows(config_of(file)), "wwwfwwwf");
  EXPECT_EQ(rotations(config_of(file)), "rrrnrrrn");
  file.set_array("cohere2.attention.sliding_window_pattern", {0, 1, 0, 1, 0, 0, 0, 1});
  EXPECT_EQ(rotations(config_of(file)), "nrnrnnnr");

  file.rename("granite");
  for (const bool finetuned : {true, false}) {
    file.set("granite.rope.scaling.finetuned", finetuned);
    EXPECT_EQ(rotations(config_of(file)), finetuned ? "rr" : "nn");
  }
  file.rename("llama").set("llama.rope.scaling.finetuned", false);
  EXPECT_EQ(rotations(config_of(file)), "rr");
}

TEST(Config, OnlyTheLargeExaone4IsWindowed) {
  EditedFile file("gemma3-dense.gguf");
  file.rename("exaone4");
  EXPECT_EQ(config_of(file).window, 0U);
  EXPECT_EQ(rotations(config_of(file)), "rr");
  file.set("exaone4.block_count", 64U);
  const Config large = config_of(file);
  EXPECT_EQ(large.window, 32U);
  EXPECT_EQ(windows(large).substr(56), "wwwfwwwf");
  EXPECT_EQ(rotations(large).substr(56), "rrrnrrrn");
}

TEST(Config, ReadsMultipliersOrTheirPublishedValues) {
  EditedFile file("llama-dense.gguf");
  file.rename("minicpm").set("minicpm.block_count", 49U);
  Config config = config_of(file);
  EXPECT_EQ(config.embedding_scale, 12);
  EXPECT_DOUBLE_EQ(config.residual_scale, 0.2);  // 1.4 / sqrt(49)
  EXPECT_EQ(config.logit_scale, 4);              // 1 / (64 / 256)
  file.set("minicpm.embedding_scale", 3.0F).set("minicpm.residual_scale", 0.5F).set("minicpm.logit_scale", 8.0F);
  config = config_of(file);
  EXPECT_EQ(config.embedding_scale, 3);
  EXPECT_EQ(config.residual_scale, 0.5);
  EXPECT_EQ(config.logit_scale, 0.125);

  file.rename("command-r").set("command-r.attention.layer_norm_epsilon", 1e-5F);
  EXPECT_TRUE(says(refusal(file), "command-r.logit_scale is missing"));
  file.set("command-r.logit_scale", 0.5F);
  EXPECT_EQ(config_of(file).logit_scale, 0.5);

  file.rename("gemma");
  EXPECT_EQ(config_of(file).embedding_scale, 8);  // sqrt(64)
}

TEST(Config, RefusesAbsurdTraitsOfSingleRows) {
  const float nan = NAN, infinity = INFINITY;
  const std::map<std::string, std::vector<float>> absurd = {{"granite.embedding_scale", {0, -1, nan, infinity}},
                                                            {"granite.residual_scale", {0, -1, nan, infinity}},
                                                            {"granite.logit_scale", {0, -1, nan, infinity}},
                                                            {"mistral3.attention.temperature_scale", {-1, nan, 1e9F}}};
  for (const auto& [key, values] : absurd) {
    for (const float value : values) {
      EditedFile file("llama-dense.gguf");
      file.rename(key.substr(0, key.find('.'))).set(key, value);
      EXPECT_TRUE(says(refusal(file), key + " is ")) << value;
    }
  }
  EditedFile file("llama-dense.gguf");
  file.rename("granite").set("granite.rope.scaling.finetuned", 1U);
  EXPECT_TRUE(says(refusal(file), "granite.rope.scaling.finetuned is 1; it must be true or false"));
  file.rename("granitemoe").set("granitemoe.expert_shared_feed_forward_length", 1U << 21);
  EXPECT_TRUE(says(refusal(file), "granitemoe.expert_shared_feed_forward_length is 2097152"));
  file.rename("gptneox").set("gptneox.attention.layer_norm_epsilon", 1e-5F).remove("llama.use_parallel_residual");
  EXPECT_TRUE(says(refusal(file), "gptneox.use_parallel_residual is missing"));
  file.set("gptneox.use_parallel_residual", "yes");
  EXPECT_TRUE(says(refusal(file), "gptneox.use_parallel_residual is \"yes\"; it must be true or false"));
}

TEST(Config, Gemma2DefaultsToItsPublishedWindowAndSoftCaps) {
  EditedFile file("gemma2-dense.gguf");
  for (const char* key : {"attention.sliding_window", "attn_logit_softcapping", "final_logit_softcapping"}) {
    file.remove(std::string("gemma2.") + key);
  }
  const Config config = config_of(file);
  EXPECT_EQ(config.window, 4096U);
  EXPECT_EQ(windows(config), "wf");
  EXPECT_EQ(config.attention_softcap, 50);
  EXPECT_EQ(config.final_softcap, 30);
}

TEST(Config, TheLargeGemmasScaleByModelWidth) {
  EditedFile file("gemma2-dense.gguf");
  file.set("gemma2.block_count", 46U).set("gemma2.attention.key_length", 64U);
  EXPECT_DOUBLE_EQ(config_of(file).attention_scale, 0.25);  // 1 / sqrt(64 / 4)
  file.set("gemma2.block_count", 42U);
  EXPECT_DOUBLE_EQ(config_of(file).attention_scale, 0.125);
}

TEST(Config, AcceptsAPaddedVocabularyButNotALargerOne) {
  EditedFile file("llama-dense.gguf");
  file.set("llama.vocab_size", 120U);
  EXPECT_EQ(config_of(file).n_vocab, 128U);
  file.set_array("tokenizer.ggml.tokens", std::vector<uint32_t>(129));
  EXPECT_TRUE(says(refusal(file), "tokenizer.ggml.tokens is an array of 129; token_embd.weight has 128 rows"));
}

}  // namespace
}  // namespace lamina

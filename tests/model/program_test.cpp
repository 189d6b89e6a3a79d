// Golden programs: the text of every architecture's program, compared with tests/golden/NAME.program. In: fixtures, and
// mixtures of experts made from them. LAMINA_UPDATE_GOLDEN=1 rewrites the texts; read the difference before committing
// it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "gguf/error.h"
#include "model/builder.h"
#include "tests/model/edited_file.h"

namespace lamina {
namespace {

Program program_of(const gguf::File& file) {
  const Config config = read_config(file);
  return build_program(file, config, {.n_ctx = default_n_ctx(config)});
}

void expect_golden(const std::string& name, const gguf::File& file) {
  const std::string text = to_text(program_of(file));
  const std::string path = std::string(LAMINA_SOURCE_DIR) + "/tests/golden/" + name + ".program";
  if (std::getenv("LAMINA_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << text;
  std::stringstream golden;
  golden << std::ifstream(path).rdbuf();
  EXPECT_EQ(text, golden.str()) << path;
}

/// Puts four experts in place of each feed-forward of a dense fixture.
EditedFile& add_experts(EditedFile& file, const std::string& architecture) {
  file.rename(architecture).remove_tensors("ffn_gate.").remove_tensors("ffn_up.").remove_tensors("ffn_down.");
  file.set(architecture + ".expert_count", 4U).set(architecture + ".expert_used_count", 2U);
  for (const std::string layer : {"blk.0.", "blk.1."}) {
    file.tensor(layer + "ffn_gate_inp.weight", {64, 4}).tensor(layer + "ffn_gate_exps.weight", {64, 96, 4});
    file.tensor(layer + "ffn_up_exps.weight", {64, 96, 4}).tensor(layer + "ffn_down_exps.weight", {96, 64, 4});
  }
  return file;
}

/// Puts a shared expert beside them.
EditedFile& add_shared_expert(EditedFile& file, const std::string& architecture) {
  file.set(architecture + ".expert_shared_feed_forward_length", 48U);
  for (const std::string layer : {"blk.0.", "blk.1."}) {
    file.tensor(layer + "ffn_gate_shexp.weight", {64, 48}).tensor(layer + "ffn_up_shexp.weight", {64, 48});
    file.tensor(layer + "ffn_down_shexp.weight", {48, 64});
  }
  return file;
}

class GoldenProgram : public testing::TestWithParam<const char*> {};

TEST_P(GoldenProgram, IsUnchanged) {
  expect_golden(GetParam(), gguf::File::open(fixture(std::string(GetParam()) + "-dense.gguf")));
}

INSTANTIATE_TEST_SUITE_P(Dense, GoldenProgram,
                         testing::Values("llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "gpt2"),
                         [](const auto& test) { return std::string(test.param); });

TEST(GoldenMixture, LlamaIsUnchanged) {
  EditedFile file("llama-dense.gguf");
  expect_golden("llama-moe", add_experts(file, "llama").open());
}

TEST(GoldenMixture, Qwen3IsUnchanged) {
  EditedFile file("qwen3-dense.gguf");
  expect_golden("qwen3moe", add_experts(file, "qwen3moe").open());
}

TEST(GoldenMixture, GraniteMoeIsUnchanged) {
  EditedFile file("llama-dense.gguf");
  add_shared_expert(add_experts(file, "granitemoe"), "granitemoe").set("granitemoe.residual_scale", 0.25F);
  expect_golden("granitemoe", file.open());
}

/// A model of another architecture, made from a fixture that has most of its tensors.
struct Derived {
  const char* architecture;
  const char* fixture;
  std::vector<const char*> removed;                                  ///< parts of tensor names
  std::vector<std::pair<const char*, std::vector<uint64_t>>> added;  ///< to each layer
  std::vector<std::pair<const char*, float>> keys;
};

const Derived kDerived[] = {
    {"mistral3", "llama", {}, {}, {{"attention.temperature_scale", 0.5F}}},
    {"smollm3", "llama", {}, {}, {}},
    {"gemma", "gemma2", {"post_attention_norm", "post_ffw_norm"}, {}, {}},
    {"glm4", "gemma2", {"ffn_gate"}, {{"ffn_up.weight", {64, 192}}}, {}},
    {"olmo2", "gemma3", {"attn_norm", "ffn_norm"}, {{"attn_q_norm.weight", {64}}, {"attn_k_norm.weight", {32}}}, {}},
    {"exaone4", "gemma3", {"attn_norm", "ffn_norm"}, {}, {}},
    {"granite",
     "llama",
     {},
     {},
     {{"embedding_scale", 3}, {"residual_scale", 0.25F}, {"attention.scale", 0.125F}, {"logit_scale", 4}}},
    {"minicpm", "llama", {}, {}, {}},
    {"command-r",
     "llama",
     {"ffn_norm"},
     {{"attn_q_norm.weight", {16, 4}}, {"attn_k_norm.weight", {16, 2}}},
     {{"attention.layer_norm_epsilon", 1e-5F}, {"logit_scale", 0.25F}}},
    {"cohere2",
     "gemma3",
     {"ffn_norm", "attn_q_norm", "attn_k_norm", "post_attention_norm", "post_ffw_norm"},
     {},
     {{"attention.layer_norm_epsilon", 1e-5F}, {"logit_scale", 0.25F}}},
    {"stablelm", "llama", {"ffn_norm"}, {{"attn_norm.bias", {64}}}, {{"attention.layer_norm_epsilon", 1e-5F}}},
    {"phi2", "gpt2", {"ffn_norm", "position_embd"}, {}, {}},
    {"gptneox", "gpt2", {"position_embd"}, {}, {}},
    {"starcoder2", "gpt2", {"position_embd"}, {}, {}},
    {"nemotron", "gpt2", {"position_embd"}, {}, {}},
};

gguf::File derive(const Derived& derived) {
  EditedFile file(std::string(derived.fixture) + "-dense.gguf");
  file.rename(derived.architecture);
  for (const char* part : derived.removed) file.remove_tensors(part);
  for (const auto& [name, shape] : derived.added) {
    file.tensor(std::string("blk.0.") + name, shape).tensor(std::string("blk.1.") + name, shape);
  }
  for (const auto& [key, value] : derived.keys) file.set(fmt::format("{}.{}", derived.architecture, key), value);
  return file.open();
}

class DerivedProgram : public testing::TestWithParam<Derived> {};

TEST_P(DerivedProgram, IsUnchanged) { expect_golden(GetParam().architecture, derive(GetParam())); }

INSTANTIATE_TEST_SUITE_P(Dense, DerivedProgram, testing::ValuesIn(kDerived), [](const auto& test) {
  std::string name = test.param.architecture;
  std::erase(name, '-');
  return name;
});

TEST(GoldenPrograms, CoverEveryArchitecture) {
  for (const Architecture& row : architectures()) {
    EXPECT_TRUE(std::ifstream(fmt::format("{}/tests/golden/{}.program", LAMINA_SOURCE_DIR, row.name))) << row.name;
  }
}

/// The program's text, one string an op.
std::vector<std::string> lines_of(const EditedFile& file) {
  std::stringstream text(to_text(program_of(file.open())));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

testing::AssertionResult has_line(const std::vector<std::string>& lines, const std::string& part) {
  for (const std::string& line : lines) {
    if (line.find(part) != std::string::npos) return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << "no line holds: " << part << "\n" << testing::PrintToString(lines);
}

TEST(Builder, SplitsFusedExpertsInHalf) {
  EditedFile file("qwen3-dense.gguf");
  add_experts(file, "qwen3moe").remove_tensors("ffn_gate_exps").remove_tensors("ffn_up_exps");
  for (const std::string layer : {"blk.0.", "blk.1."}) file.tensor(layer + "ffn_gate_up_exps.weight", {64, 192, 4});
  EXPECT_TRUE(has_line(lines_of(file),
                       "expert_gate = blk.0.ffn_gate_up_exps.weight F32 [64, 96, 4 experts] from row 0; "
                       "expert_up = blk.0.ffn_gate_up_exps.weight F32 [64, 96, 4 experts] from row 96"));
}

TEST(Builder, SplitsFusedQkvOfAnyArchitecture) {
  EditedFile file("llama-dense.gguf");
  file.remove_tensors("blk.0.attn_q").remove_tensors("blk.0.attn_k").remove_tensors("blk.0.attn_v");
  file.tensor("blk.0.attn_qkv.weight", {64, 128}).tensor("blk.0.attn_qkv.bias", {128});
  EXPECT_TRUE(
      has_line(lines_of(file), "k = blk.0.attn_qkv.weight F32 [64, 32] from row 64 + blk.0.attn_qkv.bias[64..]"));
}

TEST(Builder, ReadsTheSameXForAttentionAndFeedForwardWhereTheyAreParallel) {
  EditedFile file("gpt2-dense.gguf");
  file.rename("gptneox");
  for (const bool parallel : {true, false}) {
    file.set("gptneox.use_parallel_residual", parallel);
    const std::vector<std::string> lines = lines_of(file);
    const auto at = [&](const std::string& part) {
      return std::ranges::find_if(lines, [&](const auto& l) { return l.find(part) != std::string::npos; });
    };
    EXPECT_EQ(at("up = blk.0.ffn_up") < at("x = blk.0.attn_output"), parallel);
  }
}

TEST(Builder, SharesTheNormOfAttentionWithAFeedForwardThatHasNone) {
  EditedFile file("llama-dense.gguf");
  file.rename("stablelm").set("stablelm.attention.layer_norm_epsilon", 1e-5F).remove_tensors("blk.1.ffn_norm");
  const std::vector<std::string> lines = lines_of(file);
  EXPECT_TRUE(has_line(lines, "layer(x, 1e-05) * blk.0.ffn_norm.weight: gate = blk.0.ffn_gate"));
  EXPECT_TRUE(has_line(lines, "+ blk.1.attn_v.bias; gate = blk.1.ffn_gate"));
}

TEST(Builder, NormalisesHeadsOfOptionalNormsOnlyWhereTheFileHasThem) {
  EditedFile file("llama-dense.gguf");
  file.rename("stablelm").set("stablelm.attention.layer_norm_epsilon", 1e-5F);
  file.tensor("blk.1.attn_q_norm.weight", {16, 4}).tensor("blk.1.attn_k_norm.weight", {16});
  const std::vector<std::string> lines = lines_of(file);
  EXPECT_TRUE(has_line(lines, "append  layer 0, 4 heads, rope 0"));
  EXPECT_TRUE(has_line(lines, "append  layer 1, 4 heads, q = layer(q, 1e-05) * blk.1.attn_q_norm.weight, k = layer"));
}

TEST(Builder, TiesTheHeadOnlyWhenOutputIsAbsent) {
  EditedFile file("llama-dense.gguf");
  EXPECT_TRUE(has_line(lines_of(file), "logits = output.weight"));
  file.remove_tensors("output.weight");
  EXPECT_TRUE(has_line(lines_of(file), "logits = token_embd.weight"));
}

TEST(Builder, MultipliesByScaleTensors) {
  EditedFile file("qwen2-dense.gguf");
  file.tensor("blk.1.ffn_down.scale", {1});
  EXPECT_TRUE(has_line(lines_of(file), "x = blk.1.ffn_down.weight F16 [96, 64] * blk.1.ffn_down.scale + x"));
}

TEST(Builder, TakesHeadSizesFromKeyAndValueLength) {
  EditedFile file("qwen3-dense.gguf");
  file.set("qwen3.attention.key_length", 32U).set("qwen3.attention.value_length", 8U).remove_tensors("attn_");
  for (const std::string layer : {"blk.0.", "blk.1."}) {
    file.tensor(layer + "attn_norm.weight", {64}).tensor(layer + "attn_q.weight", {64, 128});
    file.tensor(layer + "attn_k.weight", {64, 32}).tensor(layer + "attn_v.weight", {64, 8});
    file.tensor(layer + "attn_q_norm.weight", {32}).tensor(layer + "attn_k_norm.weight", {32});
    file.tensor(layer + "attn_output.weight", {32, 64});
  }
  EXPECT_TRUE(has_line(lines_of(file), "kv layers 0-1: 1 heads, key 32, value 8"));
}

TEST(Builder, IgnoresTensorsItDoesNotKnow) {
  EditedFile file("llama-dense.gguf");
  const std::vector<std::string> before = lines_of(file);
  file.tensor("v.patch_embd.weight", {4, 4}).tensor("blk.7.attn_q.weight", {64, 64});
  EXPECT_EQ(lines_of(file), before);
}

/// The message with which a model is refused.
std::string refusal(const EditedFile& edited) {
  const gguf::File file = edited.open();
  try {
    program_of(file);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kModel);
    return error.what();
  }
  return "accepted";
}

TEST(Builder, NamesATensorThatIsMissing) {
  for (const char* name : {"token_embd.weight", "output_norm.weight", "blk.1.attn_norm.weight", "blk.1.attn_v.weight",
                           "blk.0.attn_output.weight", "blk.0.ffn_norm.weight", "blk.1.ffn_gate.weight",
                           "blk.1.ffn_up.weight", "blk.0.ffn_down.weight"}) {
    EditedFile file("llama-dense.gguf");
    file.remove_tensors(name);
    EXPECT_NE(refusal(file).find(std::string("tensor ") + name + " is missing"), std::string::npos) << refusal(file);
  }
}

TEST(Builder, NamesATensorOfAnotherShape) {
  const std::map<std::string, std::vector<uint64_t>> wrong = {
      {"blk.0.attn_q.weight", {64, 65}},    {"blk.1.ffn_down.weight", {95, 64}},
      {"blk.0.attn_k.bias", {31}},          {"output_norm.weight", {63}},
      {"blk.0.ffn_up.weight", {64, 96, 2}}, {"output.weight", {64, 127}},
      {"blk.0.attn_norm.weight", {64, 2}},  {"rope_freqs.weight", {7}}};
  for (const auto& [name, shape] : wrong) {
    EditedFile file("llama-dense.gguf");
    file.tensor(name, shape);
    EXPECT_NE(refusal(file).find("tensor " + name + " "), std::string::npos) << refusal(file);
  }
}

TEST(Builder, NamesNormsOfHeadsThatFitNeitherOneHeadNorAll) {
  for (const std::vector<uint64_t>& shape : {std::vector<uint64_t>{64}, {16, 3}, {17}}) {
    EditedFile file("qwen3-dense.gguf");
    file.tensor("blk.0.attn_q_norm.weight", shape);
    EXPECT_NE(refusal(file).find("tensor blk.0.attn_q_norm.weight holds "), std::string::npos) << refusal(file);
  }
  EditedFile file("qwen3-dense.gguf");
  file.rename("olmo2").remove_tensors("blk.0.attn_q_norm");
  EXPECT_NE(refusal(file).find("tensor blk.0.attn_q_norm.weight is missing"), std::string::npos) << refusal(file);
}

TEST(Builder, RefusesExpertsInTensorsOfTheirOwn) {
  EditedFile file("llama-dense.gguf");
  add_experts(file, "llama").remove_tensors("blk.0.ffn_up_exps").tensor("blk.0.ffn_up.0.weight", {64, 96});
  EXPECT_NE(refusal(file).find("tensor blk.0.ffn_up.0.weight holds one expert"), std::string::npos) << refusal(file);
}

TEST(Builder, RefusesAContextLongerThanLearnedPositions) {
  const gguf::File file = gguf::File::open(fixture("gpt2-dense.gguf"));
  const Config config = read_config(file);
  EXPECT_NO_THROW(build_program(file, config, {.n_ctx = 256}));
  try {
    build_program(file, config, {.n_ctx = 257});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "a context of 257 tokens exceeds the 256 rows of tensor position_embd.weight");
  }
}

}  // namespace
}  // namespace lamina

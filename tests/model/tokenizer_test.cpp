// Tokenizers on small vocabularies: ids, special tokens, the way back, long texts, files that must be refused.
// In: vocabularies built here. Out: test results.
#include "model/tokenizer.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/model/vocabulary_builder.h"

namespace lamina {
namespace {

using Strings = std::vector<std::string>;

/// Any text: ASCII, accents, CJK, emoji, blanks and NUL.
rc::Gen<std::string> any_text() {
  const auto character = rc::gen::element<std::string>(
      "a", "h", "e", "l", "o", "w", " ", " ", "\n", "1", "'", "s", "<", "|", ">", "é", "ß", "中", "▂", "\u00A0",
      "\u3000", "🦙", "\u200D", "e\u0301", std::string(1, '\0'), "\r\n", "\t", "/s", "hello");
  return rc::gen::map(rc::gen::container<std::vector<std::string>>(character), [](const Strings& parts) {
    std::string text;
    for (const std::string& part : parts) text += part;
    return text;
  });
}

Strings split(const Tokenizer& tokenizer, std::string_view text, EncodeOptions options = {}) {
  return pieces(tokenizer, tokenizer.encode(text, options));
}

TEST(BpeTokenizer, MergesByRankInsideWords) {
  const auto tokenizer = bpe_vocabulary().create();
  EXPECT_EQ(split(*tokenizer, "hello world"), (Strings{"hello", " w", "o", "r", "l", "d"}));
  EXPECT_EQ(split(*tokenizer, "aaaaaaa"), (Strings{"aaaa", "aa", "a"}));
  EXPECT_EQ(split(*tokenizer, "é1111"), (Strings{"é", "11", "11"}));
  EXPECT_TRUE(tokenizer->encode("", {}).empty());
}

TEST(BpeTokenizer, WholeWordsWinWhereMergesAreIgnored) {
  VocabularyBuilder builder = bpe_vocabulary("llama-bpe");
  builder.add("zebra");
  EXPECT_EQ(split(*builder.create(), "zebra"), (Strings{"zebra"}));
  builder.pre = "smaug-bpe";
  EXPECT_EQ(split(*builder.create(), "zebra").size(), 5u);
}

TEST(BpeTokenizer, TextOfNoTokenBecomesItsBytes) {
  VocabularyBuilder builder = bpe_vocabulary();
  builder.merges.push_back("x y");  // "xy" is no token
  builder.merges.push_back("xy z");
  EXPECT_EQ(split(*builder.create(), "axyz"), (Strings{"a", "x", "y", "z"}));
}

TEST(BpeTokenizer, EachByteOfInvalidUtf8IsKept) {
  const auto tokenizer = bpe_vocabulary().create();
  const std::string text("hello\xFF\xC3\xED\xA0\x80\x00 w\xC3", 14);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, {}), false), text);
}

TEST(BpeTokenizer, UnknownPretokenizerUsesTheNearest) {
  EXPECT_EQ(split(*bpe_vocabulary("smollm99").create(), "1111"), (Strings{"1", "1", "1", "1"}));
  EXPECT_EQ(split(*bpe_vocabulary("").create(), "hello").size(), 1u);
}

RC_GTEST_PROP(BpeTokenizer, DecodingIsTheInverse, ()) {
  static const auto tokenizer = [] {
    VocabularyBuilder builder = bpe_vocabulary("llama-bpe");
    builder.add("<|x|>", kControl);
    builder.add("lo w", kUserDefined);
    return builder.create();
  }();
  const std::string text = *any_text();
  RC_ASSERT(tokenizer->decode(tokenizer->encode(text, {}), false) == text);
}

TEST(SpmTokenizer, MergesByScore) {
  const auto tokenizer = spm_vocabulary().create();
  EXPECT_EQ(split(*tokenizer, "hello hello"), (Strings{" hello", " hello"}));
  EXPECT_EQ(split(*tokenizer, "helo"), (Strings{" hel", "o"}));  // "el" goes before "lo"
  EXPECT_EQ(split(*tokenizer, "é"), (Strings{" ", "\xC3", "\xA9"}));
  EXPECT_TRUE(tokenizer->encode("", {}).empty());
}

TEST(SpmTokenizer, TokensMayCrossASpace) {
  VocabularyBuilder builder = spm_vocabulary();
  builder.add("o▁h", kNormal, 1);
  EXPECT_EQ(split(*builder.create(), "hello hello"), (Strings{" hel", "l", "o h", "el", "lo"}));
}

TEST(SpmTokenizer, SpacePrefixFollowsTheFile) {
  EXPECT_EQ(split(*spm_vocabulary().flag("add_space_prefix", false).create(), "hello"), (Strings{"h", "el", "lo"}));
  VocabularyBuilder builder = spm_vocabulary();
  builder.add("<sep>", kUserDefined);
  EXPECT_EQ(split(*builder.create(), "h<sep>h"), (Strings{" h", "<sep>", " h"}));
}

RC_GTEST_PROP(SpmTokenizer, DecodingIsTheInverse, ()) {
  static const auto tokenizer = [] {
    VocabularyBuilder builder = spm_vocabulary();
    builder.add("lo h", kUserDefined);
    return builder.create();
  }();
  const std::string text = *any_text();
  RC_ASSERT(tokenizer->decode(tokenizer->encode(text, {}), false) == text);
}

TEST(Tokenizer, ControlTokensInATextStayText) {
  VocabularyBuilder builder = bpe_vocabulary();
  const int32_t start = builder.add("<|start|>", kControl);
  const int32_t end = builder.add("</s>", kNormal);  // its text alone makes it a control token
  const int32_t tool = builder.add("<tool>", kUserDefined);
  const int32_t tools = builder.add("<tool>s", kUserDefined);
  const auto tokenizer = builder.create();
  for (const int32_t id : tokenizer->encode("<|start|>a</s>", {})) EXPECT_LT(id, 256);
  EXPECT_EQ(tokenizer->encode("<|start|>a</s>", {.parse_special = true}), (std::vector<int32_t>{start, 'a', end}));
  EXPECT_EQ(tokenizer->encode("<tool><tool>s", {}), (std::vector<int32_t>{tool, tools}));
  EXPECT_EQ(tokenizer->decode({start, 'a', tool}, false), "a<tool>");
  EXPECT_EQ(tokenizer->decode({start, 'a', tool}, true), "<|start|>a<tool>");
  EXPECT_TRUE(tokenizer->is_end(end));
  EXPECT_FALSE(tokenizer->is_end(start));
  EXPECT_FALSE(tokenizer->is_end(1 << 30));
}

TEST(Tokenizer, SpecialTokensOfPhi3TakeTheSpaceBehindThem) {
  VocabularyBuilder builder = spm_vocabulary();
  const int32_t user = builder.add("<|user|>", kControl);
  EXPECT_EQ(split(*builder.create(), "<|user|> \nh", {.parse_special = true}).size(), 4u);
  builder.file.text("general.name", "Phi-3 mini");
  EXPECT_EQ(builder.create()->encode("<|user|> \nh", {.parse_special = true}).size(), 2u);
  EXPECT_EQ(builder.create()->encode("<|user|> \n", {.parse_special = true}), (std::vector<int32_t>{user}));
}

TEST(Tokenizer, BosAndEosFollowTheFile) {
  const auto spm = spm_vocabulary().create();
  EXPECT_EQ(spm->encode("", {.add_special = true}), (std::vector<int32_t>{1}));
  EXPECT_TRUE(spm->adds_bos());
  EXPECT_TRUE(spm->is_end(2));
  const auto both = spm_vocabulary().flag("add_bos_token", false).flag("add_eos_token", true).create();
  EXPECT_EQ(both->encode("", {.add_special = true}), (std::vector<int32_t>{2}));
  EXPECT_FALSE(bpe_vocabulary().create()->adds_bos());
  EXPECT_TRUE(bpe_vocabulary("llama-bpe").id("bos_token_id", 5).create()->adds_bos());
  EXPECT_EQ(bpe_vocabulary().id("bos_token_id", UINT32_MAX).create()->bos(), -1);
}

TEST(Tokenizer, MessageTokenOfGptOssEndsNothing) {
  VocabularyBuilder builder = bpe_vocabulary("gpt-4o");
  const int32_t end = builder.add("<|end|>", kControl);
  EXPECT_TRUE(builder.create()->is_end(end));
  builder.add("<|return|>", kControl);
  builder.add("<|call|>", kControl);
  EXPECT_FALSE(builder.create()->is_end(end));
}

TEST(Tokenizer, NoneHasIdsButNoText) {
  VocabularyBuilder builder;
  builder.model = "none";
  const auto tokenizer = builder.create();
  EXPECT_EQ(tokenizer->n_tokens(), 0);
  EXPECT_EQ(tokenizer->bos(), -1);
  EXPECT_THROW(tokenizer->encode("a", {}), Error);
}

TEST(Tokenizer, LongTextsOfOneCharacterEnd) {
  const auto bpe = bpe_vocabulary("deepseek-llm").create(), spm = spm_vocabulary().create();
  for (const char* unit : {"a", " ", "1", "\n", "\xFF", "a "}) {
    std::string text;
    while (text.size() < 1000000) text += unit;
    for (const Tokenizer* tokenizer : {bpe.get(), spm.get()}) {
      EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, {}), false), text) << unit;
    }
  }
}

struct Refusal {
  const char* name;
  void (*spoil)(VocabularyBuilder&);
  Strings parts;  // of the message
};

class BadVocabulary : public testing::TestWithParam<Refusal> {};

TEST_P(BadVocabulary, IsRefusedByName) {
  VocabularyBuilder builder = bpe_vocabulary();
  GetParam().spoil(builder);
  const std::string message = builder.refusal();
  for (const std::string& part : GetParam().parts) {
    EXPECT_NE(message.find(part), std::string::npos) << part << "\n in: " << message;
  }
}

using Builder = VocabularyBuilder;
INSTANTIATE_TEST_SUITE_P(
    Tokenizer, BadVocabulary,
    testing::Values(
        Refusal{"NoModel", [](Builder& b) { b.model = ""; }, {"tokenizer.ggml.model", "missing"}},
        Refusal{"UnknownModel", [](Builder& b) { b.model = "x\ny"; }, {"tokenizer.ggml.model", "x\\ny"}},
        Refusal{"NoTokens", [](Builder& b) { b.tokens.clear(), b.types.clear(); }, {"tokenizer.ggml.tokens"}},
        Refusal{"NoMerges", [](Builder& b) { b.merges.clear(); }, {"tokenizer.ggml.merges", "missing"}},
        Refusal{"MergeOfOne", [](Builder& b) { b.merges[1] = "ab"; }, {"tokenizer.ggml.merges[1]", "\"ab\""}},
        Refusal{"MergeWithNothing", [](Builder& b) { b.merges[2] = "ab "; }, {"tokenizer.ggml.merges[2]"}},
        Refusal{"TypesTooShort", [](Builder& b) { b.types.pop_back(); }, {"tokenizer.ggml.token_type", "266", "267"}},
        Refusal{"TypeTooLarge", [](Builder& b) { b.types[7] = 9; }, {"tokenizer.ggml.token_type[7]", "9"}},
        Refusal{"TypeNegative", [](Builder& b) { b.types[7] = -1; }, {"tokenizer.ggml.token_type[7]", "-1"}},
        Refusal{"BosTooLarge", [](Builder& b) { b.id("bos_token_id", 267); }, {"bos_token_id", "267"}},
        Refusal{"EosTooLarge", [](Builder& b) { b.id("eos_token_id", 5000); }, {"eos_token_id", "5000"}},
        Refusal{"EotNoNumber", [](Builder& b) { b.flag("eot_token_id", true); }, {"eot_token_id", "integer"}},
        Refusal{"FlagNoBool", [](Builder& b) { b.id("add_bos_token", 1); }, {"add_bos_token", "boolean"}},
        Refusal{"NoScores", [](Builder& b) { b.model = "llama", b.scores.clear(); }, {"tokenizer.ggml.scores"}},
        Refusal{"ScoreNan", [](Builder& b) { b.model = "llama", b.scores[3] = NAN; }, {"tokenizer.ggml.scores[3]"}}),
    [](const auto& tested) { return tested.param.name; });

TEST(Tokenizer, TinyVocabulariesHaveNoDefaultIds) {
  VocabularyBuilder builder;
  builder.model = "llama";
  builder.add("a");
  const auto tokenizer = builder.create();
  EXPECT_EQ(tokenizer->bos(), -1);
  EXPECT_EQ(tokenizer->eos(), -1);
  EXPECT_EQ(tokenizer->encode("a", {.add_special = true}).back(), 0);
}

}  // namespace
}  // namespace lamina

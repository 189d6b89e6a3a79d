// Pre-tokenizers: every row compiles and loses nothing; words as the published patterns cut them.
// In: short and long texts. Out: test results.
#include "model/pretokenizer.h"

#include <gtest/gtest.h>

#include <string>

namespace lamina {
namespace {

using Strings = std::vector<std::string>;

Strings words(std::string_view name, std::string_view text) {
  const PretokenizerRow& row = nearest_pretokenizer(name);
  EXPECT_EQ(row.name, name);
  const auto pieces = Pretokenizer(row.patterns).split(text);
  return {pieces.begin(), pieces.end()};
}

TEST(Pretokenizer, EveryRowKeepsEveryByte) {
  using std::string_literals::operator""s;
  const std::string text =
      "I'M 1234567, ſ'ſ \xFF\xC3 中文かな한국어 e\u0301\r\n\r\n  \t🦙\u200D🦙 \x00''<|x|> "s;
  for (const PretokenizerRow& row : pretokenizer_rows()) {
    std::string joined;
    for (const std::string_view piece : Pretokenizer(row.patterns).split(text)) {
      EXPECT_FALSE(piece.empty()) << row.name;
      joined += piece;
    }
    EXPECT_EQ(joined, text) << row.name;
  }
}

TEST(Pretokenizer, EveryRowSurvivesLongTexts) {
  for (const PretokenizerRow& row : pretokenizer_rows()) {
    const Pretokenizer pretokenizer(row.patterns);
    for (const char* unit : {"a", " ", "1", "A", "中", "\n", "\xFF", "a\u0301"}) {
      std::string text;
      while (text.size() < 100000) text += unit;
      size_t size = 0;
      for (const std::string_view piece : pretokenizer.split(text + "\nx")) size += piece.size();
      EXPECT_EQ(size, text.size() + 2) << row.name << " " << unit;
    }
  }
}

TEST(Pretokenizer, WordsOfEachGroup) {
  EXPECT_EQ(words("gpt-2", "I'll  go 1234\n\nx"), (Strings{"I", "'ll", " ", " go", " 1234", "\n", "\n", "x"}));
  EXPECT_EQ(words("llama-bpe", "I'LL  go 1234\n\nx"), (Strings{"I", "'LL", " ", " go", " ", "123", "4", "\n\n", "x"}));
  EXPECT_EQ(words("qwen2", "a 1234"), (Strings{"a", " ", "1", "2", "3", "4"}));
  EXPECT_EQ(words("qwen35", "ae\u0301b"), (Strings{"ae\u0301b"}));
  EXPECT_EQ(words("qwen2", "ae\u0301b"), (Strings{"ae", "\u0301b"}));
  EXPECT_EQ(words("starcoder", "a 12b"), (Strings{"a", " ", "1", "2", "b"}));
  EXPECT_EQ(words("falcon", "a `$b 12345"), (Strings{"a", " ", "`$", "b", " ", "123", "45"}));
  EXPECT_EQ(words("default", "x, 12345"), (Strings{"x", ",", " ", "123", "45"}));
  EXPECT_EQ(words("deepseek-llm", "hi 12 中文  "), (Strings{"hi", " ", "1", "2", " ", "中文", "  "}));
  EXPECT_EQ(words("deepseek-coder", "hi, yo\n"), (Strings{"hi", ",", " yo", "\n"}));
  EXPECT_EQ(words("deepseek-v3", "f(x) 12345中文a"), (Strings{"f", "(x", ")", " ", "123", "45", "中文", "a"}));
  EXPECT_EQ(words("tekken", "camelCase 12"), (Strings{"camel", "Case", " ", "1", "2"}));
  EXPECT_EQ(words("gpt-4o", "camelCase's 1234"), (Strings{"camel", "Case's", " ", "123", "4"}));
  EXPECT_EQ(words("kimi-k2", "ab中文。Cd"), (Strings{"ab", "中文", "。Cd"}));
  EXPECT_EQ(words("bloom", "hi, you"), (Strings{"hi", ",", " you"}));
  EXPECT_EQ(words("viking", "a12"), (Strings{"a", "1", "2"}));
}

TEST(Pretokenizer, BytesThatAreNotUtf8AreTheirOwnPieces) {
  EXPECT_EQ(words("gpt-2", "ab\xFF\xFE\x63\xC3"), (Strings{"ab", "\xFF\xFE", "c", "\xC3"}));
}

TEST(Pretokenizer, NearestNameIsTheOneThatBeginsAlike) {
  EXPECT_EQ(nearest_pretokenizer("").name, "default");
  EXPECT_EQ(nearest_pretokenizer("qwen36").name, "qwen35");
  EXPECT_EQ(nearest_pretokenizer("zz").name, pretokenizer_rows()[1].name);
}

}  // namespace
}  // namespace lamina

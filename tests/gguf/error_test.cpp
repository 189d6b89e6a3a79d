// How strings from files are printed.
// In: strings with everything a terminal acts on. Out: harmless text.
#include "gguf/error.h"

#include <gtest/gtest.h>

namespace lamina {
namespace {

TEST(Printable, EscapesWhatATerminalActsOn) {
  EXPECT_EQ(printable("plain \xC3\xA9 text"), "plain \xC3\xA9 text");
  EXPECT_EQ(printable("a\nb\tc\rd"), "a\\nb\\tc\\rd");
  EXPECT_EQ(printable(std::string_view("\0\x1b\x7f", 3)), "\\x00\\x1b\\x7f");
  EXPECT_EQ(printable("\"'\\"), "\\\"\\'\\\\");
  EXPECT_EQ(printable("\xC2\x9B\xE2\x80\xAE\xEF\xBB\xBF"), "\\u009b\\u202e\\ufeff");
}

TEST(Printable, EscapesInvalidUtf8) {
  EXPECT_EQ(printable("\xFF"), "\\xff");
  EXPECT_EQ(printable("a\xC3"), "a\\xc3");
  EXPECT_EQ(printable("\xC0\x80"), "\\xc0\\x80");
  EXPECT_EQ(printable("\xED\xA0\x80"), "\\xed\\xa0\\x80");
  EXPECT_EQ(printable("\xF4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
}

TEST(Printable, CutsBetweenCharacters) {
  EXPECT_EQ(printable("abcdef", 6), "abcdef");
  EXPECT_EQ(printable("abcdefg", 6), "abc...");
  EXPECT_EQ(printable("ab\xC3\xA9"
                      "def",
                      6),
            "ab...");
  EXPECT_EQ(printable("\x1b\x1b\x1b", 8), "\\x1b...");
  EXPECT_EQ(printable("abc", 2), "..");
  EXPECT_EQ(printable(std::string(1000, 'x')).size(), 80u);
}

}  // namespace
}  // namespace lamina

// Text is never cut inside a character, however its bytes arrive.
#include "engine/utf8_stream.h"

#include <gtest/gtest.h>

#include <string>

namespace lamina {
namespace {

const std::string kBad = "\xEF\xBF\xBD";

/// `bytes` in pieces of `size`, with what is held back at the end.
std::string through(std::string_view bytes, size_t size) {
  Utf8Stream stream;
  std::string text;
  for (size_t pos = 0; pos < bytes.size(); pos += size) text += stream.push(bytes.substr(pos, size));
  return text + stream.finish();
}

TEST(Utf8Stream, HoldsBackAnIncompleteCharacter) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("a\xE2"), "a");
  EXPECT_EQ(stream.push("\x82"), "");
  EXPECT_EQ(stream.push("\xAC"
                        "b\xF0\x9F"),
            "€b");
  EXPECT_EQ(stream.push("\x98\x80"), "😀");
  EXPECT_EQ(stream.finish(), "");
}

TEST(Utf8Stream, ReplacesWhatIsHeldBackAtTheEnd) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("a\xF0\x9F\x98"), "a");
  EXPECT_EQ(stream.finish(), kBad);
  EXPECT_EQ(stream.finish(), "");
}

TEST(Utf8Stream, ReplacesInvalidBytes) {
  const struct {
    std::string bytes, text;
  } cases[] = {
      {"a\xFF"
       "b",
       "a" + kBad + "b"},
      {"\x80\x80", kBad + kBad},                        // no start
      {"\xC0\xAF", kBad + kBad},                        // overlong
      {"\xE0\x9F\x80", kBad + kBad + kBad},             // overlong
      {"\xED\xA0\x80", kBad + kBad + kBad},             // a surrogate
      {"\xF4\x90\x80\x80", kBad + kBad + kBad + kBad},  // beyond U+10FFFF
      {"\xE2\x82"
       "b",
       kBad + "b"},  // cut by something else: one mark for the whole prefix
      {"\xE2\xE2\x82\xAC", kBad + "€"},
      {std::string("a\0b", 3), std::string("a\0b", 3)},
  };
  for (const auto& row : cases) {
    for (const size_t size : {1, 2, 3, 100}) EXPECT_EQ(through(row.bytes, size), row.text) << "pieces of " << size;
  }
}

TEST(Utf8Stream, KeepsValidTextInPiecesOfAnySize) {
  const std::string text = "Rome, Köln, Łódź, 東京, 😀 and \xF4\x8F\xBF\xBF.";
  for (size_t size = 1; size <= text.size(); ++size) EXPECT_EQ(through(text, size), text);
}

}  // namespace
}  // namespace lamina

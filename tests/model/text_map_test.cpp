// The map between texts and numbers.
// In: texts. Out: test results.
#include "model/text_map.h"

#include <gtest/gtest.h>

namespace lamina {
namespace {

TEST(TextMap, FindsWhatWasAdded) {
  TextMap map;
  EXPECT_EQ(map.find(""), -1);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(map.add(std::string(i % 40, 'x') + std::to_string(i)), i);
  EXPECT_EQ(map.size(), 1000);
  for (int i = 0; i < 1000; ++i) {
    const std::string text = std::string(i % 40, 'x') + std::to_string(i);
    EXPECT_EQ(map.find(text), i);
    EXPECT_EQ(map.text(i), text);
  }
  EXPECT_EQ(map.find("x"), -1);
}

TEST(TextMap, TheLastOfEqualTextsIsFound) {
  TextMap map;
  map.reserve(3, 9);
  for (const char* text : {"a", "", "a"}) map.add(text);
  EXPECT_EQ(map.find("a"), 2);
  EXPECT_EQ(map.find(""), 1);
  EXPECT_EQ(map.text(0), "a");
}

TEST(TextMap, NulAndLengthTellTextsApart) {
  TextMap map;
  map.add("a");
  EXPECT_EQ(map.find(std::string_view("a\0", 2)), -1);
  map.add(std::string_view("a\0", 2));
  EXPECT_EQ(map.find(std::string_view("a\0", 2)), 1);
  EXPECT_EQ(map.find("a"), 0);
}

}  // namespace
}  // namespace lamina

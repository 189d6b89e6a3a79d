// The merge loop: both forms give what the plain definition gives.
// In: random words over few symbols. Out: test results.
#include "model/merge.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace lamina {
namespace {

std::vector<int32_t> ids(const std::vector<Symbol>& symbols) {
  std::vector<int32_t> result;
  for (const Symbol& symbol : symbols) result.push_back(symbol.id);
  return result;
}

// As in a real vocabulary, a symbol's id follows from its text alone: two ways to the same text must not differ.
Merge<uint32_t> text_rule(const std::vector<uint8_t>& text, const Symbol& left, const Symbol& right) {
  uint32_t hash = 17;
  for (uint32_t i = left.begin; i < right.begin + right.size; ++i) hash = hash * 31 + text[i] + 1;
  if (hash % 3 == 0 || left.size + right.size > 9) return {};
  return {hash % 5, static_cast<int32_t>(hash % 1000)};
}

RC_GTEST_PROP(Merge, HeapAndScanAgree, (std::vector<uint8_t> text)) {
  for (uint8_t& byte : text) byte %= 3;
  if (text.size() > 40) text.resize(40);
  std::vector<Symbol> scanned, heaped;
  for (uint32_t i = 0; i < text.size(); ++i) scanned.push_back({i, 1, text[i]});
  heaped = scanned;
  const auto find = [&](const Symbol& left, const Symbol& right) { return text_rule(text, left, right); };
  merge_by_scanning<48>(scanned, find);
  merge_by_heap(heaped, find);
  RC_ASSERT(ids(scanned) == ids(heaped));
}

TEST(Merge, NothingAndOneStayAsTheyAre) {
  std::vector<Symbol> none, one{{0, 1, 5}};
  const auto find = [](const Symbol&, const Symbol&) { return Merge<uint32_t>{0, 1}; };
  merge_symbols(none, find);
  merge_symbols(one, find);
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(ids(one), std::vector<int32_t>{5});
}

}  // namespace
}  // namespace lamina

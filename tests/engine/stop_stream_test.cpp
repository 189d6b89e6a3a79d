// Text ends before the stop text that begins first, however it is cut into pieces, and nothing of that text gets out.
#include "engine/stop_stream.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace lamina {
namespace {

using Words = std::vector<std::string>;

TEST(StopStream, HoldsBackWhatMayBecomeAStopText) {
  StopStream stream({"END", "\n\n"});
  EXPECT_EQ(stream.push("aE"), "a");
  EXPECT_EQ(stream.push("N"), "");
  EXPECT_EQ(stream.push("E"), "EN");
  EXPECT_EQ(stream.push("x\n"), "Ex");
  EXPECT_FALSE(stream.stopped());
  EXPECT_EQ(stream.push("\nrest"), "");
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(stream.push("more"), "");
  EXPECT_EQ(stream.finish(), "");
}

TEST(StopStream, GivesWhatWasHeldBackAtTheEnd) {
  StopStream stream({"END"});
  EXPECT_EQ(stream.push("xEN"), "x");
  EXPECT_EQ(stream.finish(), "EN");
  EXPECT_FALSE(stream.stopped());
}

TEST(StopStream, WaitsForALongerTextThatBeganEarlier) {
  const Words stop = {"bc", "abcd"};
  StopStream longer(stop), shorter(stop), undecided(stop);
  EXPECT_EQ(longer.push("xabc"), "x");
  EXPECT_EQ(longer.push("d"), "");
  EXPECT_TRUE(longer.stopped());
  EXPECT_EQ(shorter.push("xabc"), "x");
  EXPECT_EQ(shorter.push("e"), "a");
  EXPECT_TRUE(shorter.stopped());
  EXPECT_EQ(undecided.push("xabc"), "x");
  EXPECT_FALSE(undecided.stopped());
  EXPECT_EQ(undecided.finish(), "a");
  EXPECT_TRUE(undecided.stopped());
}

RC_GTEST_PROP(StopStream, CutsExactlyForAnyPieces, ()) {
  // Two letters, so that stop texts overlap each other and themselves.
  const auto words = [](size_t least, size_t most) {
    return rc::gen::mapcat(rc::gen::inRange(least, most + 1),
                           [](size_t n) { return rc::gen::container<std::string>(n, rc::gen::element('a', 'b')); });
  };
  const Words pieces = *rc::gen::container<Words>(words(0, 6));
  const Words stop = *rc::gen::mapcat(rc::gen::inRange<size_t>(0, 4),
                                      [&](size_t n) { return rc::gen::container<Words>(n, words(1, 6)); });
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  size_t end = std::string::npos, longest = 1;
  for (const std::string& word : stop) {
    end = std::min(end, text.find(word));
    longest = std::max(longest, word.size());
  }
  const std::string want = text.substr(0, end);

  StopStream stream(stop);
  std::string got;
  size_t n_pushed = 0;
  for (const std::string& piece : pieces) {
    got += stream.push(piece);
    n_pushed += piece.size();
    RC_ASSERT(want.starts_with(got));
    // No more is held back than a stop text without its last letter.
    RC_ASSERT(stream.stopped() || got.size() + longest > n_pushed);
  }
  got += stream.finish();
  RC_ASSERT(got == want);
  RC_ASSERT(stream.stopped() == (end != std::string::npos));
}

}  // namespace
}  // namespace lamina

// Signals while a model loads, by running the binary on a terminal, where it shows how far it is. In: a model that
// takes a while. Out: the exit code, and that the loading went no further.
#include <gtest/gtest.h>

#include <csignal>

#include "tests/text_model.h"
#include "tests/tools/pseudo_terminal.h"

namespace lamina {
namespace {

class Loading : public testing::TestWithParam<int> {
 protected:
  /// Runs `words`, sends the signal when loading has begun, and expects its exit code well before the last weights;
  /// what was on the screen.
  std::string interrupted(std::vector<std::string> words) {
    words.insert(words.begin(), LAMINA_BINARY);
    words.insert(words.begin() + 2, model_);
    words.insert(words.end(), {"-b", "1", "-t", "1"});
    PseudoTerminal terminal(words);
    EXPECT_TRUE(terminal.sees("loading ")) << terminal.screen();
    terminal.send(GetParam());
    EXPECT_EQ(terminal.exit_code(), 128 + GetParam()) << terminal.screen();
    EXPECT_EQ(terminal.screen().find("loading 83 %"), std::string::npos) << terminal.screen();
    return terminal.screen();
  }

  const gguf::TempFolder folder_;
  const std::string model_ = write_wide_model(folder_, 1 << 20);  // six matrices of 128 MiB
};

TEST_P(Loading, EndsForASignal) {
  const std::string screen = interrupted({"run", "-p", "a"});
  EXPECT_TRUE(screen.ends_with("\r\x1b[K")) << screen;  // the line is gone, and nothing else was said
}

TEST_P(Loading, OfBenchEndsForASignalWithWholeJson) {
  const std::string screen = interrupted({"bench", "-p", "1", "-n", "0", "-o", "json"});
  EXPECT_TRUE(screen.starts_with("[")) << screen;
  EXPECT_TRUE(screen.ends_with("\r\x1b[K\r\n]\r\n")) << screen;
}

INSTANTIATE_TEST_SUITE_P(Signals, Loading, testing::Values(SIGINT, SIGTERM),
                         [](const auto& test) { return test.param == SIGINT ? "Interrupt" : "Terminate"; });

}  // namespace
}  // namespace lamina

// What is timed, and the numbers that sum repetitions up.
#include "engine/bench.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "kernels/cpu/cpu_device.h"

namespace lamina {
namespace {

TEST(Summary, OfRepetitions) {
  const Summary odd = summary_of({4, 1, 10});
  EXPECT_DOUBLE_EQ(odd.average, 5);
  EXPECT_DOUBLE_EQ(odd.median, 4);
  EXPECT_DOUBLE_EQ(odd.least, 1);
  EXPECT_DOUBLE_EQ(odd.most, 10);
  EXPECT_DOUBLE_EQ(odd.deviation, std::sqrt((1 + 16 + 25) / 2.0));
  EXPECT_DOUBLE_EQ(summary_of({4, 1, 10, 5}).median, 4.5);
  EXPECT_DOUBLE_EQ(summary_of({3}).deviation, 0);
}

TEST(BenchTest, HasLlamaBenchsName) {
  EXPECT_EQ((BenchTest{.n_prompt = 512, .n_gen = 0, .n_depth = 0}.name()), "pp512");
  EXPECT_EQ((BenchTest{.n_prompt = 0, .n_gen = 128, .n_depth = 1024}.name()), "tg128 @ d1024");
}

TEST(RunBench, RunsTheDepthOnceAndTheTestEachTime) {
  const std::string model = LAMINA_SOURCE_DIR "/tests/data/engine/chains.gguf";
  Engine engine(model, make_cpu_device({}), {.n_ctx = 64, .n_batch = 16, .tokenizer = false});
  EXPECT_EQ(run_bench(engine, {.n_prompt = 32, .n_gen = 0, .n_depth = 20}, 3, nullptr).nanoseconds.size(), 3u);
  EXPECT_EQ(engine.n_steps(), 2u + 4 * 2);  // two steps of depth, then warm-up and three repetitions of two steps
  const BenchResult result = run_bench(engine, {.n_prompt = 0, .n_gen = 5, .n_depth = 0}, 2, nullptr);
  EXPECT_EQ(engine.n_steps(), 10u + 1 + 2 * 5);
  for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(result.tokens_per_second[i] * result.nanoseconds[i], 5e9, 1);
}

}  // namespace
}  // namespace lamina

// Memory by running the binary: what loading takes at most, and refusals before anything is touched.
// In: models with holes in place of weights. Out: peak memory, or exit code 5 with what is needed and what there is.
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

#include "kernels/memory_limits.h"
#include "tests/text_model.h"
#include "tests/tools/process.h"

namespace lamina {
namespace {

constexpr uint64_t kMib = uint64_t{1} << 20;

constexpr uint64_t q8_0_bytes(uint64_t n) { return n / 32 * 34; }

/// 100 MiB are less than one tensor of this model: none may lie in memory both as in the file and in planes.
TEST(LoadingMemory, StaysBelowPlanesAndKvAnd100MiB) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's shadow counts as well";
#endif
  const gguf::TempFolder folder;
  const uint32_t n_ff = 1 << 20, n_ctx = 1 << 16;
  const std::string path = write_wide_model(folder, n_ff);
  const ProcessResult result = run_process(
      {LAMINA_BINARY, "run", path, "-p", "a", "-n", "1", "-b", "1", "-t", "2", "-c", std::to_string(n_ctx)});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const uint64_t n = uint64_t{n_ff} * TextModel::kEmbd, tensor = 2 * n;
  const uint64_t planes = 4 * tensor + 2 * q8_0_bytes(n);  // of both types as many bytes as in the file
  const uint64_t kv = uint64_t{2} * n_ctx * TextModel::kLayers * TextModel::kHeadsKv *
                      (TextModel::kEmbd / TextModel::kHeads) * sizeof(uint16_t);
  ASSERT_GT(tensor, 100 * kMib);
  EXPECT_LE(result.max_rss, static_cast<int64_t>(planes + kv + 100 * kMib));
  EXPECT_GT(result.max_rss, static_cast<int64_t>(planes));  // else the weights were not there
}

/// Expects exit code 5 and one line with figures: what is needed is more than what there is.
void expect_refusal(const std::vector<std::string>& arguments, const std::string& part) {
  std::vector<std::string> words = {LAMINA_BINARY};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const ProcessResult result = run_process(words);
  EXPECT_EQ(result.exit_code, 5) << result.err;
  std::smatch figures;
  const std::regex pattern(
      "lamina: ([0-9]+) MiB of memory are needed for (.*), but ([0-9]+) of ([0-9]+) MiB are "
      "available\n");
  ASSERT_TRUE(std::regex_match(result.err, figures, pattern)) << result.err;
  EXPECT_GT(std::stoull(figures[1]), std::stoull(figures[3])) << result.err;
  EXPECT_NE(figures[2].str().find(part), std::string::npos) << result.err;
}

TEST(MemoryNeeded, IsRefusedBeforeItIsTouched) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer leaves too little address space";
#endif
  const gguf::TempFolder folder;
  TextModel model;  // 2048 keys and values a position and layer: 16 KiB a position
  model.u32("llama.attention.head_count", 8).u32("llama.attention.head_count_kv", 8);
  model.u32("llama.attention.key_length", 256).u32("llama.attention.value_length", 256);
  model.u32("llama.context_length", (1U << 31) - 1);
  for (const std::string blk : {"blk.0.", "blk.1."}) {
    for (const char* name : {"attn_q.weight", "attn_k.weight", "attn_v.weight"}) {
      model.tensor(blk + name, "Q8_0", {64, 2048});
    }
    model.tensor(blk + "attn_output.weight", "Q8_0", {2048, 64});
  }
  const std::string path = folder.write("long.gguf", model.build().bytes);
  expect_refusal({"run", path, "-p", "a", "-c", "100000000"}, "of keys and values");
  expect_refusal({"run", path, "-p", "a", "-c", "1073741824"}, "of keys and values");
  const std::string tokens = folder.write("tokens", "1 2");
  expect_refusal({"logits", path, "--tokens", tokens, "--out", "/dev/null", "-c", "100000000"}, "of keys and values");
}

TEST(MemoryNeeded, CountsBuffers) {
  constexpr uint64_t kBatch = 16384, kNff = 1 << 20;
  if (memory_limits().available > 2 * kBatch * kNff * sizeof(float)) GTEST_SKIP() << "there is room for them";
  const gguf::TempFolder folder;
  const std::string path = write_wide_model(folder, kNff);
  expect_refusal({"run", path, "-p", "a", "-c", "16384", "-b", "16384", "-q"}, "of buffers");
}

TEST(MemoryNeeded, BatchesBeyondTheLimitAreAMistake) {
  const gguf::TempFolder folder;
  const std::string path = folder.write("small.gguf", TextModel().build().bytes);
  for (const std::string batch : {"0", "-1", "16385", "100000000000000000000"}) {
    EXPECT_EQ(run_process({LAMINA_BINARY, "run", path, "-p", "a", "-b", batch}).exit_code, 2) << batch;
  }
}

}  // namespace
}  // namespace lamina

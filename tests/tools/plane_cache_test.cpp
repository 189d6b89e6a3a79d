// --plane-cache by running the binary: whatever happens to the cache, the text is that of a run without one.
// In: a small model, and caches that are damaged, truncated under a run, or cannot be written. Out: text, warnings,
// exit codes.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/text_model.h"
#include "tests/tools/process.h"

namespace lamina {
namespace {

namespace fs = std::filesystem;
using Strings = std::vector<std::string>;

class PlaneCacheRun : public testing::Test {
 protected:
  /// The binary with --plane-cache, started by the words of `before`.
  ProcessResult run(const Strings& more = {"-n", "8"}, ProcessOptions options = {}, const Strings& before = {}) {
    Strings words = before;
    for (const char* word : {LAMINA_BINARY, "run", model_.c_str(), "-p", "ab", "-t", "2", "--plane-cache"})
      words.push_back(word);
    words.insert(words.end(), more.begin(), more.end());
    options.environment = {"XDG_CACHE_HOME=" + cache_home_};
    return run_process(words, options);
  }

  /// What a run must say, cache or none.
  std::string text() { return run_process({LAMINA_BINARY, "run", model_, "-p", "ab", "-t", "2", "-n", "8"}).out; }

  /// Files in the cache's folder; an empty list when there is no folder.
  std::vector<fs::path> caches() const {
    std::error_code none;
    std::vector<fs::path> paths;
    for (const auto& entry : fs::directory_iterator(fs::path(cache_home_) / "lamina" / "planes", none))
      paths.push_back(entry.path());
    return paths;
  }

  /// Expects the right text, and one line about the cache that holds `part`.
  void expect_warning(const ProcessResult& result, const std::string& part) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, text());
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
    size_t n = 0;
    for (size_t at = 0; (at = result.err.find("plane cache", at)) != std::string::npos; ++at) ++n;
    EXPECT_EQ(n, 1u) << result.err;
  }

  gguf::TempFolder folder_;
  std::string model_ = folder_.write("model.gguf", TextModel().u32("llama.context_length", 1 << 20).build().bytes);
  std::string cache_home_ = folder_.path("cache");
};

TEST_F(PlaneCacheRun, MakesABrokenCacheAnew) {
  ASSERT_EQ(run().exit_code, 0);
  ASSERT_EQ(caches().size(), 1u);
  const fs::path cache = caches()[0];
  const uint64_t size = fs::file_size(cache);
  fs::resize_file(cache, size / 2);
  expect_warning(run(), "cut off");
  EXPECT_EQ(fs::file_size(cache), size);
  std::ofstream(cache, std::ios::trunc) << "this file is of another kind, and long enough to have a header of any sort";
  expect_warning(run(), "another kind of file");
  EXPECT_EQ(fs::file_size(cache), size);
  const ProcessResult again = run();
  EXPECT_EQ(again.out, text());
  EXPECT_EQ(again.err.find("plane cache"), std::string::npos) << again.err;
}

TEST_F(PlaneCacheRun, EndsWhenTheCacheIsTruncatedUnderIt) {
  ASSERT_EQ(run().exit_code, 0);
  ASSERT_EQ(caches().size(), 1u);
  const ProcessResult result =
      run({"-c", "100000", "-q"}, {.after_output = [path = caches()[0]] { std::filesystem::resize_file(path, 0); }});
  EXPECT_EQ(result.exit_code, 3) << result.err;
  EXPECT_NE(result.err.find(".planes: the file was truncated"), std::string::npos) << result.err;
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
}

TEST_F(PlaneCacheRun, GoesOnWhereNothingCanBeWritten) {
  cache_home_ = model_;  // a file where a folder should be
  expect_warning(run(), "no plane cache");
}

TEST_F(PlaneCacheRun, GoesOnWhenTheDiskIsFull) {
  // A limit on the size of files does to writes what a full disk does.
  const Strings limited = {"/bin/sh", "-c", "trap '' XFSZ; ulimit -f 16; exec \"$@\"", "sh"};
  expect_warning(run({"-n", "8"}, {}, limited), "cannot write");
  EXPECT_TRUE(caches().empty());
}

TEST_F(PlaneCacheRun, MappedWeightsNeedNoMemoryOfTheirOwn) {
  TextModel model;
  model.u32("llama.feed_forward_length", 1 << 15).u32("llama.context_length", (1U << 31) - 1);
  for (const std::string blk : {"blk.0.", "blk.1."}) {
    model.tensor(blk + "ffn_gate.weight", "Q8_0", {TextModel::kEmbd, 1 << 15});
    model.tensor(blk + "ffn_up.weight", "Q8_0", {TextModel::kEmbd, 1 << 15});
    model.tensor(blk + "ffn_down.weight", "Q8_0", {1 << 15, TextModel::kEmbd});
  }
  folder_.write("model.gguf", model.build().bytes);
  // Keys and values of so many positions fit nowhere; the refusal names what the weights would take.
  const auto refusal = [&] {
    const ProcessResult result = run({"-c", "1073741824"});
    EXPECT_EQ(result.exit_code, 5) << result.err;
    return result.err;
  };
  EXPECT_NE(refusal().find("(12 MiB of weights"), std::string::npos) << refusal();
  ASSERT_EQ(run().exit_code, 0);
  EXPECT_NE(refusal().find("(0 MiB of weights"), std::string::npos) << refusal();
}

}  // namespace
}  // namespace lamina

// The plane cache: what was written comes back, and whatever else lies under its name is no cache, by a warning or
// silently, never an error. Through the binary: the same text with a cache as without, and after the model changed.
#include "kernels/cpu/plane_cache.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <vector>

#include "tests/model/edited_file.h"
#include "tests/tools/process.h"

namespace lamina::cpu {
namespace {

namespace fs = std::filesystem;

class PlaneCache : public testing::Test {
 protected:
  PlaneCache() {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    planes_.resize(3 * 1024 * 1024 + 17);
    for (size_t i = 0; i < planes_.size(); ++i) planes_[i] = static_cast<std::byte>(i * 7 % 251);
  }
  ~PlaneCache() override { fs::remove_all(folder_); }

  void write() { write_planes(path(), "key", planes_, pool_); }
  std::unique_ptr<CachedPlanes> map(const std::string& key = "key") {
    return map_planes(path(), key, planes_.size(), pool_);
  }
  std::string path() const { return (folder_ / "new" / "model.planes").string(); }
  void change_byte(uint64_t at) {
    std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const char old = static_cast<char>(file.get());
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(old ^ 1));
  }

  fs::path folder_ = fs::temp_directory_path() / ("lamina_planes_" + std::to_string(getpid()));
  std::vector<std::byte> planes_;
  Pool pool_{2};
};

TEST_F(PlaneCache, GivesBackWhatWasWritten) {
  EXPECT_EQ(map(), nullptr);
  write();
  const auto cached = map();
  ASSERT_NE(cached, nullptr);
  EXPECT_TRUE(std::equal(planes_.begin(), planes_.end(), cached->planes.begin(), cached->planes.end()));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(cached->planes.data()) % 64, 0u);
  // Only the complete file is there.
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "new"), {}), 1);
}

TEST_F(PlaneCache, IsForOneKeyAndSize) {
  write();
  EXPECT_EQ(map("kez"), nullptr);
  EXPECT_EQ(map("longer"), nullptr);
  EXPECT_EQ(map_planes(path(), "key", planes_.size() - 1, pool_), nullptr);
}

TEST_F(PlaneCache, RefusesEveryDamage) {
  write();
  const uint64_t size = fs::file_size(path());
  for (const uint64_t at : {uint64_t{0}, uint64_t{8}, uint64_t{12}, uint64_t{16}, uint64_t{24}, uint64_t{32},
                            uint64_t{4096}, size / 2, size - 1}) {
    change_byte(at);
    EXPECT_EQ(map(), nullptr) << "byte " << at;
    change_byte(at);
    EXPECT_NE(map(), nullptr) << "byte " << at << " put right";
  }
  for (const uint64_t length : {size - 1, size / 2, uint64_t{4096}, uint64_t{20}, uint64_t{0}}) {
    fs::resize_file(path(), length);
    EXPECT_EQ(map(), nullptr) << length << " bytes";
  }
  write();
  EXPECT_NE(map(), nullptr);
}

TEST_F(PlaneCache, CannotBeWrittenWithoutHarm) {
  std::ofstream(folder_ / "new") << "a file where the folder should be";
  write();
  EXPECT_EQ(map(), nullptr);
}

TEST_F(PlaneCache, RunSaysTheSameWithIt) {
  const std::string model = (folder_ / "model.gguf").string();
  fs::copy_file(fixture("llama-dense.gguf"), model);
  const auto logits = [&](bool cache) {
    const std::string out = (folder_ / "out.f32").string(), tokens = (folder_ / "tokens").string();
    std::ofstream(tokens) << "1 2 3 4 5";
    std::vector<std::string> words = {LAMINA_BINARY, "logits", model, "--tokens", tokens, "--out", out};
    if (cache) words.push_back("--plane-cache");
    const ProcessResult result = run_process(words, {.environment = {"XDG_CACHE_HOME=" + folder_.string()}});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    std::ifstream in(out, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  const auto n_caches = [&] {
    return std::distance(fs::directory_iterator(folder_ / "lamina" / "planes"), fs::directory_iterator());
  };
  const std::string plain = logits(false);
  EXPECT_EQ(logits(true), plain);
  EXPECT_EQ(n_caches(), 1);
  EXPECT_EQ(logits(true), plain);
  EXPECT_EQ(n_caches(), 1);
  fs::last_write_time(model, fs::last_write_time(model) + std::chrono::seconds(1));
  EXPECT_EQ(logits(true), plain);
  EXPECT_EQ(n_caches(), 2) << "a model that was written to is another one";
}

}  // namespace
}  // namespace lamina::cpu

// The committed corpora of the fuzz targets, and what fuzzing once found, in every test run. In:
// tests/data/fuzz/TARGET/. Out: no crash.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/fuzz/inputs.h"
#include "tests/text_model.h"

namespace lamina {
namespace {

size_t replay(const std::string& target, void (*use)(std::span<const std::byte>)) {
  size_t n = 0;
  for (const auto& entry : std::filesystem::directory_iterator(LAMINA_SOURCE_DIR "/tests/data/fuzz/" + target)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    use(std::as_bytes(std::span(bytes)));
    ++n;
  }
  return n;
}

TEST(FuzzCorpus, Reader) { EXPECT_GT(replay("reader", fuzz::reader), 0u); }
TEST(FuzzCorpus, Loader) { EXPECT_GT(replay("loader", fuzz::loader), 0u); }
TEST(FuzzCorpus, Tokenizer) { EXPECT_GT(replay("tokenizer", fuzz::tokenizer), 0u); }

TEST(FuzzInput, LoaderSurvivesEveryByteOfTheHeader) {
  const gguf::BuiltFile built = TextModel().build();
  for (size_t i = 0; i < built.at.at("key tokenizer.ggml.tokens name"); ++i) {
    for (const int value : {0x00, 0x01, 0x7F, 0xFF}) {
      std::string bytes = built.bytes;
      bytes[i] = static_cast<char>(value);
      fuzz::loader(std::as_bytes(std::span(bytes)));
    }
  }
}

}  // namespace
}  // namespace lamina

// The fixture of the GGUF reader's tests.
// In: the bytes of a file. Out: the opened File, or checks on the message with which it is refused.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "gguf/error.h"
#include "gguf/file.h"
#include "tests/gguf/file_builder.h"

namespace lamina::gguf {

inline constexpr uint32_t kF32 = 0, kQ8_0 = 8, kQ4_K = 12, kQ2_0 = 42;

/// Opens files that a test builds, or expects their refusal.
class GgufFile : public testing::Test {
 protected:
  File open(std::string_view bytes) { return File::open(folder_.write("model.gguf", bytes)); }

  /// The message with which `bytes` are refused; empty (and a failed test) when they are accepted.
  std::string refusal(std::string_view bytes) { return refusal_of(folder_.write("model.gguf", bytes)); }

  std::string refusal_of(const std::string& path) {
    try {
      File::open(path);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kModel);
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "accepted " << path;
    return "";
  }

  /// Checks that `bytes` are refused with a message that holds all of `parts`.
  void refused(std::string_view bytes, const std::vector<std::string>& parts) {
    const std::string message = refusal(bytes);
    for (const std::string& part : parts)
      EXPECT_NE(message.find(part), std::string::npos) << part << "\n in: " << message;
  }

  TempFolder folder_;
};

/// Two tensors, three keys.
inline FileBuilder small() {
  FileBuilder builder;
  builder.text("general.architecture", "llama").u32("general.alignment", 32);
  builder.key("list", ValueType::kArray, raw_array(ValueType::kString, 2, raw_string("ab") + raw_string("c")));
  builder.tensor("a", {32, 2}, kF32, std::string(256, 'a'));
  builder.tensor("b", {32}, kQ8_0, std::string(34, 'b'));
  return builder;
}

/// The value of a key that is there.
template <class T>
T value_at(const File& file, std::string_view key) {
  const Value* value = file.find(key);
  LAMINA_CHECK(value != nullptr);
  return std::get<T>(*value);
}

}  // namespace lamina::gguf

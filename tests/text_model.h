// A small llama with a vocabulary, written by the test itself, whose every key and tensor can be changed.
// In: changes. Out: the bytes of a GGUF file (2 layers, 64 wide, 288 tokens; F32, Q8_0 and Q4_0), and the place of each
// field in them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tests/gguf/file_builder.h"

namespace lamina {

class TextModel {
 public:
  static constexpr uint32_t kTokens = 288, kEmbd = 64, kFf = 256, kHeads = 4, kHeadsKv = 2, kLayers = 2;

  TextModel();

  /// Sets or adds a key; `value` in its stored form.
  TextModel& key(const std::string& name, gguf::ValueType type, const std::string& value);
  TextModel& u32(const std::string& name, uint32_t value) {
    return key(name, gguf::ValueType::kUint32, gguf::raw(value));
  }
  TextModel& f32(const std::string& name, float value) {
    return key(name, gguf::ValueType::kFloat32, gguf::raw(value));
  }
  TextModel& text(const std::string& name, std::string_view value) {
    return key(name, gguf::ValueType::kString, gguf::raw_string(value));
  }
  TextModel& flag(const std::string& name, bool value) { return key(name, gguf::ValueType::kBool, gguf::raw(value)); }
  TextModel& remove_key(const std::string& name);
  const std::vector<std::string>& tokens() const { return tokens_; }

  /// The vocabulary with other tokens, all of which have scores and are normal from number 259 on.
  TextModel& tokens(const std::vector<std::string>& tokens);

  /// Sets or adds a tensor of varied contents, or of bytes `fill` when that is not negative.
  TextModel& tensor(const std::string& name, const std::string& type, const std::vector<uint64_t>& shape,
                    int fill = -1);
  TextModel& remove_tensor(const std::string& name);

  gguf::FileBuilder builder() const;
  gguf::BuiltFile build() const { return builder().build(); }

 private:
  struct Key {
    std::string name;
    gguf::ValueType type;
    std::string value;
  };
  struct Tensor {
    std::string name;
    std::vector<uint64_t> shape;
    uint32_t type;
    std::string data;
  };
  std::vector<std::string> tokens_;
  std::vector<Key> keys_;
  std::vector<Tensor> tensors_;
};

/// Writes the text model with feed-forward layers of `n_ff`, whose weights are zeros (holes in the file): gate and up
/// F16, down, whose rows are long, Q8_0; its path.
std::string write_wide_model(const gguf::TempFolder& folder, uint32_t n_ff);

}  // namespace lamina

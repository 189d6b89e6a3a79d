// The keys and tensors of the model: see text_model.h.
#include "tests/text_model.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "gguf/type.h"

namespace lamina {
namespace {

using gguf::raw;
using gguf::raw_array;
using gguf::raw_string;
using gguf::ValueType;

/// Blocks whose scales are moderate: floats of about 1/16, and quantised blocks that begin with an f16 of about that.
std::string varied(const gguf::Type& type, uint64_t n) {
  std::string data;
  uint32_t state = 1;
  for (uint64_t i = 0; i < n; i += type.block) {
    state = state * 1664525 + 1013904223;
    const float value = (static_cast<float>(state >> 8) * 0x1p-24F - 0.5F) / 8;
    if (type.id == gguf::TypeId::kF32) {
      data += raw(value);
      continue;
    }
    std::string block(type.bytes, '\0');
    for (char& byte : block) byte = static_cast<char>(state >> 24), state = state * 1664525 + 1013904223;
    const uint16_t scale = gguf::f32_to_f16(value / 64);
    std::memcpy(block.data(), &scale, sizeof scale);
    data += block;
  }
  return data;
}

}  // namespace

TextModel::TextModel() {
  text("general.architecture", "llama").text("general.name", "small");
  u32("general.alignment", 32);
  u32("llama.block_count", kLayers).u32("llama.context_length", 128).u32("llama.embedding_length", kEmbd);
  u32("llama.feed_forward_length", kFf).u32("llama.attention.head_count", kHeads);
  u32("llama.attention.head_count_kv", kHeadsKv).f32("llama.attention.layer_norm_rms_epsilon", 1e-5F);
  u32("llama.rope.dimension_count", kEmbd / kHeads).f32("llama.rope.freq_base", 10000);
  text("tokenizer.ggml.model", "llama");
  std::vector<std::string> all = {"<unk>", "<s>", "</s>"};
  for (int byte = 0; byte < 256; ++byte) all.push_back(fmt::format("<0x{:02X}>", byte));
  for (char c = 'a'; all.size() < kTokens; ++c)
    all.push_back(c > 'z' ? "\u2581" + std::string(all.size() - 284, 'a') : std::string(1, c));
  tokens(all);
  u32("tokenizer.ggml.bos_token_id", 1).u32("tokenizer.ggml.eos_token_id", 2);
  u32("tokenizer.ggml.unknown_token_id", 0).flag("tokenizer.ggml.add_bos_token", true);

  tensor("token_embd.weight", "F32", {kEmbd, kTokens}).tensor("output_norm.weight", "F32", {kEmbd});
  tensor("output.weight", "Q8_0", {kEmbd, kTokens});
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    const std::string blk = fmt::format("blk.{}.", layer);
    const uint64_t n_kv = uint64_t{kEmbd} / kHeads * kHeadsKv;
    tensor(blk + "attn_norm.weight", "F32", {kEmbd}).tensor(blk + "attn_q.weight", "Q8_0", {kEmbd, kEmbd});
    tensor(blk + "attn_k.weight", "Q8_0", {kEmbd, n_kv}).tensor(blk + "attn_v.weight", "Q8_0", {kEmbd, n_kv});
    tensor(blk + "attn_output.weight", "Q8_0", {kEmbd, kEmbd}).tensor(blk + "ffn_norm.weight", "F32", {kEmbd});
    tensor(blk + "ffn_gate.weight", "Q4_0", {kEmbd, kFf}).tensor(blk + "ffn_up.weight", "Q4_0", {kEmbd, kFf});
    tensor(blk + "ffn_down.weight", "Q4_0", {kFf, kEmbd});
  }
}

TextModel& TextModel::tokens(const std::vector<std::string>& tokens) {
  tokens_ = tokens;
  std::string texts, scores, types;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const int32_t type = i == 0 ? 2 : i < 3 ? 3 : i < 259 ? 6 : 1;
    texts += raw_string(tokens[i]);
    scores += raw(-static_cast<float>(i));
    types += raw(type);
  }
  key("tokenizer.ggml.tokens", ValueType::kArray, raw_array(ValueType::kString, tokens.size(), texts));
  key("tokenizer.ggml.scores", ValueType::kArray, raw_array(ValueType::kFloat32, tokens.size(), scores));
  return key("tokenizer.ggml.token_type", ValueType::kArray, raw_array(ValueType::kInt32, tokens.size(), types));
}

TextModel& TextModel::key(const std::string& name, ValueType type, const std::string& value) {
  const auto found = std::ranges::find(keys_, name, &Key::name);
  if (found == keys_.end()) keys_.push_back({name, type, value});
  else *found = {name, type, value};
  return *this;
}

TextModel& TextModel::remove_key(const std::string& name) {
  std::erase_if(keys_, [&](const Key& key) { return key.name == name; });
  return *this;
}

TextModel& TextModel::tensor(const std::string& name, const std::string& type, const std::vector<uint64_t>& shape,
                             int fill) {
  const gguf::Type& row = *gguf::find_type(type);
  uint64_t n = 1;
  for (const uint64_t dimension : shape) n *= dimension;
  const uint64_t size = n / row.block * row.bytes;
  const std::string data = fill < 0 ? varied(row, n) : std::string(size, static_cast<char>(fill));
  const Tensor tensor{name, shape, static_cast<uint32_t>(row.id), data};
  const auto found = std::ranges::find(tensors_, name, &Tensor::name);
  if (found == tensors_.end()) tensors_.push_back(tensor);
  else *found = tensor;
  return *this;
}

TextModel& TextModel::remove_tensor(const std::string& name) {
  std::erase_if(tensors_, [&](const Tensor& tensor) { return tensor.name == name; });
  return *this;
}

gguf::FileBuilder TextModel::builder() const {
  gguf::FileBuilder builder;
  for (const Key& key : keys_) builder.key(key.name, key.type, key.value);
  for (const Tensor& tensor : tensors_) builder.tensor(tensor.name, tensor.shape, tensor.type, tensor.data);
  return builder;
}

std::string write_wide_model(const gguf::TempFolder& folder, uint32_t n_ff) {
  TextModel model;
  model.u32("llama.feed_forward_length", n_ff).u32("llama.context_length", 1 << 20);
  const std::string names[] = {"ffn_gate.weight", "ffn_up.weight", "ffn_down.weight"};
  for (uint32_t layer = 0; layer < TextModel::kLayers; ++layer) {
    for (const std::string& name : names) model.remove_tensor(fmt::format("blk.{}.{}", layer, name));
  }
  gguf::FileBuilder builder = model.builder();
  const uint64_t n = uint64_t{n_ff} * TextModel::kEmbd;
  for (uint32_t layer = 0; layer < TextModel::kLayers; ++layer) {
    const auto hole = [&](const std::string& name, const std::vector<uint64_t>& shape, gguf::TypeId type,
                          uint64_t bytes) {
      builder.hole(fmt::format("blk.{}.{}", layer, name), shape, static_cast<uint32_t>(type), bytes);
    };
    hole("ffn_gate.weight", {TextModel::kEmbd, n_ff}, gguf::TypeId::kF16, 2 * n);
    hole("ffn_up.weight", {TextModel::kEmbd, n_ff}, gguf::TypeId::kF16, 2 * n);
    hole("ffn_down.weight", {n_ff, TextModel::kEmbd}, gguf::TypeId::kQ8_0, n / 32 * 34);
  }
  const gguf::BuiltFile built = builder.build();
  const std::string path = folder.write("wide.gguf", built.bytes);
  std::filesystem::resize_file(path, built.size);
  return path;
}

}  // namespace lamina

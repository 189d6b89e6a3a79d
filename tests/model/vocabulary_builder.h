// Small vocabularies as GGUF files, for the tests of tokenizers.
// In: tokens, merges, flags. Out: a Tokenizer, or the message with which the file is refused.
#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/error.h"
#include "model/tokenizer.h"
#include "tests/gguf/file_builder.h"

namespace lamina {

inline constexpr int32_t kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kByte = 6;

/// The metadata of a tokenizer; change what the test is about and call create() or refusal().
struct VocabularyBuilder {
  std::string model, pre;
  std::vector<std::string> tokens, merges;
  std::vector<int32_t> types;
  std::vector<float> scores;
  gguf::FileBuilder file;  // further keys

  int32_t add(std::string_view text, int32_t type = kNormal, float score = 0) {
    tokens.emplace_back(text);
    types.push_back(type);
    scores.push_back(score);
    return static_cast<int32_t>(tokens.size()) - 1;
  }

  VocabularyBuilder& flag(const std::string& key, bool value) {
    file.key("tokenizer.ggml." + key, gguf::ValueType::kBool, gguf::raw(static_cast<uint8_t>(value)));
    return *this;
  }
  VocabularyBuilder& id(const std::string& key, uint32_t value) {
    file.u32("tokenizer.ggml." + key, value);
    return *this;
  }

  std::string bytes() const {
    gguf::FileBuilder all = file;
    if (!model.empty()) all.text("tokenizer.ggml.model", model);
    if (!pre.empty()) all.text("tokenizer.ggml.pre", pre);
    const auto strings = [&](const char* key, const std::vector<std::string>& items) {
      std::string raw;
      for (const std::string& item : items) raw += gguf::raw_string(item);
      all.key(key, gguf::ValueType::kArray, gguf::raw_array(gguf::ValueType::kString, items.size(), raw));
    };
    const auto numbers = [&](const char* key, gguf::ValueType type, const auto& items) {
      std::string raw;
      for (const auto item : items) raw += gguf::raw(item);
      all.key(key, gguf::ValueType::kArray, gguf::raw_array(type, items.size(), raw));
    };
    if (!tokens.empty()) strings("tokenizer.ggml.tokens", tokens);
    if (!merges.empty()) strings("tokenizer.ggml.merges", merges);
    if (!types.empty()) numbers("tokenizer.ggml.token_type", gguf::ValueType::kInt32, types);
    if (!scores.empty() && model == "llama") numbers("tokenizer.ggml.scores", gguf::ValueType::kFloat32, scores);
    return all.build().bytes;
  }

  std::unique_ptr<Tokenizer> create() const {
    const gguf::TempFolder folder;
    return Tokenizer::create(gguf::File::open(folder.write("vocabulary.gguf", bytes())));
  }

  /// The message with which the file is refused; empty (and a failed test) when it is accepted.
  std::string refusal() const {
    try {
      create();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kModel);
      return error.what();
    }
    ADD_FAILURE() << "accepted";
    return "";
  }
};

/// How byte-level BPE writes `text`: a printable character for each byte.
inline std::string byte_characters(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    uint32_t code_point = byte;
    if (byte <= 0x20) code_point = 0x100 + byte;
    if (byte >= 0x7F && byte <= 0xA0) code_point = 0x121 + byte - 0x7F;
    if (byte == 0xAD) code_point = 0x143;
    if (code_point < 0x80) {
      result += static_cast<char>(code_point);
    } else {
      result += static_cast<char>(0xC0 | code_point >> 6);
      result += static_cast<char>(0x80 | (code_point & 0x3F));
    }
  }
  return result;
}

/// Token b is byte b; merges make "he", "ll", "hell", "hello", " w", "aa", "aaaa", "  ", "    ", "11", "é".
inline VocabularyBuilder bpe_vocabulary(const std::string& pre = "gpt-2") {
  VocabularyBuilder builder;
  builder.model = "gpt2";
  builder.pre = pre;
  for (int byte = 0; byte < 256; ++byte) builder.add(byte_characters(std::string(1, static_cast<char>(byte))));
  const auto merge = [&](std::string_view left, std::string_view right) {
    builder.merges.push_back(byte_characters(left) + " " + byte_characters(right));
    builder.add(byte_characters(std::string(left).append(right)));
  };
  merge("h", "e");
  merge("l", "l");
  merge("he", "ll");
  merge("hell", "o");
  merge(" ", "w");
  merge("a", "a");
  merge("aa", "aa");
  merge(" ", " ");
  merge("  ", "  ");
  merge("1", "1");
  merge("\xC3", "\xA9");
  return builder;
}

/// <unk>, <s>, </s>, bytes 3 to 258, then pieces with scores.
inline VocabularyBuilder spm_vocabulary() {
  VocabularyBuilder builder;
  builder.model = "llama";
  builder.add("<unk>", kUnknown);
  builder.add("<s>", kControl);
  builder.add("</s>", kControl);
  for (int byte = 0; byte < 256; ++byte) builder.add(fmt::format("<0x{:02X}>", byte), kByte);
  float score = -1;
  for (const char* piece :
       {"▁h", "el", "lo", "▁hello", "▁hel", "aa", "aaaa", "▁▁", "▁▁▁▁", "▁", "h", "e", "l", "o", "a"}) {
    builder.add(piece, kNormal, score--);
  }
  return builder;
}

/// The token texts of `ids`, for messages that people can read.
inline std::vector<std::string> pieces(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  std::vector<std::string> result;
  for (const int32_t id : ids) result.push_back(tokenizer.piece(id, true));
  return result;
}

}  // namespace lamina

// The vocabulary of a GGUF file: what every tokenizer model has in common.
// In: the tokenizer.ggml.* metadata. Out: texts, types, scores, the special ids and flags, and the tokens to cut out of
// a text. Everything is checked here: a length or id that cannot be is refused with an Error(kModel) naming key and
// value. Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md#tokenizer
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "gguf/file.h"
#include "model/added_tokens.h"
#include "model/text_map.h"

namespace lamina {

/// Values of tokenizer.ggml.token_type.
enum class TokenType : uint8_t { kUndefined = 0, kNormal, kUnknown, kControl, kUserDefined, kUnused, kByte };

/// What holds where the file says nothing.
struct VocabularyDefaults {
  int32_t bos = -1, eos = -1, unknown = -1;
  bool add_bos = false;
  bool add_space_prefix = false;
};

class Vocabulary {
 public:
  static Vocabulary read(const gguf::File& file, const VocabularyDefaults& defaults);

  int32_t size() const { return texts_.size(); }
  bool contains(int32_t token) const { return token >= 0 && token < size(); }
  std::string_view text(int32_t token) const { return texts_.text(token); }
  TokenType type(int32_t token) const { return types_[token]; }

  /// The token with this text, or -1. Of several the last, as in Hugging Face's tokenizers.
  int32_t find(std::string_view text) const { return texts_.find(text); }

  /// Asks the memory for what find(text) will look at.
  void prefetch(std::string_view text) const { texts_.prefetch(text); }

  /// Scores, one a token; empty when the file has none.
  const std::vector<float>& scores() const { return scores_; }

  const AddedTokens& added_tokens() const { return added_; }
  bool is_end(int32_t token) const { return contains(token) && is_end_[token]; }

  // Ids are -1 where there is none.
  int32_t bos = -1, eos = -1, unknown = -1;
  bool add_bos = false, add_eos = false, add_space_prefix = false;

 private:
  void read_texts(const gguf::File& file);
  void mark_special_texts();
  void collect_added_tokens(const gguf::File& file);

  TextMap texts_;  // number = token id
  std::vector<TokenType> types_;
  std::vector<float> scores_;
  std::vector<bool> is_end_;
  AddedTokens added_;
};

/// The value of a string key; `fallback` when it is missing.
std::string_view metadata_string(const gguf::File& file, std::string_view key, std::string_view fallback);

/// The value of a boolean key, nothing when it is missing.
std::optional<bool> metadata_bool(const gguf::File& file, std::string_view key);

/// The strings of an array; nullptr when the key is missing.
const std::vector<std::string_view>* metadata_strings(const gguf::File& file, std::string_view key);

}  // namespace lamina

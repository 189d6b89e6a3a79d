// Tokens that are cut out of a text before the tokenizer's own rule sees it: what Hugging Face calls added tokens.
// In: texts with ids. Out: where in a text one of them stands, the longest that starts at the leftmost place.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lamina {

class AddedTokens {
 public:
  struct Token {
    int32_t id = -1;
    bool control = false;  ///< found only when control tokens are asked for
    bool lstrip = false;   ///< takes the white space before it too
    bool rstrip = false;   ///< takes the white space behind it too
  };
  struct Match {
    size_t begin = 0, end = 0;     ///< the bytes that the token replaces, white space included
    const Token* token = nullptr;  ///< nullptr: none
  };

  /// `text` must not be empty; a text that was there already gets the new token.
  void add(std::string_view text, Token token);

  /// The first token in text[from, end). White space is taken from text[from, end) only.
  Match find(std::string_view text, size_t from, bool with_control) const;

 private:
  // A trie: the edge from node n by byte b is edges_[n * 256 + b]; a node's token is an index into tokens_, -1 for
  // none.
  std::unordered_map<uint64_t, uint32_t> edges_;
  std::vector<int32_t> node_tokens_{-1};
  std::vector<Token> tokens_;
  std::array<bool, 256> first_bytes_{};  // with which a token begins
};

}  // namespace lamina

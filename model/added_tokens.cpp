// Finds added tokens in a text by walking a trie from each place where one may begin: see added_tokens.h.
// In: texts with ids. Out: matches.
#include "model/added_tokens.h"

namespace lamina {
namespace {

bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

}  // namespace

void AddedTokens::add(std::string_view text, Token token) {
  uint32_t node = 0;
  for (const char c : text) {
    const auto [edge, is_new] = edges_.try_emplace(uint64_t{node} * 256 + static_cast<uint8_t>(c), 0);
    if (is_new) {
      edge->second = static_cast<uint32_t>(node_tokens_.size());
      node_tokens_.push_back(-1);
    }
    node = edge->second;
  }
  first_bytes_[static_cast<uint8_t>(text[0])] = true;
  node_tokens_[node] = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
}

AddedTokens::Match AddedTokens::find(std::string_view text, size_t from, bool with_control) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!first_bytes_[static_cast<uint8_t>(text[begin])]) continue;
    Match match;
    uint32_t node = 0;
    for (size_t pos = begin; pos < text.size();) {
      const auto edge = edges_.find(uint64_t{node} * 256 + static_cast<uint8_t>(text[pos]));
      if (edge == edges_.end()) break;
      node = edge->second;
      ++pos;
      if (node_tokens_[node] < 0) continue;
      const Token& token = tokens_[node_tokens_[node]];
      if (with_control || !token.control) match = {begin, pos, &token};
    }
    if (match.token == nullptr) continue;
    if (match.token->lstrip) {
      while (match.begin > from && is_blank(text[match.begin - 1])) --match.begin;
    }
    if (match.token->rstrip) {
      while (match.end < text.size() && is_blank(text[match.end])) ++match.end;
    }
    return match;
  }
  return {};
}

}  // namespace lamina

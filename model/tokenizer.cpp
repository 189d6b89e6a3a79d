// Chooses the tokenizer that a file asks for, and does what all of them share: see vocabulary_tokenizer.h.
// In: a file; then text or ids. Out: a Tokenizer; ids or text.
#include "model/tokenizer.h"

#include "gguf/error.h"
#include "model/vocabulary_tokenizer.h"

namespace lamina {
namespace {

/// The tokenizer of a model without vocabulary: there are ids, but no text.
class NoTokenizer : public Tokenizer {
 public:
  std::vector<int32_t> encode(std::string_view, EncodeOptions) const override { refuse_text(); }
  std::vector<int32_t> encode_parts(std::span<const TextPart>) const override { refuse_text(); }
  std::string piece(int32_t, bool) const override { return ""; }
  std::string decode(const std::vector<int32_t>&, bool) const override { return ""; }
  int32_t n_tokens() const override { return 0; }
  bool is_end(int32_t) const override { return false; }
  int32_t bos() const override { return -1; }
  int32_t eos() const override { return -1; }
  bool adds_bos() const override { return false; }

 private:
  [[noreturn]] static void refuse_text() {
    fail(ErrorKind::kModel, "tokenizer.ggml.model is none: this model has no vocabulary, it takes token ids only");
  }
};

bool is_added(TokenType type) {
  return type == TokenType::kControl || type == TokenType::kUnknown || type == TokenType::kUserDefined;
}

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::create(const gguf::File& file) {
  const std::string_view model = metadata_string(file, "tokenizer.ggml.model", "");
  if (model == "llama") return make_spm_tokenizer(file);
  if (model == "gpt2") return make_bpe_tokenizer(file);
  if (model == "none" || model == "no_vocab") return std::make_unique<NoTokenizer>();
  fail(ErrorKind::kModel, "{}: tokenizer.ggml.model is {}", printable(file.path(), 200),
       model.empty() ? "missing" : fmt::format("\"{}\", not llama, gpt2 or none", printable(model)));
}

std::vector<int32_t> VocabularyTokenizer::encode(std::string_view text, EncodeOptions options) const {
  constexpr size_t kMostBytes = size_t{1} << 30;
  if (text.size() >= kMostBytes) {
    fail(ErrorKind::kRuntime, "a text of {} bytes is too long to tokenize, the limit is {}", text.size(), kMostBytes);
  }
  std::vector<int32_t> ids;
  if (options.add_special && adds_bos()) ids.push_back(vocabulary_.bos);
  for (size_t pos = 0; pos < text.size();) {
    const AddedTokens::Match match = vocabulary_.added_tokens().find(text, pos, options.parse_special);
    const size_t end = match.token != nullptr ? match.begin : text.size();
    if (end > pos) encode_text(text.substr(pos, end - pos), ids);
    if (match.token == nullptr) break;
    ids.push_back(match.token->id);
    pos = match.end;
  }
  if (options.add_special && vocabulary_.add_eos && vocabulary_.eos >= 0) ids.push_back(vocabulary_.eos);
  return ids;
}

std::vector<int32_t> VocabularyTokenizer::encode_parts(std::span<const TextPart> parts) const {
  std::vector<int32_t> ids;
  std::string plain;  // what was read since the last control token
  const auto encode_plain = [&] {
    const std::vector<int32_t> more = encode(plain, {});
    ids.insert(ids.end(), more.begin(), more.end());
    plain.clear();
  };
  for (const TextPart& part : parts) {
    size_t pos = 0;
    while (part.parse_special) {
      const AddedTokens::Match match = vocabulary_.added_tokens().find(part.text, pos, true);
      if (match.token == nullptr) break;
      plain.append(part.text, pos, (match.token->control ? match.begin : match.end) - pos);
      if (match.token->control) {
        encode_plain();
        ids.push_back(match.token->id);
      }
      pos = match.end;
    }
    plain.append(part.text, pos);
  }
  encode_plain();
  return ids;
}

std::string VocabularyTokenizer::piece(int32_t token, bool show_special) const {
  if (!vocabulary_.contains(token)) return "";
  const TokenType type = vocabulary_.type(token);
  if (!is_added(type)) return token_bytes(token);
  return type == TokenType::kUserDefined || show_special ? std::string(vocabulary_.text(token)) : "";
}

std::string VocabularyTokenizer::decode(const std::vector<int32_t>& tokens, bool show_special) const {
  std::string text;
  bool behind_added = true;  // so is the beginning
  for (const int32_t token : tokens) {
    const std::string bytes = piece(token, show_special);
    const bool has_prefix = behind_added && prefixes_space() && !bytes.empty() && bytes[0] == ' ';
    behind_added = vocabulary_.contains(token) && is_added(vocabulary_.type(token));
    text.append(bytes, has_prefix && !behind_added ? 1 : 0, std::string::npos);
  }
  return text;
}

}  // namespace lamina

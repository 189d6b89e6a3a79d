// What all tokenizers with a vocabulary share: cutting out added tokens, bos and eos, the questions about single
// tokens. In: a Vocabulary. Out: a Tokenizer that lacks only the way from plain text to ids (`encode_text`) and from a
// token to its bytes (`token_bytes`). A tokenizer model is one class below this one, made by one function here.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/file.h"
#include "model/tokenizer.h"
#include "model/vocabulary.h"

namespace lamina {

class VocabularyTokenizer : public Tokenizer {
 public:
  explicit VocabularyTokenizer(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}

  std::vector<int32_t> encode(std::string_view text, EncodeOptions options) const override;
  std::vector<int32_t> encode_parts(std::span<const TextPart> parts) const override;
  std::string piece(int32_t token, bool show_special) const override;
  std::string decode(const std::vector<int32_t>& tokens, bool show_special) const override;
  int32_t n_tokens() const override { return vocabulary_.size(); }
  bool is_end(int32_t token) const override { return vocabulary_.is_end(token); }
  int32_t bos() const override { return vocabulary_.bos; }
  int32_t eos() const override { return vocabulary_.eos; }
  bool adds_bos() const override { return vocabulary_.add_bos && vocabulary_.bos >= 0; }

 protected:
  const Vocabulary& vocabulary() const { return vocabulary_; }

  /// Appends the ids of `text` (not empty, less than 2^30 bytes), which stands at the beginning or behind an added
  /// token.
  virtual void encode_text(std::string_view text, std::vector<int32_t>& out) const = 0;

  /// The bytes of a token of the vocabulary that is not an added one.
  virtual std::string token_bytes(int32_t token) const = 0;

  /// Whether encode_text puts a space before its text, which decode then takes away.
  virtual bool prefixes_space() const { return false; }

 private:
  Vocabulary vocabulary_;
};

/// Byte-level BPE, `tokenizer.ggml.model` "gpt2".
std::unique_ptr<Tokenizer> make_bpe_tokenizer(const gguf::File& file);

/// SentencePiece's BPE, `tokenizer.ggml.model` "llama".
std::unique_ptr<Tokenizer> make_spm_tokenizer(const gguf::File& file);

}  // namespace lamina

// Text to token ids and back, for the tokenizers that a GGUF file may hold.
// In: the tokenizer.ggml.* metadata of a file. Out: ids as Hugging Face's tokenizers (and llama.cpp) give them.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/file.h"

namespace lamina {

struct EncodeOptions {
  bool add_special = false;    ///< put bos / eos around the ids where the file asks for them
  bool parse_special = false;  ///< control tokens written in the text become their ids; else they are plain text
};

/// A part of a text: of a template, where control tokens count, or of a message, where they are plain text.
struct TextPart {
  std::string text;
  bool parse_special = false;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Reads the tokenizer of `file`: models "llama" (SentencePiece BPE), "gpt2" (byte-level BPE) and "none" (no
  /// vocabulary; encode throws Error(kModel)). Throws Error(kModel) naming key and value when the metadata are missing
  /// or absurd. An unknown `tokenizer.ggml.pre` warns and uses the nearest. The tokenizer keeps no reference to `file`.
  static std::unique_ptr<Tokenizer> create(const gguf::File& file);

  /// Ids of `text` (any bytes, NUL and invalid UTF-8 included; at least 1 GiB is refused). Safe to call from several
  /// threads.
  virtual std::vector<int32_t> encode(std::string_view text, EncodeOptions options) const = 0;

  /// Ids of the text that `parts` make together, with no bos or eos. Control tokens are found only in parts that ask
  /// for them; plain text is tokenized across the borders of parts, as if there were none.
  virtual std::vector<int32_t> encode_parts(std::span<const TextPart> parts) const = 0;

  /// The bytes of one token; empty for control tokens unless `show_special`, and for numbers that are no token (a model
  /// may have more logits than tokens). May be an incomplete UTF-8 sequence.
  virtual std::string piece(int32_t token, bool show_special) const = 0;

  /// Text of a sequence: the inverse of encode on valid UTF-8. One exception: SentencePiece writes spaces as U+2581, so
  /// a U+2581 in the text comes back as a space.
  virtual std::string decode(const std::vector<int32_t>& tokens, bool show_special) const = 0;

  virtual int32_t n_tokens() const = 0;          ///< size of the vocabulary, 0 for "none"
  virtual bool is_end(int32_t token) const = 0;  ///< one of the end-of-generation tokens
  virtual int32_t bos() const = 0;               ///< -1 when there is none
  virtual int32_t eos() const = 0;               ///< -1 when there is none
  virtual bool adds_bos() const = 0;             ///< add_special puts bos first
};

}  // namespace lamina

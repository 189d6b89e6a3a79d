// SentencePiece's BPE as Llama 2, Mistral and Gemma use it (`tokenizer.ggml.model` "llama").
// In: text. Out: ids: characters are merged, the pair with the highest score first, spaces written as U+2581; what is
// in no token becomes byte tokens <0x00> to <0xFF>. https://github.com/google/sentencepiece, src/bpe_model.cc
#include <array>
#include <memory>

#include "gguf/error.h"
#include "gguf/utf8.h"
#include "model/merge.h"
#include "model/vocabulary_tokenizer.h"
#include "model/word_cache.h"

namespace lamina {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

/// `text` with every `from` replaced.
std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  result.reserve(text.size() + text.size() / 2);
  for (size_t pos = 0;;) {
    const size_t found = text.find(from, pos);
    result.append(text.substr(pos, found - pos));
    if (found == std::string_view::npos) return result;
    result.append(to);
    pos = found + from.size();
  }
}

class SpmTokenizer : public VocabularyTokenizer {
 public:
  explicit SpmTokenizer(Vocabulary read) : VocabularyTokenizer(std::move(read)) {
    const Vocabulary& tokens = vocabulary();
    for (int byte = 0; byte < 256; ++byte) {
      byte_tokens_[byte] = tokens.find(fmt::format("<0x{:02X}>", byte));
      const char raw = static_cast<char>(byte);
      if (byte_tokens_[byte] < 0) byte_tokens_[byte] = tokens.find({&raw, 1});
      if (byte_tokens_[byte] < 0) byte_tokens_[byte] = tokens.unknown;
    }
    for (int32_t i = 0; i < tokens.size(); ++i) {
      longest_ = std::max(longest_, tokens.text(i).size());
      mark_joins(tokens.text(i));
    }
  }

 protected:
  void encode_text(std::string_view text, std::vector<int32_t>& out) const override {
    std::string marked = vocabulary().add_space_prefix ? std::string(kSpaceMark) : "";
    marked += replaced(text, " ", kSpaceMark);
    std::vector<Symbol> symbols;
    const auto encode = [&](std::string_view word, std::vector<int32_t>& ids) { encode_word(word, symbols, ids); };
    WordCache cache(marked.size());
    for (size_t begin = 0; begin < marked.size();) {
      const size_t end = word_end(marked, begin);
      cache.append(std::string_view(marked).substr(begin, end - begin), out, encode);
      begin = end;
    }
  }

  std::string token_bytes(int32_t token) const override {
    const std::string_view text = vocabulary().text(token);
    if (vocabulary().type(token) != TokenType::kByte) return replaced(text, kSpaceMark, " ");
    for (int byte = 0; byte < 256; ++byte) {
      if (byte_tokens_[byte] == token) return {static_cast<char>(byte)};
    }
    return "";
  }

  bool prefixes_space() const override { return vocabulary().add_space_prefix; }

 private:
  /// No token goes on from most characters to a space behind them, so words may be merged one by one. Notes the
  /// exceptions that `token` makes.
  void mark_joins(std::string_view token) {
    for (size_t pos = token.find(kSpaceMark, 1); pos < token.size(); pos = token.find(kSpaceMark, pos + 1)) {
      if (!token.substr(0, pos).ends_with(kSpaceMark)) joins_space_[static_cast<uint8_t>(token[pos - 1])] = true;
    }
  }

  /// Where the word that begins at `begin` ends: space marks, then anything up to the next space mark that may be cut
  /// off.
  size_t word_end(std::string_view text, size_t begin) const {
    size_t pos = begin;
    while (true) {
      while (text.substr(pos, kSpaceMark.size()) == kSpaceMark) pos += kSpaceMark.size();
      pos = std::min(text.find(kSpaceMark, pos), text.size());
      if (pos == text.size() || !joins_space_[static_cast<uint8_t>(text[pos - 1])]) return pos;
    }
  }

  void encode_word(std::string_view word, std::vector<Symbol>& symbols, std::vector<int32_t>& out) const {
    const Vocabulary& tokens = vocabulary();
    symbols.clear();
    for (size_t pos = 0; pos < word.size();) {
      const size_t size = std::max<size_t>(gguf::decode_utf8(word, pos).length, 1);
      const int32_t id = tokens.find(word.substr(pos, size));
      symbols.push_back({static_cast<uint32_t>(pos), static_cast<uint32_t>(size), id});
      pos += size;
    }
    merge_symbols(symbols, [&](const Symbol& left, const Symbol& right) -> Merge<float> {
      const size_t size = size_t{left.size} + right.size;
      if (size > longest_) return {};
      const int32_t id = tokens.find(word.substr(left.begin, size));
      return id < 0 ? Merge<float>{} : Merge<float>{-tokens.scores()[id], id};
    });
    for (const Symbol& symbol : symbols) {
      if (symbol.id >= 0) {
        out.push_back(symbol.id);
        continue;
      }
      for (const char byte : word.substr(symbol.begin, symbol.size)) {
        const int32_t id = byte_tokens_[static_cast<uint8_t>(byte)];
        if (id >= 0) out.push_back(id);
      }
    }
  }

  std::array<int32_t, 256> byte_tokens_{};  // -1: no token at all
  size_t longest_ = 0;                      // bytes of the longest token
  std::array<bool, 256> joins_space_{};     // last bytes of characters that some token has before a space mark
};

}  // namespace

std::unique_ptr<Tokenizer> make_spm_tokenizer(const gguf::File& file) {
  Vocabulary vocabulary =
      Vocabulary::read(file, {.bos = 1, .eos = 2, .unknown = 0, .add_bos = true, .add_space_prefix = true});
  if (vocabulary.scores().empty()) {
    fail(ErrorKind::kModel, "{}: tokenizer.ggml.scores is missing, which tokenizer.ggml.model \"llama\" needs",
         printable(file.path(), 200));
  }
  return std::make_unique<SpmTokenizer>(std::move(vocabulary));
}

}  // namespace lamina

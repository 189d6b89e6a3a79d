// Byte-level BPE as GPT-2 introduced it (`tokenizer.ggml.model` "gpt2").
// In: text. Out: ids: the text is cut into words (pretokenizer.h), each byte becomes a symbol, and the neighbours that
// come first in the list of merges are merged. https://github.com/openai/gpt-2, src/encoder.py
#include <spdlog/spdlog.h>

#include <array>
#include <bit>
#include <memory>

#include "gguf/error.h"
#include "gguf/utf8.h"
#include "model/merge.h"
#include "model/pretokenizer.h"
#include "model/vocabulary_tokenizer.h"
#include "model/word_cache.h"

namespace lamina {
namespace {

/// Vocabularies write each byte as a printable character: printable Latin-1 as itself, the others from U+0100 on in
/// order.
class ByteAlphabet {
 public:
  ByteAlphabet() {
    bytes_.fill(-1);
    uint32_t next = 0x100;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
      const uint32_t code_point = printable ? byte : next++;
      bytes_[code_point] = static_cast<int16_t>(byte);
      characters_[byte] = code_point < 0x80 ? std::string{static_cast<char>(code_point)}
                                            : std::string{static_cast<char>(0xC0 | code_point >> 6),
                                                          static_cast<char>(0x80 | (code_point & 0x3F))};
    }
  }

  const std::string& character(char byte) const { return characters_[static_cast<uint8_t>(byte)]; }

  /// The bytes that `text` stands for; what is no character of this alphabet stands for itself.
  std::string bytes(std::string_view text) const {
    std::string result;
    for (size_t pos = 0; pos < text.size();) {
      const gguf::Utf8Char c = gguf::decode_utf8(text, pos);
      const size_t length = std::max<size_t>(c.length, 1);
      if (c.length > 0 && c.code_point < bytes_.size() && bytes_[c.code_point] >= 0) {
        result += static_cast<char>(bytes_[c.code_point]);
      } else {
        result.append(text.substr(pos, length));
      }
      pos += length;
    }
    return result;
  }

 private:
  std::array<std::string, 256> characters_;
  std::array<int16_t, 0x144> bytes_;  // 68 bytes are not printable
};

/// Two symbols and what they become.
struct MergeRule {
  int32_t left = -1, right = -1, result = -1;
};

/// Rank and result of each pair of symbols that may be merged (open addressing, at most half full).
class MergeTable {
 public:
  /// `rules` by rank; the first of equal pairs counts. The table is larger than the caches, so slots are asked for
  /// ahead.
  explicit MergeTable(const std::vector<MergeRule>& rules) : slots_(std::bit_ceil(rules.size() * 2 + 2)) {
    constexpr size_t kAhead = 16;
    for (size_t rank = 0; rank < rules.size(); ++rank) {
      const MergeRule& soon = rules[std::min(rank + kAhead, rules.size() - 1)];
      __builtin_prefetch(&slots_[first_place(soon.left, soon.right)], 1);
      const MergeRule& rule = rules[rank];
      Slot& slot = slots_[place(rule.left, rule.right)];
      if (slot.left < 0) slot = {rule.left, rule.right, {static_cast<uint32_t>(rank), rule.result}};
    }
  }

  Merge<uint32_t> find(int32_t left, int32_t right) const { return slots_[place(left, right)].merge; }

 private:
  struct Slot {
    int32_t left = -1, right = -1;
    Merge<uint32_t> merge;
  };
  size_t first_place(int32_t left, int32_t right) const {
    const uint64_t pair = static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
    const uint64_t hash = pair * 0x9E3779B97F4A7C15;
    return (hash ^ hash >> 32) & (slots_.size() - 1);
  }
  size_t place(int32_t left, int32_t right) const {
    size_t i = first_place(left, right);
    while (slots_[i].left >= 0 && (slots_[i].left != left || slots_[i].right != right)) {
      i = (i + 1) & (slots_.size() - 1);
    }
    return i;
  }
  std::vector<Slot> slots_;
};

class BpeTokenizer : public VocabularyTokenizer {
 public:
  BpeTokenizer(Vocabulary read, const PretokenizerRow& row, const std::vector<std::string_view>& merges,
               const std::string& file_name)
      : VocabularyTokenizer(std::move(read)),
        pretokenizer_(row.patterns),
        ignore_merges_(row.ignore_merges),
        merges_(read_merges(merges, file_name)) {
    for (int byte = 0; byte < 256; ++byte) {
      byte_symbols_[byte] = symbol(alphabet_.character(static_cast<char>(byte)));
    }
  }

 protected:
  void encode_text(std::string_view text, std::vector<int32_t>& out) const override {
    WordCache cache(text.size());
    std::vector<Symbol> symbols;
    std::string written;
    for (const std::string_view word : pretokenizer_.split(text)) {
      cache.append(word, out, [&](std::string_view new_word, std::vector<int32_t>& ids) {
        if (!ignore_merges_ || !append_whole(new_word, written, ids)) append_merged(new_word, symbols, ids);
      });
    }
  }

  std::string token_bytes(int32_t token) const override { return alphabet_.bytes(vocabulary().text(token)); }

 private:
  std::vector<MergeRule> read_merges(const std::vector<std::string_view>& merges, const std::string& file_name) {
    constexpr size_t kAhead = 8;
    std::vector<MergeRule> rules(merges.size());
    std::string both;
    int32_t result = -1;
    for (size_t rank = 0; rank < merges.size(); ++rank) {
      const std::string_view soon = merges[std::min(rank + kAhead, merges.size() - 1)];
      vocabulary().prefetch(soon.substr(0, soon.find(' ', 1)));
      const std::string_view merge = merges[rank];
      const size_t blank = merge.find(' ', 1);
      if (blank == std::string_view::npos || blank + 1 == merge.size()) {
        fail(ErrorKind::kModel, "{}: tokenizer.ggml.merges[{}] is \"{}\", not two symbols with a space between",
             file_name, rank, printable(merge));
      }
      const std::string_view left = merge.substr(0, blank), right = merge.substr(blank + 1);
      both.assign(left).append(right);
      // Lists go through the tokens they make in order, so the last token or the next one is a good guess.
      const auto is_both = [&](int32_t id) { return vocabulary().contains(id) && vocabulary().text(id) == both; };
      if (is_both(result + 1)) {
        ++result;
      } else if (!is_both(result)) {
        result = symbol(both);
      }
      rules[rank] = {symbol(left), symbol(right), result};
    }
    return rules;
  }

  /// The symbol called `text`: its token, or a number behind all tokens where the vocabulary lacks it.
  int32_t symbol(std::string_view text) {
    const int32_t token = vocabulary().find(text);
    if (token >= 0) return token;
    const int32_t known = other_symbols_.find(text);
    return vocabulary().size() + (known >= 0 ? known : other_symbols_.add(text));
  }

  bool append_whole(std::string_view word, std::string& written, std::vector<int32_t>& out) const {
    written.clear();
    for (const char byte : word) written += alphabet_.character(byte);
    const int32_t token = vocabulary().find(written);
    if (token < 0 || vocabulary().type(token) == TokenType::kControl) return false;
    out.push_back(token);
    return true;
  }

  void append_merged(std::string_view word, std::vector<Symbol>& symbols, std::vector<int32_t>& out) const {
    symbols.resize(word.size());
    for (uint32_t i = 0; i < word.size(); ++i) symbols[i] = {i, 1, byte_symbols_[static_cast<uint8_t>(word[i])]};
    merge_symbols(symbols, [&](const Symbol& left, const Symbol& right) { return merges_.find(left.id, right.id); });
    for (const Symbol& symbol : symbols) {
      if (vocabulary().contains(symbol.id)) {
        out.push_back(symbol.id);
        continue;
      }
      for (const char byte : word.substr(symbol.begin, symbol.size)) {
        const int32_t id = byte_symbols_[static_cast<uint8_t>(byte)];
        if (vocabulary().contains(id)) {
          out.push_back(id);
        } else if (vocabulary().unknown >= 0) {
          out.push_back(vocabulary().unknown);
        }
      }
    }
  }

  ByteAlphabet alphabet_;
  Pretokenizer pretokenizer_;
  bool ignore_merges_;
  TextMap other_symbols_;  // symbols that only merges name; n_tokens + their number is their id
  MergeTable merges_;
  std::array<int32_t, 256> byte_symbols_{};
};

const PretokenizerRow& choose_pretokenizer(const gguf::File& file, const std::string& file_name) {
  constexpr std::string_view kKey = "tokenizer.ggml.pre";
  const std::string_view name = metadata_string(file, kKey, "");
  const PretokenizerRow& row = nearest_pretokenizer(name);
  if (name.empty()) {
    spdlog::warn("{}: {} is missing, text is cut into words as for \"{}\"", file_name, kKey, row.name);
  } else if (row.name != name) {
    spdlog::warn("{}: {} \"{}\" is unknown, text is cut into words as for \"{}\"", file_name, kKey, printable(name),
                 row.name);
  }
  return row;
}

}  // namespace

std::unique_ptr<Tokenizer> make_bpe_tokenizer(const gguf::File& file) {
  constexpr std::string_view kKey = "tokenizer.ggml.merges";
  constexpr size_t kMostMerges = size_t{1} << 22, kMostBytes = size_t{1} << 27;
  const std::string file_name = printable(file.path(), 200);
  const PretokenizerRow& row = choose_pretokenizer(file, file_name);
  const auto* merges = metadata_strings(file, kKey);
  if (merges == nullptr) {
    fail(ErrorKind::kModel, "{}: {} is missing, which tokenizer.ggml.model \"gpt2\" needs", file_name, kKey);
  }
  size_t n_bytes = 0;
  for (const std::string_view merge : *merges) n_bytes += merge.size();
  if (merges->size() > kMostMerges || n_bytes > kMostBytes) {
    fail(ErrorKind::kModel, "{}: {} has {} items of {} bytes, the limits are {} and {}", file_name, kKey,
         merges->size(), n_bytes, kMostMerges, kMostBytes);
  }
  return std::make_unique<BpeTokenizer>(Vocabulary::read(file, {.add_bos = row.add_bos}), row, *merges, file_name);
}

}  // namespace lamina

// Cuts a text into the words inside which byte-level BPE merges.
// In: patterns, applied one after the other: each cuts the pieces of the one before into its matches and what lies
// between. Out: pieces that together are the text. Patterns are PCRE2's, with Unicode classes, and come from the table
// below only: a file names a row, it never holds a pattern.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace lamina {

/// How one value of `tokenizer.ggml.pre` behaves.
struct PretokenizerRow {
  std::string_view name;
  std::span<const char* const> patterns;
  bool ignore_merges = false;  ///< a word that is a token is that token, whatever the merges make of it
  bool add_bos = false;        ///< where the file does not say
};

/// All names known; the first is for files without a name, the second for names that are like none.
std::span<const PretokenizerRow> pretokenizer_rows();

/// The row called `name`; else the one whose name begins most like it (at least three letters), else the second.
const PretokenizerRow& nearest_pretokenizer(std::string_view name);

class Pretokenizer {
 public:
  explicit Pretokenizer(std::span<const char* const> patterns);
  Pretokenizer(Pretokenizer&&) noexcept;
  ~Pretokenizer();

  /// The pieces of `text` in order. Bytes that are not UTF-8 are pieces of their own.
  std::vector<std::string_view> split(std::string_view text) const;

 private:
  class Pattern;
  std::vector<Pattern> patterns_;
};

}  // namespace lamina

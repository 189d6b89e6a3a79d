// Remembers the ids of the words of a text, since most words come again.
// In: a word and the place in the output where its ids begin and end. Out: that place when the word returns.
// It holds views only: words and output must outlive it. A new word takes the place of an old one with the same hash.
#pragma once
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "model/text_map.h"

namespace lamina {

class WordCache {
 public:
  /// `n_bytes`: size of the text that will be looked at; a short one gets a small table.
  explicit WordCache(size_t n_bytes) : entries_(std::bit_ceil(std::clamp<size_t>(n_bytes / 16, 1, 1 << 13))) {}

  /// Appends the ids of `word` to `out`: those of an earlier turn, else what `encode(word, out)` appends.
  template <class Encode>
  void append(std::string_view word, std::vector<int32_t>& out, const Encode& encode) {
    Entry& entry = entries_[hash_text(word) & (entries_.size() - 1)];
    const size_t begin = out.size();
    if (entry.word == word) {
      out.resize(begin + entry.n_ids);
      std::copy_n(out.begin() + static_cast<std::ptrdiff_t>(entry.begin), entry.n_ids,
                  out.begin() + static_cast<std::ptrdiff_t>(begin));
      return;
    }
    encode(word, out);
    entry = {word, begin, out.size() - begin};
  }

 private:
  struct Entry {
    std::string_view word;
    size_t begin = 0, n_ids = 0;  // its ids are out[begin, begin + n_ids)
  };
  std::vector<Entry> entries_;
};

}  // namespace lamina

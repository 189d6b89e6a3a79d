// Strings in one arena with a hash table over them: the text of every token and the way back from text to token.
// In: strings, numbered 0, 1, 2, ... as they are added. Out: the text of a number, and the number of a text.
// Built for vocabularies: 150,000 short strings go in within milliseconds, and nothing is allocated per string.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lamina {

/// Hash of a short string, 8 bytes a step (multiply and fold).
uint64_t hash_text(std::string_view text);

class TextMap {
 public:
  /// Room for `n_texts` strings with `n_bytes` bytes together, so that adding them moves nothing.
  void reserve(size_t n_texts, size_t n_bytes);

  /// Appends `text` and returns its number. A text that was there already is found under the new number from now on.
  int32_t add(std::string_view text);

  /// The number of `text`, or -1.
  int32_t find(std::string_view text) const { return find(text, hash_text(text)); }

  std::string_view text(int32_t number) const {
    return std::string_view(arena_).substr(begins_[number], begins_[number + 1] - begins_[number]);
  }
  int32_t size() const { return static_cast<int32_t>(begins_.size()) - 1; }

 private:
  struct Slot {
    uint32_t hash = 0;  // upper half of the text's hash; the lower half chose the slot
    int32_t number = -1;
  };
  int32_t find(std::string_view text, uint64_t hash) const;
  void rehash(size_t n_slots);

  std::string arena_;
  std::vector<size_t> begins_{0};  // text i is arena_[begins_[i], begins_[i + 1])
  std::vector<Slot> slots_;        // a power of two, at most half full
};

}  // namespace lamina

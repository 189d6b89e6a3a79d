// Strings in one arena with a hash table over them: the text of every token and the way back from text to token.
// In: strings, numbered 0, 1, 2, ... as they are added. Out: the text of a number, and the number of a text.
// Built for vocabularies: 150,000 short strings go in within milliseconds, and nothing is allocated per string.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace lamina {

/// Hash of a short string, 8 bytes a step (multiply and fold).
inline uint64_t hash_text(std::string_view text) {
  constexpr uint64_t kOdd = 0x9E3779B97F4A7C15;  // 2^64 / golden ratio
  uint64_t hash = text.size() * kOdd;
  size_t pos = 0;
  uint64_t word = 0;
  for (; text.size() - pos >= 8; pos += 8) {
    std::memcpy(&word, text.data() + pos, 8);
    hash = (hash ^ word) * kOdd;
    hash ^= hash >> 29;
  }
  word = 0;
  std::memcpy(&word, text.data() + pos, text.size() - pos);
  hash = (hash ^ word) * kOdd;
  return hash ^ hash >> 32;
}

class TextMap {
 public:
  /// Room for `n_texts` strings with `n_bytes` bytes together, so that adding them moves nothing.
  void reserve(size_t n_texts, size_t n_bytes);

  /// How many bytes all strings together may have.
  static constexpr size_t kMostBytes = UINT32_MAX;

  /// Appends `text` and returns its number. A text that was there already is found under the new number from now on.
  int32_t add(std::string_view text);

  /// The number of `text`, or -1.
  int32_t find(std::string_view text) const {
    return slots_.empty() ? -1 : slots_[place(text, hash_text(text))].number;
  }

  /// Asks the memory for what find(text) will look at.
  void prefetch(std::string_view text) const {
    if (!slots_.empty()) __builtin_prefetch(&slots_[hash_text(text) & (slots_.size() - 1)]);
  }

  std::string_view text(int32_t number) const {
    return std::string_view(arena_).substr(begins_[number], begins_[number + 1] - begins_[number]);
  }
  int32_t size() const { return static_cast<int32_t>(begins_.size()) - 1; }

 private:
  // The text's place in the arena stands here too, so that a look-up goes to memory twice, not three times.
  struct Slot {
    uint32_t hash = 0;  // upper half of the text's hash; the lower half chose the slot
    int32_t number = -1;
    uint32_t begin = 0, size = 0;
  };

  /// The slot that holds `text`, or the empty one where it belongs. Needs a slot that is empty.
  size_t place(std::string_view text, uint64_t hash) const {
    const auto upper = static_cast<uint32_t>(hash >> 32);
    const size_t mask = slots_.size() - 1;
    size_t i = hash & mask;
    for (;; i = (i + 1) & mask) {
      const Slot& slot = slots_[i];
      if (slot.number < 0) return i;
      if (slot.hash == upper && slot.size == text.size() &&
          std::memcmp(arena_.data() + slot.begin, text.data(), text.size()) == 0) {
        return i;
      }
    }
  }
  void rehash(size_t n_slots);

  std::string arena_;
  std::vector<uint32_t> begins_{0};  // text i is arena_[begins_[i], begins_[i + 1])
  std::vector<Slot> slots_;          // a power of two, at most half full
};

}  // namespace lamina

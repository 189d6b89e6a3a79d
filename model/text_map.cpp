// Strings in one arena with a hash table over them (open addressing, linear probing): see text_map.h.
// In: strings. Out: numbers, and back.
#include "model/text_map.h"

#include <bit>
#include <cstring>

namespace lamina {

uint64_t hash_text(std::string_view text) {
  constexpr uint64_t kOdd = 0x9E3779B97F4A7C15;  // 2^64 / golden ratio
  uint64_t hash = text.size() * kOdd;
  size_t pos = 0;
  for (; text.size() - pos >= 8; pos += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + pos, 8);
    hash = (hash ^ word) * kOdd;
    hash ^= hash >> 29;
  }
  uint64_t word = 0;
  std::memcpy(&word, text.data() + pos, text.size() - pos);
  hash = (hash ^ word) * kOdd;
  return hash ^ hash >> 32;
}

void TextMap::reserve(size_t n_texts, size_t n_bytes) {
  arena_.reserve(n_bytes);
  begins_.reserve(n_texts + 1);
  if (n_texts * 2 > slots_.size()) rehash(std::bit_ceil(n_texts * 2));
}

int32_t TextMap::add(std::string_view text) {
  const int32_t number = size();
  if (static_cast<size_t>(number + 1) * 2 > slots_.size()) {
    rehash(std::bit_ceil(static_cast<size_t>(number + 1) * 4));
  }
  arena_.append(text);
  begins_.push_back(arena_.size());
  const uint64_t hash = hash_text(text);
  const auto upper = static_cast<uint32_t>(hash >> 32);
  const size_t mask = slots_.size() - 1;
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    Slot& slot = slots_[i];
    if (slot.number >= 0 && (slot.hash != upper || this->text(slot.number) != text)) continue;
    slot = {upper, number};
    return number;
  }
}

int32_t TextMap::find(std::string_view text, uint64_t hash) const {
  if (slots_.empty()) return -1;
  const auto upper = static_cast<uint32_t>(hash >> 32);
  const size_t mask = slots_.size() - 1;
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    const Slot& slot = slots_[i];
    if (slot.number < 0) return -1;
    if (slot.hash == upper && this->text(slot.number) == text) return slot.number;
  }
}

void TextMap::rehash(size_t n_slots) {
  std::vector<Slot> old(n_slots);
  old.swap(slots_);
  for (const Slot& moved : old) {
    if (moved.number < 0) continue;
    size_t i = hash_text(text(moved.number)) & (n_slots - 1);
    while (slots_[i].number >= 0) i = (i + 1) & (n_slots - 1);
    slots_[i] = moved;
  }
}

}  // namespace lamina

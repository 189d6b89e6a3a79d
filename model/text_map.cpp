// Strings in one arena with a hash table over them (open addressing, linear probing): see text_map.h.
// In: strings. Out: numbers, and back.
#include "model/text_map.h"

#include <bit>

#include "gguf/error.h"

namespace lamina {

void TextMap::reserve(size_t n_texts, size_t n_bytes) {
  arena_.reserve(n_bytes);
  begins_.reserve(n_texts + 1);
  if (n_texts * 2 > slots_.size()) rehash(std::bit_ceil(n_texts * 2));
}

int32_t TextMap::add(std::string_view text) {
  LAMINA_CHECK(text.size() <= kMostBytes - arena_.size());
  const int32_t number = size();
  if (static_cast<size_t>(number + 1) * 2 > slots_.size()) {
    rehash(std::bit_ceil(static_cast<size_t>(number + 1) * 4));
  }
  const uint64_t hash = hash_text(text);
  slots_[place(text, hash)] = {static_cast<uint32_t>(hash >> 32), number, static_cast<uint32_t>(arena_.size()),
                               static_cast<uint32_t>(text.size())};
  arena_.append(text);
  begins_.push_back(static_cast<uint32_t>(arena_.size()));
  return number;
}

void TextMap::rehash(size_t n_slots) {
  std::vector<Slot> old(n_slots);
  old.swap(slots_);
  for (const Slot& moved : old) {
    if (moved.number < 0) continue;
    const std::string_view text(arena_.data() + moved.begin, moved.size);
    slots_[place(text, hash_text(text))] = moved;
  }
}

}  // namespace lamina

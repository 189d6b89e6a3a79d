// FNV-1a: names of cache files. Not for anything that an adversary may choose.
#pragma once
#include <cstdint>
#include <string_view>

namespace lamina {

inline uint64_t hash(std::string_view text) {
  uint64_t h = 0xcbf29ce484222325;
  for (const char c : text) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return h;
}

}  // namespace lamina

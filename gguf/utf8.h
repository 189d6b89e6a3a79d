// UTF-8, one character at a time.
// In: bytes of unknown quality. Out: the code point at a position and its length, or length 0 where the bytes are not
// UTF-8 (overlong forms, surrogates and numbers above U+10FFFF count as invalid).
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lamina::gguf {

struct Utf8Char {
  uint32_t code_point = 0;
  size_t length = 0;  ///< 1 to 4 bytes; 0 when invalid
};

/// The character that starts at `text[pos]`; needs pos < text.size().
inline Utf8Char decode_utf8(std::string_view text, size_t pos) {
  const auto lead = static_cast<uint8_t>(text[pos]);
  if (lead < 0x80) return {lead, 1};
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || length > text.size() - pos) return {};
  uint32_t code_point = lead & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) {
    const auto next = static_cast<uint8_t>(text[pos + i]);
    if ((next & 0xC0) != 0x80) return {};
    code_point = code_point << 6 | (next & 0x3F);
  }
  const uint32_t least = length == 4 ? 0x10000 : length == 3 ? 0x800 : 0x80;
  const bool surrogate = code_point >= 0xD800 && code_point <= 0xDFFF;
  if (code_point < least || code_point > 0x10FFFF || surrogate) return {};
  return {code_point, length};
}

/// Whether all of `text` is UTF-8.
inline bool is_utf8(std::string_view text) {
  for (size_t pos = 0; pos < text.size();) {
    const size_t length = decode_utf8(text, pos).length;
    if (length == 0) return false;
    pos += length;
  }
  return true;
}

}  // namespace lamina::gguf

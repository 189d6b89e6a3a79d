// The well-formed byte sequences of the Unicode standard, table 3-7, as ranges of the second byte.
#include "engine/utf8_stream.h"

#include <cstdint>
#include <utility>

namespace lamina {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// Bytes of the character that `lead` starts; 0 when it starts none.
size_t length_of(uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return 2;
  if (lead >= 0xE0 && lead <= 0xEF) return 3;
  if (lead >= 0xF0 && lead <= 0xF4) return 4;
  return 0;
}

/// Whether `next` may be byte `index` (from 1) of a character that `lead` starts.
bool continues(uint8_t lead, size_t index, uint8_t next) {
  if (index > 1) return next >= 0x80 && next <= 0xBF;
  const uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  return next >= low && next <= high;
}

}  // namespace

std::string Utf8Stream::push(std::string_view bytes) {
  held_ += bytes;
  std::string text;
  size_t pos = 0;
  while (pos < held_.size()) {
    const auto lead = static_cast<uint8_t>(held_[pos]);
    const size_t length = length_of(lead);
    size_t n = 1;
    while (n < length && pos + n < held_.size() && continues(lead, n, static_cast<uint8_t>(held_[pos + n]))) ++n;
    if (n < length && pos + n == held_.size()) break;  // the rest may still come
    if (n == length) {
      text.append(held_, pos, n);
    } else {
      text += kReplacement;
    }
    pos += n;
  }
  held_.erase(0, pos);
  return text;
}

std::string Utf8Stream::finish() {
  return std::exchange(held_, {}).empty() ? std::string() : std::string(kReplacement);
}

}  // namespace lamina

// Strings from files and users as they may appear on a terminal or in a log.
// In: any bytes. Out: UTF-8 without control characters, quotes or characters that reorder text, of bounded length.
#include "gguf/error.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "gguf/utf8.h"

namespace lamina {
namespace {

/// Characters that a terminal acts on or that change how their neighbours are shown: C0, C1, line separators,
/// zero-width and bidirectional controls, the byte order mark.
bool is_active(uint32_t c) {
  return c < 0x20 || (c >= 0x7F && c <= 0x9F) || c == 0x61C || (c >= 0x200B && c <= 0x200F) ||
         (c >= 0x2028 && c <= 0x202E) || (c >= 0x2060 && c <= 0x206F) || c == 0xFEFF;
}

}  // namespace

std::string printable(std::string_view text, size_t max_bytes) {
  constexpr std::string_view kEllipsis = "...";
  std::string out;
  size_t cut = 0;  // the longest prefix of `out` that leaves room for the ellipsis
  for (size_t pos = 0; pos < text.size() && out.size() <= max_bytes;) {
    if (out.size() + kEllipsis.size() <= max_bytes) cut = out.size();
    const auto [code_point, length] = gguf::decode_utf8(text, pos);
    if (length == 0) {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<uint8_t>(text[pos]));
    } else if (code_point == '\n') {
      out += "\\n";
    } else if (code_point == '\t') {
      out += "\\t";
    } else if (code_point == '\r') {
      out += "\\r";
    } else if (code_point == '"' || code_point == '\'' || code_point == '\\') {
      out += '\\';
      out += text[pos];
    } else if (is_active(code_point)) {
      if (code_point < 0x80) {
        fmt::format_to(std::back_inserter(out), "\\x{:02x}", code_point);
      } else {
        fmt::format_to(std::back_inserter(out), "\\u{:04x}", code_point);
      }
    } else {
      out.append(text, pos, length);
    }
    pos += std::max<size_t>(length, 1);
  }
  if (out.size() <= max_bytes) return out;
  out.resize(cut);
  return out.append(kEllipsis.substr(0, max_bytes - std::min(cut, max_bytes)));
}

}  // namespace lamina

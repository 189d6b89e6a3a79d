// Elements of SVG: see svg.h.
#include "tools/svg.h"

#include <fmt/format.h>

namespace lamina::svg {
namespace {

std::string escaped(const std::string& words) {
  std::string out;
  for (const char c : words) {
    if (c == '&') out += "&amp;";
    else if (c == '<') out += "&lt;";
    else if (c == '>') out += "&gt;";
    else if (static_cast<unsigned char>(c) < ' ') out += '?';
    else out += c;
  }
  return out;
}

}  // namespace

std::string line(const char* kind, double x1, double y1, double x2, double y2) {
  return fmt::format("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", kind, x1, y1, x2,
                     y2);
}

std::string text(const char* kind, double x, double y, const std::string& words) {
  return fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", kind, x, y, escaped(words));
}

}  // namespace lamina::svg

// The pieces of pictures. In: classes of the picture's style sheet, pixels, words. Out: SVG elements, one a line.
#pragma once
#include <string>

namespace lamina::svg {

std::string line(const char* kind, double x1, double y1, double x2, double y2);

/// Characters that SVG gives a meaning are escaped.
std::string text(const char* kind, double x, double y, const std::string& words);

}  // namespace lamina::svg

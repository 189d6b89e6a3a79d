// Ops against the roofs of a machine. In: speeds and peaks. Out: which roof binds each op and how near it comes, and a
// picture (SVG): operations a byte against operations a second, both logarithmic.
#pragma once
#include <span>
#include <string>

#include "engine/op_cases.h"
#include "engine/op_speed.h"

namespace lamina {

/// One measured op.
struct OpRow {
  OpLabel label;
  OpRows rows;
  OpSpeed speed;
};

/// What bounds an op: the time that memory or arithmetic needs at their peaks, whichever is longer.
struct Roof {
  const char* name = "";     ///< "memory", "int8", "float32"
  double share_of_roof = 0;  ///< that time over the measured one
};

/// Needs peaks above zero.
Roof roof_of(const OpSpeed& speed, const Peaks& peaks);

/// The picture; rows without operations are left out.
std::string roofline_svg(std::span<const OpRow> rows, const Peaks& peaks, const std::string& title);

}  // namespace lamina

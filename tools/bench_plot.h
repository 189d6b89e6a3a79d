// A picture of bench's rows. Out: an SVG with a bar for the average rate of each row and a line from its slowest to its
// fastest repetition; prompt processing and generation apart, for their rates differ by much.
#pragma once
#include <span>
#include <string>

#include "tools/bench_row.h"

namespace lamina {

std::string bench_svg(std::span<const BenchRow> rows);

}  // namespace lamina

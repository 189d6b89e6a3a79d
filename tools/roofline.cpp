// Roofs and their picture: see roofline.h.
#include "tools/roofline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tools/svg.h"

namespace lamina {
namespace {

using svg::line;
using svg::text;

// Sizes in pixels.
constexpr double kWidth = 1240, kHeight = 720, kLeft = 80, kRight = 170, kTop = 50, kBottom = 60;
constexpr double kLineHeight = 13, kLetterWidth = 6.2;

constexpr const char* kStyle =
    "<style>text{font:11px "
    "sans-serif;fill:#222}.title{font-size:15px;font-weight:bold}.tick{fill:#666}.mid{text-anchor:"
    "middle}.end{text-anchor:end}.grid{stroke:#e4e4e4}.roof{stroke:#222;stroke-width:2;fill:none}.lead{stroke:#aaa}"
    ".few{fill:#cc3311}.many{fill:#0077bb}</style>\n";

/// A logarithmic axis over whole decades.
struct Axis {
  double first = 0, last = 0;  ///< exponents of ten
  double from = 0, to = 0;     ///< pixels

  double at(double value) const { return from + (std::log10(value) - first) / (last - first) * (to - from); }
};

Axis axis_over(double least, double most, double from, double to) {
  return {std::floor(std::log10(least)), std::ceil(std::log10(most)), from, to};
}

/// Labels that do not lie on each other: each goes to the first free line below its point.
class Labels {
 public:
  double place(double x, double y, double width) {
    const auto hits = [&](const Box& box) {
      return x < box.x + box.width && box.x < x + width && std::fabs(y - box.y) < kLineHeight;
    };
    while (std::ranges::any_of(boxes_, hits)) y += 1;
    boxes_.push_back({x, y, width});
    return y;
  }

 private:
  struct Box {
    double x, y, width;
  };
  std::vector<Box> boxes_;
};

std::string grid(const Axis& x, const Axis& y) {
  std::string out;
  for (double e = x.first; e <= x.last; ++e) {
    const double at = x.at(std::pow(10, e));
    out += line("grid", at, y.from, at, y.to) + text("tick mid", at, y.from + 16, fmt::format("{:g}", std::pow(10, e)));
  }
  for (double e = y.first; e <= y.last; ++e) {
    const double at = y.at(std::pow(10, e));
    out +=
        line("grid", x.from, at, x.to, at) + text("tick end", x.from - 6, at + 4, fmt::format("{:g}", std::pow(10, e)));
  }
  return out + text("mid", (x.from + x.to) / 2, y.from + 40, "operations a byte") +
         text("", x.from - 60, y.to - 10, "G operations a second");
}

/// The memory roof up to `flops`, then level.
std::string roof(const Axis& x, const Axis& y, double bandwidth, double flops, const std::string& name) {
  const double ridge = flops / bandwidth,
               left = std::pow(10, std::max(x.first, y.first - std::log10(bandwidth * 1e-9)));
  return fmt::format("<polyline class=\"roof\" points=\"{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}\"/>\n", x.at(left),
                     y.at(left * bandwidth * 1e-9), x.at(ridge), y.at(flops * 1e-9), x.to, y.at(flops * 1e-9)) +
         text("end", x.to - 4, y.at(flops * 1e-9) - 6, fmt::format("{} {:.0f} G/s", name, flops * 1e-9));
}

}  // namespace

Roof roof_of(const OpSpeed& speed, const Peaks& peaks) {
  const double memory = speed.bytes / peaks.read_bytes_per_second;
  const double compute = speed.operations / (speed.int8 ? peaks.int8_flops : peaks.float32_flops);
  if (memory >= compute) return {"memory", memory / speed.seconds};
  return {speed.int8 ? "int8" : "float32", compute / speed.seconds};
}

std::string roofline_svg(std::span<const OpRow> all, const Peaks& peaks, const std::string& title) {
  struct Point {
    double intensity, rate;  ///< operations a byte, G operations a second
    const OpRow* row;
  };
  std::vector<Point> points;
  for (const OpRow& row : all) {
    const OpSpeed& s = row.speed;
    if (s.operations > 0) points.push_back({s.operations / s.bytes, s.operations / s.seconds * 1e-9, &row});
  }
  const double most_rate = std::max(peaks.int8_flops, peaks.float32_flops) * 1e-9;
  double least_x = 1, most_x = 2 * most_rate / peaks.read_bytes_per_second * 1e9, least_y = most_rate / 10;
  for (const Point& point : points) {
    least_x = std::min(least_x, point.intensity);
    most_x = std::max(most_x, point.intensity);
    least_y = std::min(least_y, point.rate);
  }
  const Axis x = axis_over(least_x, most_x, kLeft, kWidth - kRight);
  const Axis y = axis_over(least_y, most_rate, kHeight - kBottom, kTop);

  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\">\n{2}"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
      kWidth, kHeight, kStyle);
  out += text("title", kLeft, 22, title) + grid(x, y);
  out += roof(x, y, peaks.read_bytes_per_second, peaks.int8_flops, "int8");
  out += roof(x, y, peaks.read_bytes_per_second, peaks.float32_flops, "float32");
  const double named = std::pow(10, (x.first + std::log10(peaks.float32_flops / peaks.read_bytes_per_second)) / 2);
  out += text("end", x.at(named) - 8, y.at(named * peaks.read_bytes_per_second * 1e-9) - 4,
              fmt::format("memory {:.1f} GB/s", peaks.read_bytes_per_second * 1e-9));

  std::ranges::sort(points, std::greater(), &Point::rate);  // from above: labels move downwards
  Labels labels;
  for (const Point& point : points) {
    const OpRow& row = *point.row;
    const std::string words = fmt::format("{} {} x{}", row.label.name, row.label.types, row.rows.n_rows);
    const double px = x.at(point.intensity), py = y.at(point.rate),
                 width = kLetterWidth * static_cast<double>(words.size());
    const bool to_left = px + 8 + width > kWidth;
    const double lx = to_left ? px - 8 - width : px + 8, ly = labels.place(lx, py + 4, width);
    if (ly > py + 8) out += line("lead", px, py, to_left ? lx + width : lx - 2, ly - 4);
    out += fmt::format("<circle class=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"/>\n",
                       row.rows.n_rows == 1 ? "few" : "many", px, py);
    out += text(to_left ? "end" : "", to_left ? lx + width : lx, ly, words);
  }
  return out + "</svg>\n";
}

}  // namespace lamina

// Bars of text: see bench_plot.h.
#include "tools/bench_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tools/svg.h"

namespace lamina {
namespace {

// Sizes in pixels.
constexpr int kLabels = 470, kBars = 440, kValues = 110, kMargin = 20;
constexpr int kWidth = kMargin + kLabels + kBars + kValues + kMargin;
constexpr int kRow = 26, kBar = 16, kTitle = 44, kAxis = 34;

constexpr const char* kStyle =
    "<style>text{font:13px "
    "sans-serif;fill:#222}.title{font-size:15px;font-weight:bold}.tick{font-size:11px;fill:#666;text-anchor:middle}"
    ".label{text-anchor:end}.bar{fill:#4477aa}.grid{stroke:#ddd}.range{stroke:#222;stroke-width:1.5}</style>\n";

/// A step of 1, 2 or 5 times a power of ten that divides 0 .. most into at most five parts.
double tick_step(double most) {
  const double power = std::pow(10, std::floor(std::log10(most / 5)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (most / (factor * power) <= 5) return factor * power;
  }
  return 10 * power;
}

/// A title, the rows' bars on a common scale from 0, and the scale. Moves `y` below itself.
std::string panel(const std::string& title, const std::vector<const BenchRow*>& rows, double& y) {
  double most = 0;
  for (const BenchRow* row : rows) most = std::max(most, row->rate.most);
  const double left = kMargin + kLabels, scale = kBars / most, step = tick_step(most);
  const double top = y + kTitle, bottom = top + kRow * static_cast<double>(rows.size());

  std::string out = svg::text("title", kMargin, y + 28, title);
  for (double tick = 0; tick <= most; tick += step) {
    const double x = left + tick * scale;
    out += svg::line("grid", x, top, x, bottom) + svg::text("tick", x, bottom + 16, fmt::format("{:g}", tick));
  }
  double middle = top + kRow / 2.0;
  for (const BenchRow* row : rows) {
    const Summary& rate = row->rate;
    const BenchModel& model = row->model;
    out += svg::text("label", left - 8, middle + 4,
                     fmt::format("{}, {}, {} threads, batch {}", model.label, row->result.test.name(), model.n_threads,
                                 model.n_batch));
    out += fmt::format("<rect class=\"bar\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\"/>\n", left,
                       middle - kBar / 2.0, rate.average * scale, kBar);
    out += svg::line("range", left + rate.least * scale, middle, left + rate.most * scale, middle);
    out += svg::text("value", left + rate.most * scale + 8, middle + 4, fmt::format("{:.1f}", rate.average));
    middle += kRow;
  }
  y = bottom + kAxis;
  return out;
}

}  // namespace

std::string bench_svg(std::span<const BenchRow> rows) {
  double y = 0;
  std::string panels;
  for (const bool prompt : {true, false}) {
    std::vector<const BenchRow*> chosen;
    for (const BenchRow& row : rows) {
      if ((row.result.test.n_prompt > 0) == prompt) chosen.push_back(&row);
    }
    if (!chosen.empty()) panels += panel(prompt ? "Prompt processing, tokens/s" : "Generation, tokens/s", chosen, y);
  }
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1:.0f}\" viewBox=\"0 0 {0} "
             "{1:.0f}\">\n",
             kWidth, y + kMargin) +
         kStyle + fmt::format("<rect width=\"{}\" height=\"{:.0f}\" fill=\"#fff\"/>\n", kWidth, y + kMargin) + panels +
         "</svg>\n";
}

}  // namespace lamina

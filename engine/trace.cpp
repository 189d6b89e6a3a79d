// Looks inside the steps of an engine: see trace.h.
#include "engine/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace lamina {
namespace {

/// The first value of op `index` that is not finite.
std::optional<TracedValue> non_finite(const Engine& engine, size_t index) {
  for (const Place& place : places_of(engine.program().ops[index])) {
    const std::vector<float> values = engine.executable().read(place);
    const auto found = std::ranges::find_if_not(values, [](float x) { return std::isfinite(x); });
    if (found == values.end()) continue;
    const uint32_t at = static_cast<uint32_t>(found - values.begin()), width = width_of(engine.program(), place);
    return TracedValue{index, place, at / width, at % width, *found};
  }
  return std::nullopt;
}

}  // namespace

std::optional<TracedValue> find_non_finite(Engine& engine, const std::function<void()>& evaluate) {
  struct Tracing {
    Engine& engine;
    ~Tracing() { engine.set_trace({}); }
  };
  std::optional<TracedValue> found;
  engine.set_trace([&](size_t index) {
    if (!found) found = non_finite(engine, index);
    return !found;
  });
  const Tracing tracing{engine};
  evaluate();
  return found;
}

std::string to_text(const Program& program, const TracedValue& traced) {
  return fmt::format("op {}, {}, wrote {} to {}, row {}, column {}", traced.op,
                     to_text(program, program.ops[traced.op]), traced.value, name_of(program, traced.place), traced.row,
                     traced.col);
}

}  // namespace lamina

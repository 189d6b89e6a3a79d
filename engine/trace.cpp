// Looks inside the steps of an engine: see trace.h.
#include "engine/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "gguf/error.h"

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

/// Traces steps of an engine while it lives.
struct Tracing {
  Tracing(Engine& traced, AfterOp after_op) : engine(traced) { engine.set_trace(std::move(after_op)); }
  ~Tracing() { engine.set_trace({}); }
  Tracing(const Tracing&) = delete;
  Tracing& operator=(const Tracing&) = delete;
  Engine& engine;
};

bool same_number(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

/// Tokens [first, end) of one sequence, whose page i is page i; logits of the last.
Step step_of(std::span<const int32_t> tokens, uint32_t first, uint32_t end) {
  Step step;
  step.pages.emplace_back(pages_for(end));
  std::iota(step.pages[0].begin(), step.pages[0].end(), 0u);
  for (uint32_t position = first; position < end; ++position) {
    step.token.push_back(tokens[position]);
    step.position.push_back(position);
    step.sequence.push_back(0);
  }
  step.outputs = {end - first - 1};
  return step;
}

/// Runs one step on both; see find_difference.
std::optional<Difference> difference_in(Engine& engine, Executable& reference, const Step& step,
                                        const std::atomic<bool>* cancel) {
  const Program& program = engine.program();
  const auto go_on = [cancel] { return cancel == nullptr || !cancel->load(); };
  std::vector<std::vector<float>> written;  // places of all ops, in turn
  {
    const Tracing tracing(engine, [&](size_t index) {
      for (const Place& place : places_of(program.ops[index])) written.push_back(engine.executable().read(place));
      return go_on();
    });
    engine.run(step);
  }
  std::optional<Difference> found;
  size_t next = 0;
  reference.trace(step, [&](size_t index) {
    for (const Place& place : places_of(program.ops[index])) {
      const std::vector<float> got = std::move(written[next++]), expected = reference.read(place);
      LAMINA_CHECK(got.size() == expected.size());
      for (size_t i = 0; i < got.size(); ++i) {
        if (same_number(got[i], expected[i])) continue;
        const uint32_t width = width_of(program, place);
        if (!found) {
          const TracedValue value{index, place, static_cast<uint32_t>(i / width), static_cast<uint32_t>(i % width),
                                  got[i]};
          found =
              Difference{value, expected[i], 0, got.size(), static_cast<uint32_t>(step.token.size()), step.position[0]};
        }
        ++found->n_differ;
      }
      if (found) return false;
    }
    return go_on();
  });
  return found;
}

}  // namespace

std::optional<Difference> find_difference(Engine& engine, Executable& reference, std::span<const int32_t> tokens,
                                          const std::atomic<bool>* cancel) {
  LAMINA_CHECK(!tokens.empty());
  const auto n = static_cast<uint32_t>(tokens.size());
  for (uint32_t first = 0, end = 0; first < n; first = end) {
    end = first + 1 < n ? std::min(n - 1, first + engine.max_rows()) : n;
    const Step step = step_of(tokens, first, end);
    if (const auto found = difference_in(engine, reference, step, cancel)) return found;
    if (cancel != nullptr && cancel->load()) break;
  }
  return std::nullopt;
}

std::optional<TracedValue> find_non_finite(Engine& engine, const std::function<void()>& evaluate) {
  std::optional<TracedValue> found;
  const Tracing tracing(engine, [&](size_t index) {
    if (!found) found = non_finite(engine, index);
    return true;  // the evaluation is as good as any
  });
  evaluate();
  return found;
}

std::string to_text(const Program& program, const TracedValue& traced) {
  return fmt::format("op {}, {}, wrote {} to {}, row {}, column {}", traced.op,
                     to_text(program, program.ops[traced.op]), traced.value, name_of(program, traced.place), traced.row,
                     traced.col);
}

}  // namespace lamina

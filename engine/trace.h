// Looks inside the steps of an engine, op by op. In: an engine and something to evaluate on it. Out: the first op that
// wrote a number that is not finite.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "engine/engine.h"

namespace lamina {

/// A value that an op wrote.
struct TracedValue {
  size_t op = 0;  ///< index into Program::ops
  Place place;
  uint32_t row = 0, col = 0;
  float value = 0;
};

/// Runs `evaluate`, which evaluates sessions of `engine`, op by op until an op writes a number that is not finite; the
/// rest of its steps is left out then, so rewind the sessions before they are used again. Nothing when all are finite.
std::optional<TracedValue> find_non_finite(Engine& engine, const std::function<void()>& evaluate);

/// "op 12, norm    y = ..., wrote nan to y, row 0, column 3".
std::string to_text(const Program& program, const TracedValue& traced);

}  // namespace lamina

// Looks inside the steps of an engine, op by op. In: an engine and something to evaluate on it. Out: the first op that
// wrote a number that is not finite, or another number than a second device did.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
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

/// Runs `evaluate`, which evaluates sessions of `engine`, op by op: the first number that is not finite among all that
/// the ops write. Nothing when all are finite.
std::optional<TracedValue> find_non_finite(Engine& engine, const std::function<void()>& evaluate);

/// The first place where a device and the reference differ.
struct Difference {
  TracedValue got;
  float expected = 0;
  uint64_t n_differ = 0, n_values = 0;  ///< in that place
  uint32_t n_rows = 0, position = 0;    ///< of the step: its rows, and the position of the first
};

/// Evaluates `tokens` (at least one) as a new sequence on `engine` and, with the same steps, on `reference`, which must
/// have been compiled from the engine's program with room for them: all but the last token in steps of the engine's
/// rows, then the last one alone. Compares all that each op writes, bit by bit (all NaN are the same); values that
/// follow from a difference are not looked at. Nothing when all are equal or `cancel` was set.
std::optional<Difference> find_difference(Engine& engine, Executable& reference, std::span<const int32_t> tokens,
                                          const std::atomic<bool>* cancel = nullptr);

/// "op 12, norm    y = ..., wrote nan to y, row 0, column 3".
std::string to_text(const Program& program, const TracedValue& traced);

}  // namespace lamina

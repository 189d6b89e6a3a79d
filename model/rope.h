// Rotary frequencies of a model. In: a Config, the file's factor tensors and the context size. Out: a Rope, all scaling
// (linear, YaRN, longrope and llama-3 factors) folded in, computed in double.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/program.h"
#include "model/config.h"

namespace lamina {

/// The rope of layers that see all positions. `factors` divide each pair's frequency: [n_rot / 2], or empty.
Rope make_rope(const Config& config, std::span<const float> factors);

/// The rope of windowed layers, which have a base of their own.
Rope make_window_rope(const Config& config, std::span<const float> factors);

/// The factors that hold for a context of n_ctx tokens: rope_freqs, or rope_factors_long beyond the original context
/// length, rope_factors_short within it; empty when the file has none. Throws Error(kModel) for a wrong shape or a
/// factor of 0, infinity or NaN.
std::vector<float> rope_factors(const gguf::File& file, const Config& config, uint32_t n_ctx);

}  // namespace lamina

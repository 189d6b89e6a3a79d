// `lamina ops --ladder`: one product of each type on every rung, from the scalar reference to the best instruction set
// of this CPU, and within each on every width of token tile. In: types, threads, rows of a prompt. Out: on stdout a
// table (md) or an array of objects (json) with time, bytes and operations a second, shares of the measured peaks, and
// what a rung gains over the one before.
#pragma once
#include <cstdint>
#include <span>

#include "gguf/type.h"

namespace lamina {

struct LadderOptions {
  int n_threads = 0;        ///< as CpuOptions has it; the reference has one
  uint32_t n_prompt = 128;  ///< most rows; fewer rows are those of token tiles
  bool json = false;
};

/// Errors as make_cpu_device and Device::compile.
void write_ladder(std::span<const gguf::Type* const> types, const LadderOptions& options);

}  // namespace lamina

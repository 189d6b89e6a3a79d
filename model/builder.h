// A model's forward pass as a Program. In: a File and its Config. Out: the list of fused ops that every device runs,
// with all weights, shapes and buffers bound. The program refers to tensors of the File, which must outlive it.
#pragma once
#include "gguf/file.h"
#include "kernels/program.h"
#include "model/config.h"

namespace lamina {

struct BuildOptions {
  uint32_t n_ctx = 0;  ///< context size in tokens: bounds learned positions, chooses longrope's factors
};

/// Throws Error(kModel) naming the tensor that is missing or does not fit, Error(kUsage) for a context the model cannot
/// hold.
Program build_program(const gguf::File& file, const Config& config, const BuildOptions& options);

}  // namespace lamina

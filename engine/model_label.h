// What a model is called in tables. In: a file's metadata and tensors. Out: one line of text and its number of weights.
#pragma once
#include <cstdint>
#include <string>

#include "gguf/file.h"

namespace lamina {

/// "llama 135M Q4_1": architecture, size and the most frequent weight type, as llama-bench names models.
std::string model_label(const gguf::File& file);

/// Elements of all tensors.
uint64_t n_params(const gguf::File& file);

}  // namespace lamina

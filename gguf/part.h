// One GGUF file on its own: a whole model, or one part of a split set.
// In: a mapped file. Out: its metadata and tensors in file order, checked against the bytes that are there. What needs
// a view over all parts (names that occur twice, split.*) is left to file.cpp.
#pragma once
#include <cstdint>
#include <vector>

#include "gguf/file.h"
#include "gguf/mapping.h"

namespace lamina::gguf {

struct Part {
  uint32_t version = 0;
  std::vector<KeyValue> metadata;
  std::vector<Tensor> tensors;
  uint64_t trailing_bytes = 0;  ///< after the last tensor and its padding
};

/// Reads and checks `mapping`, which must outlive the result. Throws Error(kModel).
Part read_part(const Mapping& mapping);

}  // namespace lamina::gguf

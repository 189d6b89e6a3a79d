// Weights for measurements: tensors of any type and shape whose values do not matter. In: types and shapes. Out:
// tensors with bytes behind them, and the File that a device wants beside them. All tensors share the bytes of one
// temporary file; a device gives each its own planes, so memory traffic is real.
#pragma once
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "gguf/file.h"

namespace lamina {

class SyntheticWeights {
 public:
  /// A new tensor; it has no bytes before open(). The reference stays valid.
  const gguf::Tensor& add(const std::string& name, const gguf::Type& type, const std::vector<uint64_t>& shape);

  /// Gives the tensors their bytes; none is added afterwards. Throws Error(kRuntime) when the temporary file cannot be
  /// written.
  const gguf::File& open();

 private:
  std::deque<gguf::Tensor> tensors_;
  std::optional<gguf::File> file_;
};

}  // namespace lamina

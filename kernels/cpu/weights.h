// The weights of a program on the CPU: matrices as planes, small tensors as padded float32, each loaded once.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/pool.h"
#include "kernels/device.h"
#include "kernels/planes.h"

namespace lamina::cpu {

/// A matrix for each expert (one for a dense weight), and its product kernels by index into kTokenTiles.
struct Matrix {
  std::vector<Planes> planes;
  const ProductKernels* kernels = nullptr;
  uint64_t bytes() const;
};

class Weights {
 public:
  /// Reserves planes for every matrix of the linear ops of `program`. Throws Error(kDevice) naming op, tensor and type
  /// when a type has no kernel.
  Weights(const Program& program, const Kernels& kernels);

  /// Fills the planes, tensor by tensor with all threads; the file's pages are dropped behind.
  void load(const gguf::File& file, Pool& pool, const Progress& progress);

  const Matrix& matrix(const Weight& weight) const;

  /// The whole tensor's planes if a linear op uses all its rows (tied embeddings), else nullptr.
  const Planes* whole(const gguf::Tensor* tensor) const;

  /// `n` float32 elements for each of n_expert matrices, each padded to 16 with zeros; nullptr for an absent vector.
  const float* vector(const Vector& v, uint32_t n, uint32_t n_expert = 1);

  uint64_t bytes() const;

 private:
  using Key = std::tuple<const gguf::Tensor*, uint32_t, uint32_t>;  // tensor, first, n
  static void fill(const Weight& weight, Matrix& matrix, Pool& pool);

  std::vector<std::pair<const Weight*, Matrix*>> wanted_;  ///< in the order of the program, each matrix once
  std::map<Key, Matrix> matrices_;
  std::map<Key, std::vector<float>> vectors_;
};

}  // namespace lamina::cpu

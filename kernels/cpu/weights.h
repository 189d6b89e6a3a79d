// The weights of a program on the CPU: matrices as planes, small tensors as padded float32, each loaded once.
#pragma once
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/pool.h"
#include "kernels/device.h"
#include "kernels/planes.h"

namespace lamina::cpu {

/// A matrix for each expert (one for a dense weight), and its product kernels by index into kTokenTiles.
struct Matrix {
  std::vector<Planes> planes;
  const MatmulFn* matmul = nullptr;
  uint64_t bytes() const;
};

class Weights {
 public:
  /// Loads every weight of the linear ops and every vector of `program`, tensor by tensor with all threads; the file's pages
  /// are dropped behind. Throws Error(kDevice) naming op, tensor and type when a type has no kernel.
  Weights(const Program& program, const gguf::File& file, const Kernels& kernels, Pool& pool, const Progress& progress);

  const Matrix& matrix(const Weight& weight) const;

  /// The whole tensor's planes if a linear op uses all its rows (tied embeddings), else nullptr.
  const Planes* whole(const gguf::Tensor* tensor) const;

  /// float32 elements, each expert padded to 16 with zeros; nullptr for an absent vector.
  const float* vector(const Vector& v) const;

  uint64_t bytes() const;

 private:
  using Key = std::tuple<const gguf::Tensor*, uint32_t, uint32_t>;  // tensor, first, n
  void load_matrix(const Weight& weight, const Kernels& kernels, Pool& pool);
  void load_vector(const Vector& v);

  std::map<Key, Matrix> matrices_;
  std::map<Key, std::vector<float>> vectors_;
};

/// The prefix that error messages of the CPU device share: "op 3 (linear)".
std::string op_name(const Program& program, size_t index);

}  // namespace lamina::cpu

// The weights of a program on an OpenCL device: matrices as planes (planes.h) in buffers of at most the device's
// greatest size, small tensors as float32 in one buffer.
// In: a program and its file. Out: buffers, and for kernels where in them things stand. First all that is wanted is
// named, then memory is compared and taken, then load() fills it with all threads.
#pragma once
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/launch_args.h"
#include "kernels/opencl/api.h"
#include "kernels/planes.h"
#include "kernels/pool.h"
#include "kernels/program.h"

namespace lamina::opencl {

/// Some rows of some experts of a matrix, in a buffer of their own.
struct Part {
  Buffer buffer;
  launch::PlaneArgs planes = {};
  uint64_t bytes = 0;
  uint32_t first_row = 0, n_rows = 0, first_expert = 0, n_expert = 1;
};

struct Matrix {
  const Weight* weight = nullptr;
  std::vector<Part> parts;
  uint64_t bytes() const;
};

/// Defines that tell kernel text all of a type: -DLO_BITS=4 ...
std::string type_defines(const gguf::Type& type);

class Weights {
 public:
  explicit Weights(const Target& target) : target_(target) {}

  /// The matrix of a weight, planned when it is new; valid as long as this.
  const Matrix& matrix(const Weight& weight);

  /// Where `n` values of a vector for each of n_expert matrices stand in vectors(), each padded to 16; kNone for an
  /// absent one.
  uint32_t vector(const Vector& v, uint32_t n, uint32_t n_expert = 1);
  /// The same for given values.
  uint32_t values(const std::vector<float>& values);

  uint64_t bytes() const;  ///< of all that was named
  void allocate();
  void load(const gguf::File& file, Pool& pool, const Progress& progress);
  cl_mem vectors() const { return vector_buffer_.get(); }

 private:
  using Key = std::tuple<const gguf::Tensor*, uint32_t, uint32_t>;  // tensor, first, n
  void fill(const Matrix& matrix, const Part& part, const gguf::File& file, Pool& pool);

  const Target& target_;
  std::map<Key, Matrix> matrices_;
  std::map<Key, uint32_t> vector_at_;
  std::vector<float> values_;
  Buffer vector_buffer_;
};

}  // namespace lamina::opencl

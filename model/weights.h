// Tensors by name, bound to the parts of an op. In: a File, names and the shapes that the Config implies. Out: Weight,
// Vector and Product values. A tensor that is missing, or has another shape or a type that cannot be used, is refused
// by name.
#pragma once
#include <cstdint>
#include <string>

#include "kernels/program.h"

namespace lamina {

/// Rows [first, first + n) of a tensor that holds `total` rows: one part of a fused matrix.
struct Rows {
  uint32_t first = 0;
  uint32_t n = 0;
  uint32_t total = 0;
  static Rows all(uint32_t n) { return {0, n, n}; }
};

class Weights {
 public:
  explicit Weights(const gguf::File& file) : file_(file) {}

  bool has(const std::string& name) const { return file_.tensor(name) != nullptr; }

  /// Rows of `name`, all further dimensions together; 0 when it is missing.
  uint64_t n_rows(const std::string& name) const { return has(name) ? file_.tensor(name)->n_rows() : 0; }

  /// Rows of the matrix `name` [n_cols, rows.total]; with experts [n_cols, rows.total, n_expert].
  Weight matrix(const std::string& name, uint32_t n_cols, Rows rows, uint32_t n_expert = 1) const;

  /// The first n_rows rows of a matrix that may have more.
  Weight leading_rows(const std::string& name, uint32_t n_cols, uint32_t n_rows) const;

  /// The vector `name` [n]; absent when the file lacks it.
  Vector optional_vector(const std::string& name, uint32_t n) const;

  /// `base`.weight and, where the file has them, `base`.bias and `base`.scale.
  Norm norm(const std::string& base, NormKind kind, double eps, uint32_t n) const;
  Product product(const std::string& base, uint32_t n_cols, Rows rows, Buf out, uint32_t n_expert = 1) const;

 private:
  const gguf::Tensor& require(const std::string& name) const;
  const gguf::File& file_;
};

}  // namespace lamina

// Binding of tensors by name: see weights.h.
#include "model/weights.h"

#include <algorithm>
#include <vector>

#include "gguf/error.h"

namespace lamina {
namespace {

std::string shape_text(const std::vector<uint64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

/// Refuses a tensor whose shape is not `shape`; dimensions of 1 at the end do not count.
void check_shape(const gguf::Tensor& tensor, std::vector<uint64_t> shape) {
  std::vector<uint64_t> actual = tensor.shape;
  while (actual.size() > 1 && actual.back() == 1) actual.pop_back();
  while (shape.size() > 1 && shape.back() == 1) shape.pop_back();
  if (actual != shape) {
    fail(ErrorKind::kModel, "tensor {} is {}; the metadata implies {}", printable(tensor.name),
         shape_text(tensor.shape), shape_text(shape));
  }
}

void check_kind(const gguf::Tensor& tensor, bool may_be_quantised) {
  const gguf::TypeKind kind = tensor.type->kind;
  if (kind == gguf::TypeKind::kFloat || (may_be_quantised && kind == gguf::TypeKind::kQuant)) return;
  fail(ErrorKind::kModel, "tensor {} has type {}, which cannot be a {}", printable(tensor.name), tensor.type->name,
       may_be_quantised ? "weight matrix" : "vector");
}

}  // namespace

const gguf::Tensor& Weights::require(const std::string& name) const {
  const gguf::Tensor* tensor = file_.tensor(name);
  if (tensor == nullptr) fail(ErrorKind::kModel, "tensor {} is missing", name);
  return *tensor;
}

Weight Weights::matrix(const std::string& name, uint32_t n_cols, Rows rows, uint32_t n_expert) const {
  const gguf::Tensor& tensor = require(name);
  check_kind(tensor, true);
  check_shape(tensor, {n_cols, rows.total, n_expert});
  return {&tensor, rows.first, rows.n, n_cols, n_expert};
}

Weight Weights::leading_rows(const std::string& name, uint32_t n_cols, uint32_t n_rows) const {
  const gguf::Tensor& tensor = require(name);
  if (n_rows > tensor.n_rows()) {
    fail(ErrorKind::kUsage, "a context of {} tokens exceeds the {} rows of tensor {}", n_rows, tensor.n_rows(), name);
  }
  return matrix(name, n_cols, {0, n_rows, static_cast<uint32_t>(tensor.n_rows())});
}

Vector Weights::optional_vector(const std::string& name, uint32_t n) const {
  const gguf::Tensor* tensor = file_.tensor(name);
  if (tensor == nullptr) return {};
  check_kind(*tensor, false);
  if (tensor->n_elements() != n) {
    fail(ErrorKind::kModel, "tensor {} holds {} values; the metadata implies {}", printable(name), tensor->n_elements(),
         n);
  }
  return {tensor, 0, n};
}

Norm Weights::norm(const std::string& base, NormKind kind, double eps, uint32_t n) const {
  require(base + ".weight");
  return {kind, static_cast<float>(eps), optional_vector(base + ".weight", n), optional_vector(base + ".bias", n)};
}

Product Weights::product(const std::string& base, uint32_t n_cols, Rows rows, Buf out, uint32_t n_expert) const {
  Product product{.weight = matrix(base + ".weight", n_cols, rows, n_expert), .out = out};
  product.scale = optional_vector(base + ".scale", n_expert);
  product.bias = optional_vector(base + ".bias", n_expert * rows.total);
  if (product.bias) product.bias.first = rows.first, product.bias.n = rows.n;
  return product;
}

}  // namespace lamina

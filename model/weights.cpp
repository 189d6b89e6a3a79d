// Binding of tensors by name: see weights.h.
#include "model/weights.h"

#include <vector>

#include "model/refuse.h"

namespace lamina {
namespace {

/// The shape without dimensions of 1 at its end.
std::vector<uint64_t> trimmed(std::vector<uint64_t> shape) {
  while (shape.size() > 1 && shape.back() == 1) shape.pop_back();
  return shape;
}

}  // namespace

const gguf::Tensor& Weights::require(const std::string& name) const {
  const gguf::Tensor* tensor = file_.tensor(name);
  if (tensor == nullptr) refuse(file_, "tensor {} is missing", name);
  return *tensor;
}

Weight Weights::matrix(const std::string& name, uint32_t n_cols, Rows rows, uint32_t n_expert) const {
  const gguf::Tensor& tensor = require(name);
  if (tensor.type->kind == gguf::TypeKind::kData) {
    refuse(file_, "tensor {} has type {}, which cannot be a weight", name, tensor.type->name);
  }
  const std::vector<uint64_t> implied = {n_cols, rows.total, n_expert};
  if (trimmed(tensor.shape) != trimmed(implied)) {
    refuse(file_, "tensor {} is [{}]; the metadata implies [{}]", name, fmt::join(tensor.shape, ", "),
           fmt::join(trimmed(implied), ", "));
  }
  return {&tensor, rows.first, rows.n, n_cols, n_expert};
}

Weight Weights::leading_rows(const std::string& name, uint32_t n_cols, uint32_t n_rows) const {
  const uint64_t total = require(name).n_rows();
  if (n_rows > total) {
    fail(ErrorKind::kUsage, "a context of {} tokens exceeds the {} rows of tensor {}", n_rows, total, name);
  }
  return matrix(name, n_cols, {0, n_rows, static_cast<uint32_t>(total)});
}

Vector Weights::optional_vector(const std::string& name, uint32_t n) const {
  const gguf::Tensor* tensor = file_.tensor(name);
  if (tensor == nullptr) return {};
  if (tensor->type->kind != gguf::TypeKind::kFloat) {
    refuse(file_, "tensor {} has type {}; lamina needs F32, F16 or BF16 here", name, tensor->type->name);
  }
  if (tensor->n_elements() != n) {
    refuse(file_, "tensor {} holds {} values; the metadata implies {}", name, tensor->n_elements(), n);
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

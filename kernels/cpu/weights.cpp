// Loads the weights of a program into planes: see weights.h.
#include "kernels/cpu/weights.h"

#include <algorithm>
#include <atomic>

#include "gguf/error.h"

namespace lamina::cpu {

namespace {

/// The product kernels of a type, by index into kTokenTiles; nullptr when it cannot be multiplied.
const ProductKernels* find_kernels(const gguf::Type& type, const Kernels& kernels) {
  switch (type.id) {
    case gguf::TypeId::kF32: return &kernels.f32;
    case gguf::TypeId::kF16: return &kernels.f16;
    case gguf::TypeId::kBF16: return &kernels.bf16;
    default: break;
  }
  if (type.kind != gguf::TypeKind::kQuant) return nullptr;
  const auto form = std::find(gguf::kForms.begin(), gguf::kForms.end(), type.form);
  LAMINA_CHECK(form != gguf::kForms.end());
  return &kernels.quant[form - gguf::kForms.begin()];
}

}  // namespace

uint64_t Matrix::bytes() const {
  uint64_t n = 0;
  for (const Planes& p : planes) n += p.bytes();
  return n;
}

Weights::Weights(const Program& program, const Kernels& kernels) {
  for (size_t i = 0; i < program.ops.size(); i++) {
    const auto* linear = std::get_if<LinearOp>(&program.ops[i]);
    if (linear == nullptr) continue;
    for (const Product& product : linear->products) {
      const Weight& w = product.weight;
      const gguf::Type& type = *w.tensor->type;
      const ProductKernels* found = find_kernels(type, kernels);
      if (found == nullptr) {
        fail(ErrorKind::kDevice, "op {} (linear): tensor {} has type {}, which the CPU device cannot multiply", i,
             printable(w.tensor->name), type.name);
      }
      Matrix& matrix = matrices_[{w.tensor, w.first_row, w.n_rows}];
      if (!matrix.planes.empty()) continue;
      matrix.kernels = found;
      for (uint32_t e = 0; e < w.n_expert; e++) matrix.planes.emplace_back(type, w.n_rows, w.n_cols);
      wanted_.emplace_back(&w, &matrix);
    }
  }
}

void Weights::load(const gguf::File& file, Pool& pool, const Progress& progress) {
  uint64_t total = 0, done = 0;
  for (const auto& [weight, matrix] : wanted_) total += matrix->bytes();
  for (const auto& [weight, matrix] : wanted_) {
    fill(*weight, *matrix, pool);
    file.release(*weight->tensor);
    done += matrix->bytes();
    if (progress) progress(done, total);
  }
}

void Weights::fill(const Weight& weight, Matrix& matrix, Pool& pool) {
  const gguf::Type& type = *weight.tensor->type;
  const uint64_t row_bytes = uint64_t{weight.n_cols} / type.block * type.bytes;
  const uint64_t expert_rows = weight.tensor->n_rows() / weight.n_expert;
  const uint32_t tiles = matrix.planes[0].view().n_row_tiles;
  // Work items: a few row tiles of one expert.
  constexpr uint32_t kTilesAtOnce = 8;
  const uint32_t chunks = (tiles + kTilesAtOnce - 1) / kTilesAtOnce;
  std::atomic<uint64_t> next{0};
  pool.run([&](int) {
    for (uint64_t item; (item = next++) < uint64_t{chunks} * weight.n_expert;) {
      const uint64_t expert = item / chunks, first = item % chunks * kTilesAtOnce;
      const std::byte* rows = weight.tensor->data.data() + (expert * expert_rows + weight.first_row) * row_bytes;
      matrix.planes[expert].fill(rows, static_cast<uint32_t>(first),
                                 std::min(static_cast<uint32_t>(first) + kTilesAtOnce, tiles));
    }
  });
}

const Matrix& Weights::matrix(const Weight& weight) const {
  return matrices_.at({weight.tensor, weight.first_row, weight.n_rows});
}

const Planes* Weights::whole(const gguf::Tensor* tensor) const {
  const auto found = matrices_.find({tensor, 0, static_cast<uint32_t>(tensor->n_rows())});
  return found == matrices_.end() || found->second.planes.size() != 1 ? nullptr : found->second.planes.data();
}

const float* Weights::vector(const Vector& v, uint32_t n, uint32_t n_expert) {
  if (!v) return nullptr;
  std::vector<float>& padded = vectors_[{v.tensor, v.first, n}];
  if (padded.empty()) {
    const uint64_t total = v.tensor->n_elements();
    std::vector<float> all(total);
    gguf::dequantize(*v.tensor->type, v.tensor->data.data(), total, all.data());
    const uint64_t stride = (uint64_t{n} + kRowTile - 1) / kRowTile * kRowTile;
    padded.resize(stride * n_expert);
    for (uint64_t e = 0; e < n_expert; e++) {
      LAMINA_CHECK(v.first + e * (total / n_expert) + n <= total);
      std::copy_n(all.begin() + static_cast<ptrdiff_t>(v.first + e * (total / n_expert)), n,
                  padded.begin() + static_cast<ptrdiff_t>(e * stride));
    }
  }
  return padded.data();
}

uint64_t Weights::bytes() const {
  uint64_t n = 0;
  for (const auto& [key, matrix] : matrices_) n += matrix.bytes();
  for (const auto& [key, values] : vectors_) n += values.size() * sizeof(float);
  return n;
}

}  // namespace lamina::cpu

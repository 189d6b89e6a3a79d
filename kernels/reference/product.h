// One weight row times one activation row, exactly in the order of the promise (design, section 2).
// In: a row of a weight tensor in file form and a row of float32 activations. Out: the accumulator, before any
// epilogue. Weights are split with Type::unpack, once a row; activations are brought into the form that the weight's
// type wants, once a row: int8 with a scale per 32 columns, bf16, or float32 as they are.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gguf/type.h"

namespace lamina::reference {

/// Columns that share an activation scale.
constexpr size_t kBlock = 32;

/// A row of activations in the form that a type of weights wants.
struct ActivationRow {
  std::vector<float> x;   ///< float weights: [n_cols], rounded to bf16 for BF16
  std::vector<int8_t> q;  ///< quantised weights: [n_cols]
  std::vector<float> a;   ///< quantised weights: [n_cols / 32] scales
};

ActivationRow prepare(const gguf::Type& type, std::span<const float> x);

/// A row of weights split for products.
class WeightRow {
 public:
  WeightRow(const gguf::Type& type, const std::byte* row, size_t n_cols);
  float dot(const ActivationRow& x) const;

 private:
  float dot_quantised(const ActivationRow& x) const;

  const gguf::Type& type_;
  std::vector<float> w_;      ///< float types: [n_cols]
  std::vector<int32_t> sv_;   ///< quantised: [n_cols] s * v
  std::vector<uint8_t> min_;  ///< quantised: [n_cols / sub_group]
  std::vector<float> d_;      ///< quantised: [n_cols / d_group] d * d_factor
  std::vector<float> dmin_;   ///< quantised: [n_cols / d_group] dmin, or m of Q4_1 and Q5_1
};

}  // namespace lamina::reference

// Products of the reference: see product.h.
#include "kernels/reference/product.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "gguf/error.h"
#include "kernels/reference/math.h"

namespace lamina::reference {
namespace {

using gguf::MinKind;
using gguf::ScaleKind;
using gguf::TypeId;
using gguf::TypeKind;

/// Denormals count as zero (the sign stays), as VDPBF16PS has it for its inputs and results.
float flush(float x) { return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x; }

float round_to_bf16(float x) { return gguf::bf16_to_f32(gguf::f32_to_bf16(flush(x))); }

void quantise_block(const float* x, int8_t* q, float* a) {
  float amax = 0;
  for (size_t i = 0; i < kBlock; ++i) amax = std::max(amax, std::fabs(x[i]));
  if (amax < 0x1p-100f) {
    *a = 0;
    std::fill_n(q, kBlock, int8_t{0});
    return;
  }
  *a = amax / 127.0f;
  const float inverse = 127.0f / amax;
  for (size_t i = 0; i < kBlock; ++i) {
    const float scaled = std::min(std::max(x[i] * inverse, -127.0f), 127.0f);
    q[i] = static_cast<int8_t>(round_to_int(scaled));
  }
}

/// Columns ascending, one chain.
float dot_float(const std::vector<float>& w, const std::vector<float>& x) {
  float acc = 0;
  for (size_t i = 0; i < w.size(); ++i) acc = std::fma(w[i], x[i], acc);
  return acc;
}

/// Pairs of columns, the odd one first; an odd number of columns is padded with zero.
float dot_bf16(const std::vector<float>& w, const std::vector<float>& x) {
  float acc = 0;
  for (size_t i = 0; i < w.size(); i += 2) {
    const bool has_odd = i + 1 < w.size();
    acc = flush(std::fma(has_odd ? w[i + 1] : 0.0f, has_odd ? x[i + 1] : 0.0f, acc));
    acc = flush(std::fma(w[i], x[i], acc));
  }
  return acc;
}

/// Sum of q over columns [first, first + n).
int32_t sum_of_codes(const ActivationRow& x, size_t first, size_t n) {
  int32_t total = 0;
  for (size_t c = first; c < first + n; ++c) total += x.q[c];
  return total;
}

/// a * sum of q over columns [first, first + n), which lie in one block.
float scaled_sum(const ActivationRow& x, size_t first, size_t n) {
  return x.a[first / kBlock] * static_cast<float>(sum_of_codes(x, first, n));
}

}  // namespace

ActivationRow prepare(const gguf::Type& type, std::span<const float> x) {
  ActivationRow row;
  if (type.kind == TypeKind::kQuant) {
    LAMINA_CHECK(x.size() % kBlock == 0);
    row.q.resize(x.size());
    row.a.resize(x.size() / kBlock);
    for (size_t b = 0; b < row.a.size(); ++b) quantise_block(&x[b * kBlock], &row.q[b * kBlock], &row.a[b]);
    return row;
  }
  row.x.assign(x.begin(), x.end());
  if (type.id == TypeId::kBF16)
    for (float& value : row.x) value = round_to_bf16(value);
  return row;
}

WeightRow::WeightRow(const gguf::Type& type, const std::byte* row, size_t n_cols) : type_(type) {
  if (type.kind == TypeKind::kFloat) {
    w_.resize(n_cols);
    gguf::dequantize(type, row, n_cols, w_.data());
    if (type.id == TypeId::kBF16)
      for (float& value : w_) value = flush(value);
    return;
  }
  LAMINA_CHECK(type.kind == TypeKind::kQuant && n_cols % type.block == 0);
  const gguf::PlaneForm& form = type.form;
  const size_t n_groups = n_cols / form.d_group;
  const size_t n_sub_groups = form.sub_group ? n_cols / form.sub_group : 0;
  std::vector<uint8_t> code(n_cols);
  std::vector<int8_t> scale(n_sub_groups);
  std::vector<uint16_t> d(n_groups), dmin(n_groups);
  min_.resize(n_sub_groups);
  type.unpack(row, n_cols / type.block, {code.data(), scale.data(), min_.data(), d.data(), dmin.data()});

  for (size_t c = 0; c < n_cols; ++c) {
    const int8_t s = n_sub_groups ? scale[c / form.sub_group] : int8_t{0};
    sv_.push_back(gguf::scale_of(type, s) * gguf::value_of(type, code[c], s));
  }
  for (size_t g = 0; g < n_groups; ++g) {
    d_.push_back(gguf::d_to_f32(form.d_kind, d[g]) * type.d_factor);
    dmin_.push_back(form.min == MinKind::kNone ? 0.0f : gguf::f16_to_f32(dmin[g]));
  }
}

float WeightRow::dot(const ActivationRow& x) const {
  if (type_.kind == TypeKind::kQuant) return dot_quantised(x);
  return type_.id == TypeId::kBF16 ? dot_bf16(w_, x.x) : dot_float(w_, x.x);
}

float WeightRow::dot_quantised(const ActivationRow& x) const {
  const gguf::PlaneForm& form = type_.form;
  const size_t step = std::min<size_t>(kBlock, form.d_group);  // 16 for NVFP4
  float acc = 0;
  for (size_t g = 0; g < d_.size(); ++g) {
    float sum_of_products = 0;  // A of the design
    float sum_of_mins = 0;      // M of the design
    for (size_t first = g * form.d_group; first < (g + 1) * form.d_group; first += step) {
      int32_t products = 0;
      for (size_t c = first; c < first + step; ++c) products += sv_[c] * x.q[c];
      sum_of_products = std::fma(static_cast<float>(products), x.a[first / kBlock], sum_of_products);
      switch (form.min) {
        case MinKind::kNone: break;
        case MinKind::kF16: sum_of_mins = scaled_sum(x, first, kBlock); break;
        case MinKind::kUint8:
          sum_of_mins = std::fma(static_cast<float>(min_[first / 32]), scaled_sum(x, first, 32), sum_of_mins);
          break;
        case MinKind::kNibble:
          for (size_t half = first; half < first + 32; half += 16)
            sum_of_mins = std::fma(static_cast<float>(min_[half / 16]), scaled_sum(x, half, 16), sum_of_mins);
          break;
      }
    }
    acc = std::fma(d_[g], sum_of_products, acc);
    if (form.min == MinKind::kF16) acc = std::fma(dmin_[g], sum_of_mins, acc);
    if (form.min == MinKind::kUint8 || form.min == MinKind::kNibble) acc = std::fma(-dmin_[g], sum_of_mins, acc);
  }
  return acc;
}

}  // namespace lamina::reference

// Instantiates all kernels over the vocabulary included before and makes the table of one instruction set.
// The including file defines LAMINA_ISA_NAME and LAMINA_ISA_TABLE.
#include "gguf/type_table.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/math.inl"
// math.inl first: the others use it.
#include "kernels/cpu/attention.inl"
#include "kernels/cpu/matmul.inl"
#include "kernels/cpu/peak.inl"
#include "kernels/cpu/rows.inl"

namespace lamina::cpu {
namespace {

/// A bf16 pair product by two fused multiply-adds.
struct TwoFma {
  LAMINA_WORD F add(F acc, I weight, uint32_t x) {
    const I high = set1_int(static_cast<int32_t>(0xffff0000)), pair = set1_int(static_cast<int32_t>(x));
    acc = fma(as_float(weight & high), as_float(pair & high), acc);
    return fma(as_float(shift_left(weight, 16)), as_float(shift_left(pair, 16)), acc);
  }
};

/// The last steps of every product, in the order of Product's comment.
void finish_rows(const float* acc, const Epilogue& epilogue, float* out) {
  F y = load(acc);
  if (epilogue.scale != nullptr) y = y * set1(*epilogue.scale);
  if (epilogue.bias != nullptr) y = y + load(epilogue.bias);
  if (epilogue.multiply != 1.0f) y = y * set1(epilogue.multiply);
  if (epilogue.residual != nullptr) y = y + load(epilogue.residual);
  if (epilogue.softcap != 0.0f) y = softcap(y, epilogue.softcap);
  store(out, y);
}

template <size_t... kForm>
constexpr void fill_quant(MatmulFn (&table)[kFormCount][kWidthCount], std::index_sequence<kForm...>) {
  static_assert(kTokenTiles[0] == 1 && kTokenTiles[1] == 2 && kTokenTiles[2] == 4 && kTokenTiles[3] == 8 &&
                kTokenTiles[4] == 12);
  ((table[kForm][0] = matmul_quant<gguf::kForms[kForm], 1>, table[kForm][1] = matmul_quant<gguf::kForms[kForm], 2>,
    table[kForm][2] = matmul_quant<gguf::kForms[kForm], 4>, table[kForm][3] = matmul_quant<gguf::kForms[kForm], 8>,
    table[kForm][4] = matmul_quant<gguf::kForms[kForm], 12>),
   ...);
}

constexpr Kernels make_kernels() {
  Kernels k = {};
  k.isa = LAMINA_ISA_NAME;
  fill_quant(k.quant, std::make_index_sequence<kFormCount>());
  constexpr MatmulFn kF32[] = {matmul_float<false, 1>, matmul_float<false, 2>, matmul_float<false, 4>,
                               matmul_float<false, 8>, matmul_float<false, 12>};
  constexpr MatmulFn kF16[] = {matmul_float<true, 1>, matmul_float<true, 2>, matmul_float<true, 4>,
                               matmul_float<true, 8>, matmul_float<true, 12>};
  constexpr MatmulFn kBf16[] = {matmul_pairs<TwoFma, 1>, matmul_pairs<TwoFma, 2>, matmul_pairs<TwoFma, 4>,
                                matmul_pairs<TwoFma, 8>, matmul_pairs<TwoFma, 12>};
  for (int i = 0; i < kWidthCount; i++) {
    k.f32[i] = kF32[i];
    k.f16[i] = kF16[i];
    k.bf16[i] = kBf16[i];
  }
  k.finish = finish_rows;
  k.pack = pack_row;
  k.norm = norm_row;
  k.gate = gate_row;
  k.rotate = rotate_row;
  k.store_f16 = store_f16_row;
  k.attend = attend;
  k.softmax = softmax_row;
  k.sigmoid = sigmoid_row;
  k.axpy = axpy_row;
  k.scale = scale_row;
  k.add = add_row;
  k.sum = sum_row;
  k.peak_dot[0] = {6, peak_dot<6>};
  k.peak_dot[1] = {12, peak_dot<12>};
  k.peak_fma[0] = {6, peak_fma<6>};
  k.peak_fma[1] = {12, peak_fma<12>};
  return k;
}

}  // namespace

constinit const Kernels LAMINA_ISA_TABLE = make_kernels();

}  // namespace lamina::cpu

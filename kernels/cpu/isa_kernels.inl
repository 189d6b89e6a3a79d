// Instantiates all kernels over the vocabulary included before and makes the table of one instruction set.
// The including file defines LAMINA_ISA_NAME and LAMINA_ISA_TABLE.
#include "gguf/type_table.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/math.inl"
// math.inl first: the others use it.
#include "kernels/cpu/attention.inl"
#include "kernels/cpu/matmul_float.inl"
#include "kernels/cpu/matmul_quant.inl"
#include "kernels/cpu/peak.inl"
#include "kernels/cpu/rows.inl"

namespace lamina::cpu {
namespace {

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

static_assert(kTokenTiles[0] == 1 && kTokenTiles[1] == 2 && kTokenTiles[2] == 4 && kTokenTiles[3] == 8 &&
              kTokenTiles[4] == kMaxTokenTile);

template <PlaneForm P>
constexpr ProductKernels quant_kernels() {
  return {{matmul_quant<P, 1>, matmul_quant<P, 2>, matmul_quant<P, 4>, matmul_quant<P, 8>},
          unpack_panel<P>,
          matmul_panel<panel_form(P)>};
}

template <class Kind>
constexpr ProductKernels float_kernels() {
  return {{matmul_float<Kind, 1>, matmul_float<Kind, 2>, matmul_float<Kind, 4>, matmul_float<Kind, 8>,
           matmul_float<Kind, kMaxTokenTile>}};
}

template <size_t... kForm>
constexpr void fill_quant(ProductKernels (&table)[kFormCount], std::index_sequence<kForm...>) {
  ((table[kForm] = quant_kernels<gguf::kForms[kForm]>()), ...);
}

constexpr Kernels make_kernels() {
  Kernels k = {};
  k.isa = LAMINA_ISA_NAME;
  fill_quant(k.quant, std::make_index_sequence<kFormCount>());
  k.f32 = float_kernels<WeightF32>();
  k.f16 = float_kernels<WeightF16>();
  k.bf16 = bf16_kernels<WeightBf16>();
  k.finish = finish_rows;
  k.pack = pack_row;
  k.norm = norm_row;
  k.gate = gate_row;
  k.rotate = rotate_row;
  k.store_f16 = store_f16_row;
  k.attend_f16 = attend_split<F16Pages>;
  k.attend_q8 = attend_split<Q8Pages>;
  k.merge_part = merge_part;
  k.finish_attend = finish_attend;
  k.store_q8 = store_q8;
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

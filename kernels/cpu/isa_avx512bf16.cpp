// BF16 products by VDPBF16PS, for AVX-512 CPUs that have it: the same bits as WeightBf16.
#include <immintrin.h>

#include "kernels/cpu/words_avx512.h"
// The vocabulary comes first: kernel text is written in it.
#include "gguf/type_table.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/math.inl"
#include "kernels/cpu/matmul_float.inl"

namespace lamina::cpu {
namespace {

struct WeightPair {
  static constexpr size_t kColumns = 2;
  using Loaded = I;
  LAMINA_WORD I load_step(const void* row_tiles, size_t at) {
    return load_u32(static_cast<const uint32_t*>(row_tiles) + at * kRowTile);
  }
  template <int T>
  LAMINA_WORD F add(F acc, I weight, const PackedTile& x, size_t p, int t) {
    const auto pair = static_cast<int32_t>(x.pairs[p * T + static_cast<size_t>(t)]);
    return {_mm512_dpbf16_ps(acc.v, (__m512bh)weight.v, (__m512bh)_mm512_set1_epi32(pair))};
  }
};

}  // namespace

constinit const ProductKernels kAvx512Bf16 = bf16_kernels<WeightPair>();

}  // namespace lamina::cpu

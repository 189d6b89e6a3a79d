// BF16 products by VDPBF16PS, for AVX-512 CPUs that have it: the same bits as isa_kernels.inl's TwoFma.
#include <immintrin.h>

#include "kernels/cpu/words_avx512.h"
// The vocabulary comes first: kernel text is written in it.
#include "gguf/type_table.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/math.inl"
#include "kernels/cpu/matmul.inl"

namespace lamina::cpu {
namespace {

struct PairDot {
  LAMINA_WORD F add(F acc, I weight, uint32_t x) {
    return {_mm512_dpbf16_ps(acc.v, (__m512bh)weight.v, (__m512bh)_mm512_set1_epi32(static_cast<int32_t>(x)))};
  }
};

}  // namespace

constinit const MatmulFn kAvx512Bf16[kWidthCount] = {matmul_pairs<PairDot, 1>, matmul_pairs<PairDot, 2>,
                                                     matmul_pairs<PairDot, 4>, matmul_pairs<PairDot, 8>,
                                                     matmul_pairs<PairDot, 12>};

}  // namespace lamina::cpu

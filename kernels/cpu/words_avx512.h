// The 16-lane vocabulary in AVX-512 registers (F, BW, DQ, VL, VNNI). Meanings: words_scalar.h.
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#define LAMINA_WORD static inline __attribute__((always_inline))
#define LAMINA_METHOD inline __attribute__((always_inline))
#define LAMINA_UNROLL _Pragma("GCC unroll 12")

namespace lamina::cpu {
namespace {

struct F {
  __m512 v;
};
struct I {
  __m512i v;
};
struct W {
  __m512i v;
};

LAMINA_WORD __m128i load16(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }

LAMINA_WORD F set1(float x) { return {_mm512_set1_ps(x)}; }
LAMINA_WORD F load(const float* p) { return {_mm512_loadu_ps(p)}; }
LAMINA_WORD void store(float* p, F a) { _mm512_storeu_ps(p, a.v); }
LAMINA_WORD F operator+(F a, F b) { return {_mm512_add_ps(a.v, b.v)}; }
LAMINA_WORD F operator-(F a, F b) { return {_mm512_sub_ps(a.v, b.v)}; }
LAMINA_WORD F operator*(F a, F b) { return {_mm512_mul_ps(a.v, b.v)}; }
LAMINA_WORD F operator/(F a, F b) { return {_mm512_div_ps(a.v, b.v)}; }
LAMINA_WORD F fma(F a, F b, F c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
LAMINA_WORD F min(F a, F b) { return {_mm512_min_ps(a.v, b.v)}; }
LAMINA_WORD F max(F a, F b) { return {_mm512_max_ps(a.v, b.v)}; }
LAMINA_WORD F select_less(F a, F b, F x, F y) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), y.v, x.v)};
}

LAMINA_WORD float tree(F a) {
  const __m256 x = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  y = _mm_add_ps(y, _mm_movehl_ps(y, y));
  return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}
LAMINA_WORD float highest(F a) {
  const __m256 x = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  y = _mm_max_ps(y, _mm_movehl_ps(y, y));
  return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
}
LAMINA_WORD void load_pairs(const float* p, F& even, F& odd) {
  const __m512i at = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512 lo = _mm512_loadu_ps(p), hi = _mm512_loadu_ps(p + 16);
  even.v = _mm512_permutex2var_ps(lo, at, hi);
  odd.v = _mm512_permutex2var_ps(lo, _mm512_add_epi32(at, _mm512_set1_epi32(1)), hi);
}
LAMINA_WORD void store_pairs(float* p, F even, F odd) {
  const __m512i at = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  _mm512_storeu_ps(p, _mm512_permutex2var_ps(even.v, at, odd.v));
  _mm512_storeu_ps(p + 16, _mm512_permutex2var_ps(even.v, _mm512_add_epi32(at, _mm512_set1_epi32(8)), odd.v));
}

LAMINA_WORD float f16_value(uint16_t h) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h))); }
LAMINA_WORD F load_f16(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
LAMINA_WORD void store_f16(uint16_t* p, F a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}

LAMINA_WORD I set1_int(int32_t x) { return {_mm512_set1_epi32(x)}; }
LAMINA_WORD I load_u8(const uint8_t* p) { return {_mm512_cvtepu8_epi32(load16(p))}; }
LAMINA_WORD I load_i8(const uint8_t* p) { return {_mm512_cvtepi8_epi32(load16(p))}; }
LAMINA_WORD I load_u32(const uint32_t* p) { return {_mm512_loadu_si512(p)}; }
LAMINA_WORD void store_u32(uint32_t* p, I a) { _mm512_storeu_si512(p, a.v); }
LAMINA_WORD void store_i8(int8_t* p, I a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a.v));
}
LAMINA_WORD I operator+(I a, I b) { return {_mm512_add_epi32(a.v, b.v)}; }
LAMINA_WORD I operator-(I a, I b) { return {_mm512_sub_epi32(a.v, b.v)}; }
LAMINA_WORD I operator&(I a, I b) { return {_mm512_and_si512(a.v, b.v)}; }
LAMINA_WORD I shift_left(I a, int n) { return {_mm512_slli_epi32(a.v, static_cast<unsigned>(n))}; }
LAMINA_WORD I shift_right(I a, int n) { return {_mm512_srli_epi32(a.v, static_cast<unsigned>(n))}; }
LAMINA_WORD I to_int(F a) { return {_mm512_cvtps_epi32(a.v)}; }
LAMINA_WORD F to_float(I a) { return {_mm512_cvtepi32_ps(a.v)}; }
LAMINA_WORD F as_float(I a) { return {_mm512_castsi512_ps(a.v)}; }
LAMINA_WORD I as_int(F a) { return {_mm512_castps_si512(a.v)}; }
LAMINA_WORD int32_t sum(I a) { return _mm512_reduce_add_epi32(a.v); }

LAMINA_WORD W load_codes(const uint32_t* p) { return {_mm512_load_si512(p)}; }
LAMINA_WORD void store_codes(uint32_t* p, W a) { _mm512_store_si512(p, a.v); }
LAMINA_WORD W shift_mask(W a, int n, uint32_t mask) {
  const __m512i shifted = n > 0   ? _mm512_srli_epi32(a.v, static_cast<unsigned>(n))
                          : n < 0 ? _mm512_slli_epi32(a.v, static_cast<unsigned>(-n))
                                  : a.v;
  return {_mm512_and_si512(shifted, _mm512_set1_epi8(static_cast<char>(mask)))};
}
LAMINA_WORD W operator|(W a, W b) { return {_mm512_or_si512(a.v, b.v)}; }

struct Table {
  __m512i v;
};
LAMINA_WORD Table load_table(const uint8_t* p) { return {_mm512_broadcast_i32x4(load16(p))}; }
LAMINA_WORD W look_up(Table table, W a) { return {_mm512_shuffle_epi8(table.v, a.v)}; }

template <int kMaxCode>
constexpr int kCodeBias = 0;
template <int kMaxCode>
LAMINA_WORD I dot16(I acc, const W (&code)[4], const int8_t* x) {
  for (int i = 0; i < 4; i++) {
    int32_t four;
    std::memcpy(&four, x + 4 * i, 4);  // one by one: each is an operand in memory then
    acc.v = _mm512_dpbusd_epi32(acc.v, code[i].v, _mm512_set1_epi32(four));
  }
  return acc;
}

/// Sums of a float product that registers hold beside its weights.
constexpr int kFloatSums = 24;

}  // namespace
}  // namespace lamina::cpu

// The 16-lane vocabulary in pairs of AVX2 registers (with FMA and F16C). Meanings: words_scalar.h.
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
  __m256 lo, hi;
};
struct I {
  __m256i lo, hi;
};
struct W {
  __m256i lo, hi;
};

LAMINA_WORD __m128i load16(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }

LAMINA_WORD F set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
LAMINA_WORD F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
LAMINA_WORD void store(float* p, F a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
LAMINA_WORD F operator+(F a, F b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
LAMINA_WORD F operator-(F a, F b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
LAMINA_WORD F operator*(F a, F b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
LAMINA_WORD F operator/(F a, F b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
LAMINA_WORD F fma(F a, F b, F c) { return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)}; }
LAMINA_WORD F min(F a, F b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
LAMINA_WORD F max(F a, F b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
LAMINA_WORD F select_less(F a, F b, F x, F y) {
  return {_mm256_blendv_ps(y.lo, x.lo, _mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ)),
          _mm256_blendv_ps(y.hi, x.hi, _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ))};
}

LAMINA_WORD float tree(F a) {
  const __m256 x = _mm256_add_ps(a.lo, a.hi);
  __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  y = _mm_add_ps(y, _mm_movehl_ps(y, y));
  return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}
LAMINA_WORD float highest(F a) {
  const __m256 x = _mm256_max_ps(a.lo, a.hi);
  __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  y = _mm_max_ps(y, _mm_movehl_ps(y, y));
  return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
}
/// Shuffles work within 128 bits: of registers a and b they give the elements 0 2 . . 4 6 . ., hence the permutation.
template <int kWhich>
LAMINA_WORD __m256 every_second(__m256 a, __m256 b) {
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(_mm256_shuffle_ps(a, b, kWhich)), 0xd8));
}
LAMINA_WORD void load_pairs(const float* p, F& even, F& odd) {
  const F x = load(p), y = load(p + 16);
  even = {every_second<0x88>(x.lo, x.hi), every_second<0x88>(y.lo, y.hi)};
  odd = {every_second<0xdd>(x.lo, x.hi), every_second<0xdd>(y.lo, y.hi)};
}
LAMINA_WORD void store_pairs(float* p, F even, F odd) {
  const auto interleave = [](float* to, __m256 a, __m256 b) {
    const __m256 lo = _mm256_unpacklo_ps(a, b), hi = _mm256_unpackhi_ps(a, b);
    _mm256_storeu_ps(to, _mm256_permute2f128_ps(lo, hi, 0x20));
    _mm256_storeu_ps(to + 8, _mm256_permute2f128_ps(lo, hi, 0x31));
  };
  interleave(p, even.lo, odd.lo);
  interleave(p + 16, even.hi, odd.hi);
}

LAMINA_WORD float f16_value(uint16_t h) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h))); }
LAMINA_WORD F load_f16(const uint16_t* p) { return {_mm256_cvtph_ps(load16(p)), _mm256_cvtph_ps(load16(p + 8))}; }
LAMINA_WORD void store_f16(uint16_t* p, F a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT));
}

LAMINA_WORD I set1_int(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
LAMINA_WORD I load_u8(const uint8_t* p) {
  const __m128i x = load16(p);
  return {_mm256_cvtepu8_epi32(x), _mm256_cvtepu8_epi32(_mm_srli_si128(x, 8))};
}
LAMINA_WORD I load_i8(const uint8_t* p) {
  const __m128i x = load16(p);
  return {_mm256_cvtepi8_epi32(x), _mm256_cvtepi8_epi32(_mm_srli_si128(x, 8))};
}
LAMINA_WORD I load_u32(const uint32_t* p) {
  const auto* q = reinterpret_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
LAMINA_WORD void store_u32(uint32_t* p, I a) {
  auto* q = reinterpret_cast<__m256i*>(p);
  _mm256_storeu_si256(q, a.lo);
  _mm256_storeu_si256(q + 1, a.hi);
}
LAMINA_WORD void store_i8(int8_t* p, I a) {
  const __m256i x = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.lo, a.hi), 0xd8);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm_packs_epi16(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1)));
}
LAMINA_WORD I operator+(I a, I b) { return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)}; }
LAMINA_WORD I operator-(I a, I b) { return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)}; }
LAMINA_WORD I operator&(I a, I b) { return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)}; }
LAMINA_WORD I shift_left(I a, int n) { return {_mm256_slli_epi32(a.lo, n), _mm256_slli_epi32(a.hi, n)}; }
LAMINA_WORD I shift_right(I a, int n) { return {_mm256_srli_epi32(a.lo, n), _mm256_srli_epi32(a.hi, n)}; }
LAMINA_WORD I to_int(F a) { return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)}; }
LAMINA_WORD F to_float(I a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
LAMINA_WORD F as_float(I a) { return {_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)}; }
LAMINA_WORD I as_int(F a) { return {_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)}; }
LAMINA_WORD int32_t sum(I a) {
  const __m256i x = _mm256_add_epi32(a.lo, a.hi);
  __m128i y = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  y = _mm_add_epi32(y, _mm_shuffle_epi32(y, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(y, _mm_shuffle_epi32(y, 0xb1)));
}

LAMINA_WORD W load_codes(const uint32_t* p) {
  const auto* q = reinterpret_cast<const __m256i*>(p);
  return {_mm256_load_si256(q), _mm256_load_si256(q + 1)};
}
LAMINA_WORD void store_codes(uint32_t* p, W a) {
  auto* q = reinterpret_cast<__m256i*>(p);
  _mm256_store_si256(q, a.lo);
  _mm256_store_si256(q + 1, a.hi);
}
LAMINA_WORD W shift_mask(W a, int n, uint32_t mask) {
  const __m256i m = _mm256_set1_epi8(static_cast<char>(mask));
  const __m256i lo = n >= 0 ? _mm256_srli_epi32(a.lo, n) : _mm256_slli_epi32(a.lo, -n);
  const __m256i hi = n >= 0 ? _mm256_srli_epi32(a.hi, n) : _mm256_slli_epi32(a.hi, -n);
  return {_mm256_and_si256(lo, m), _mm256_and_si256(hi, m)};
}
LAMINA_WORD W operator|(W a, W b) { return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)}; }

struct Table {
  __m256i v;
};
LAMINA_WORD Table load_table(const uint8_t* p) { return {_mm256_broadcastsi128_si256(load16(p))}; }
LAMINA_WORD W look_up(Table table, W a) {
  return {_mm256_shuffle_epi8(table.v, a.lo), _mm256_shuffle_epi8(table.v, a.hi)};
}

#ifdef __AVXVNNI__
template <int kMaxCode>
constexpr int kCodeBias = 0;
/// 16 columns of 8 rows.
template <int kMaxCode>
LAMINA_WORD __m256i dot16_half(__m256i acc, const __m256i (&code)[4], const __m256i (&x)[4]) {
  for (int i = 0; i < 4; i++) acc = _mm256_dpbusd_avx_epi32(acc, code[i], x[i]);
  return acc;
}
#else
/// vpmaddubsw adds two products in 16 bits and saturates for codes above 129: those are made signed, and their signs go
/// to the activations.
template <int kMaxCode>
constexpr int kCodeBias = kMaxCode > 129 ? 128 : 0;
/// 16 columns of 8 rows. Sums stay in 16 bits as long as kMaxCode allows.
template <int kMaxCode>
LAMINA_WORD __m256i dot16_half(__m256i acc, const __m256i (&code)[4], const __m256i (&x)[4]) {
  __m256i pairs[4];
  for (int i = 0; i < 4; i++) {
    if constexpr (kMaxCode > 129) {
      const __m256i centred = _mm256_xor_si256(code[i], _mm256_set1_epi8(-128));
      pairs[i] = _mm256_maddubs_epi16(_mm256_abs_epi8(centred), _mm256_sign_epi8(x[i], centred));
    } else {
      pairs[i] = _mm256_maddubs_epi16(code[i], x[i]);
    }
  }
  const __m256i ones = _mm256_set1_epi16(1);
  if constexpr (kMaxCode <= 64) {
    pairs[0] = _mm256_add_epi16(pairs[0], pairs[1]);
    pairs[2] = _mm256_add_epi16(pairs[2], pairs[3]);
    if constexpr (kMaxCode <= 32) {
      return _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_add_epi16(pairs[0], pairs[2]), ones));
    }
    acc = _mm256_add_epi32(acc, _mm256_madd_epi16(pairs[0], ones));
    return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs[2], ones));
  }
  for (const __m256i& p : pairs) acc = _mm256_add_epi32(acc, _mm256_madd_epi16(p, ones));
  return acc;
}
#endif
template <int kMaxCode>
LAMINA_WORD I dot16(I acc, const W (&code)[4], const int8_t* x) {
  __m256i xs[4];
  for (int i = 0; i < 4; i++) {
    int32_t four;
    std::memcpy(&four, x + 4 * i, 4);
    xs[i] = _mm256_set1_epi32(four);
  }
  return {dot16_half<kMaxCode>(acc.lo, {code[0].lo, code[1].lo, code[2].lo, code[3].lo}, xs),
          dot16_half<kMaxCode>(acc.hi, {code[0].hi, code[1].hi, code[2].hi, code[3].hi}, xs)};
}

/// Sums of a float product that registers hold beside its weights.
constexpr int kFloatSums = 6;

}  // namespace
}  // namespace lamina::cpu

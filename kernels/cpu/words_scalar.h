// The 16-lane vocabulary in plain C++: what the other two must equal bit for bit. Also the form for CPUs without AVX2.
#pragma once
#include <cstdint>
#include <cstring>

#define LAMINA_WORD static inline __attribute__((always_inline))
#define LAMINA_METHOD inline __attribute__((always_inline))
/// Before a loop whose variables are to live in registers. Here they cannot, and unrolled 16-lane loops take minutes to
/// compile.
#define LAMINA_UNROLL

namespace lamina::cpu {
namespace {

/// 16 float32, 16 int32, and 16 x 4 code bytes.
struct F {
  float v[16];
};
struct I {
  int32_t v[16];
};
struct W {
  uint32_t v[16];
};

template <class R, class Fn>
LAMINA_WORD R lanes(Fn fn) {
  R r;
  for (int i = 0; i < 16; i++) r.v[i] = fn(i);
  return r;
}

LAMINA_WORD F set1(float x) {
  return lanes<F>([&](int) { return x; });
}
LAMINA_WORD F load(const float* p) {
  F r;
  std::memcpy(r.v, p, sizeof r.v);
  return r;
}
LAMINA_WORD void store(float* p, F a) { std::memcpy(p, a.v, sizeof a.v); }
LAMINA_WORD F operator+(F a, F b) {
  return lanes<F>([&](int i) { return a.v[i] + b.v[i]; });
}
LAMINA_WORD F operator-(F a, F b) {
  return lanes<F>([&](int i) { return a.v[i] - b.v[i]; });
}
LAMINA_WORD F operator*(F a, F b) {
  return lanes<F>([&](int i) { return a.v[i] * b.v[i]; });
}
LAMINA_WORD F operator/(F a, F b) {
  return lanes<F>([&](int i) { return a.v[i] / b.v[i]; });
}
LAMINA_WORD F fma(F a, F b, F c) {
  return lanes<F>([&](int i) { return __builtin_fmaf(a.v[i], b.v[i], c.v[i]); });
}
/// As the x86 instructions: the second operand when either is not a number.
LAMINA_WORD F min(F a, F b) {
  return lanes<F>([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
LAMINA_WORD F max(F a, F b) {
  return lanes<F>([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
/// a < b ? x : y
LAMINA_WORD F select_less(F a, F b, F x, F y) {
  return lanes<F>([&](int i) { return a.v[i] < b.v[i] ? x.v[i] : y.v[i]; });
}

/// Sum of the lanes as a tree: i += i + 8, then + 4, + 2, + 1.
LAMINA_WORD float tree(F a) {
  for (int half = 8; half >= 1; half /= 2) {
    for (int i = 0; i < half; i++) a.v[i] += a.v[i + half];
  }
  return a.v[0];
}
LAMINA_WORD float highest(F a) {
  for (int half = 8; half >= 1; half /= 2) {
    for (int i = 0; i < half; i++) a.v[i] = a.v[i] > a.v[i + half] ? a.v[i] : a.v[i + half];
  }
  return a.v[0];
}
/// p[0], p[2] .. p[30] and p[1], p[3] .. p[31]; and back.
LAMINA_WORD void load_pairs(const float* p, F& even, F& odd) {
  even = lanes<F>([&](int i) { return p[2 * i]; });
  odd = lanes<F>([&](int i) { return p[2 * i + 1]; });
}
LAMINA_WORD void store_pairs(float* p, F even, F odd) {
  for (int i = 0; i < 16; i++) {
    p[2 * i] = even.v[i];
    p[2 * i + 1] = odd.v[i];
  }
}

LAMINA_WORD float f16_value(uint16_t h) {
  _Float16 x;
  std::memcpy(&x, &h, 2);
  return static_cast<float>(x);
}
LAMINA_WORD F load_f16(const uint16_t* p) {
  return lanes<F>([&](int i) { return f16_value(p[i]); });
}
LAMINA_WORD void store_f16(uint16_t* p, F a) {
  for (int i = 0; i < 16; i++) {
    const auto h = static_cast<_Float16>(a.v[i]);
    std::memcpy(p + i, &h, 2);
  }
}

LAMINA_WORD I set1_int(int32_t x) {
  return lanes<I>([&](int) { return x; });
}
LAMINA_WORD I load_u8(const uint8_t* p) {
  return lanes<I>([&](int i) { return int32_t{p[i]}; });
}
LAMINA_WORD I load_i8(const uint8_t* p) {
  return lanes<I>([&](int i) { return int32_t{static_cast<int8_t>(p[i])}; });
}
LAMINA_WORD I load_u32(const uint32_t* p) {
  return lanes<I>([&](int i) { return static_cast<int32_t>(p[i]); });
}
LAMINA_WORD void store_u32(uint32_t* p, I a) { std::memcpy(p, a.v, sizeof a.v); }
/// Of lanes that fit int8.
LAMINA_WORD void store_i8(int8_t* p, I a) {
  for (int i = 0; i < 16; i++) p[i] = static_cast<int8_t>(a.v[i]);
}
LAMINA_WORD I operator+(I a, I b) {
  return lanes<I>(
      [&](int i) { return static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) + static_cast<uint32_t>(b.v[i])); });
}
LAMINA_WORD I operator-(I a, I b) {
  return lanes<I>(
      [&](int i) { return static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) - static_cast<uint32_t>(b.v[i])); });
}
LAMINA_WORD I operator&(I a, I b) {
  return lanes<I>([&](int i) { return a.v[i] & b.v[i]; });
}
LAMINA_WORD I shift_left(I a, int n) {
  return lanes<I>([&](int i) { return static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) << n); });
}
LAMINA_WORD I shift_right(I a, int n) {
  return lanes<I>([&](int i) { return static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) >> n); });
}
/// Of integers, exact; INT32_MIN for what is none of an int32 (sums of activations that are not finite).
LAMINA_WORD I to_int(F a) {
  return lanes<I>(
      [&](int i) { return a.v[i] >= -0x1p31f && a.v[i] < 0x1p31f ? static_cast<int32_t>(a.v[i]) : INT32_MIN; });
}
LAMINA_WORD F to_float(I a) {
  return lanes<F>([&](int i) { return static_cast<float>(a.v[i]); });
}
LAMINA_WORD F as_float(I a) {
  F r;
  std::memcpy(r.v, a.v, sizeof r.v);
  return r;
}
LAMINA_WORD I as_int(F a) {
  I r;
  std::memcpy(r.v, a.v, sizeof r.v);
  return r;
}
LAMINA_WORD int32_t sum(I a) {
  int32_t s = 0;
  for (int i = 0; i < 16; i++) s += a.v[i];
  return s;
}

LAMINA_WORD W load_codes(const uint32_t* p) {
  W r;
  std::memcpy(r.v, p, sizeof r.v);
  return r;
}
LAMINA_WORD void store_codes(uint32_t* p, W a) { std::memcpy(p, a.v, sizeof a.v); }
/// Each byte of (a >> n, or a << -n) & mask; n and mask keep bits within their byte.
LAMINA_WORD W shift_mask(W a, int n, uint32_t mask) {
  return lanes<W>([&](int i) { return (n >= 0 ? a.v[i] >> n : a.v[i] << -n) & mask * 0x01010101u; });
}
LAMINA_WORD W operator|(W a, W b) {
  return lanes<W>([&](int i) { return a.v[i] | b.v[i]; });
}

/// 16 bytes, looked up by each code byte 0..15.
struct Table {
  uint8_t v[16];
};
LAMINA_WORD Table load_table(const uint8_t* p) {
  Table r;
  std::memcpy(r.v, p, 16);
  return r;
}
LAMINA_WORD W look_up(Table table, W a) {
  return lanes<W>([&](int i) {
    const uint32_t x = a.v[i];
    return table.v[x & 15] | uint32_t{table.v[x >> 8 & 15]} << 8 | uint32_t{table.v[x >> 16 & 15]} << 16 |
           uint32_t{table.v[x >> 24 & 15]} << 24;
  });
}

/// acc + sum over 16 columns of (code - kCodeBias) * x, exact: byte j of code[i] (unsigned, at most kMaxCode) meets
/// x[4i + j]. The bias is what the word takes off by itself where its instructions want signed codes.
template <int kMaxCode>
constexpr int kCodeBias = 0;
template <int kMaxCode>
LAMINA_WORD I dot16(I acc, const W (&code)[4], const int8_t* x) {
  return lanes<I>([&](int lane) {
    int32_t sum = 0;
    for (int i = 0; i < 4; i++) {
      for (int j = 0; j < 4; j++) sum += static_cast<int32_t>(code[i].v[lane] >> 8 * j & 255) * x[4 * i + j];
    }
    return static_cast<int32_t>(static_cast<uint32_t>(acc.v[lane]) + static_cast<uint32_t>(sum));
  });
}

/// Sums of a float product that registers hold beside its weights.
constexpr int kFloatSums = 6;

}  // namespace
}  // namespace lamina::cpu

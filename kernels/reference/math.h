// The scalar functions of a step, as the specification that every CPU kernel mirrors bit by bit: exp, tanh, the gates,
// sums over a vector, softmax. In: float32. Out: float32 from exactly the IEEE operations written here, in this order,
// round to nearest even, nothing contracted: `a * b + c` is two roundings, std::fma is one. Every choice is a select,
// so a vector lane can do it. Greatest errors against double, checked by reference_test.cpp: exp 0.87 ulp over [-87,
// 88], tanh 1.4 ulp.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "kernels/program.h"

namespace lamina::reference {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Adding 1.5 * 2^23 rounds |x| <= 2^22 to an integer, which then stands in the low bits of the sum.
constexpr float kRoundMagic = 12582912.0f;
constexpr uint32_t kRoundMagicBits = 0x4B400000;

/// x rounded to the nearest integer, ties to even; |x| <= 2^22.
inline int32_t round_to_int(float x) {
  return static_cast<int32_t>(std::bit_cast<uint32_t>(x + kRoundMagic) - kRoundMagicBits);
}

/// e^x = 2^n * e^r with n = rne(x / ln 2), |r| <= ln(2)/2 and e^r a polynomial of degree 6. exp(0) = 1; x < -87 gives
/// 0; x > 88 counts as 88, so that nothing overflows. Within these bounds n + the exponent of e^r stays a normal
/// number's exponent.
inline float exp(float x) {
  constexpr float kLog2E = 0x1.715476p+0f;
  constexpr float kLn2Hi = 0x1.62e430p-1f;    // float(ln 2): n * kLn2Hi fits 29 bits, so the first fma is exact
  constexpr float kLn2Lo = -0x1.05c610p-29f;  // ln 2 - kLn2Hi
  const float t = x < 88.0f ? x : 88.0f;
  const float shifted = std::fma(t, kLog2E, kRoundMagic);
  const float n = shifted - kRoundMagic;
  float r = std::fma(n, -kLn2Hi, t);
  r = std::fma(n, -kLn2Lo, r);
  float p = 0x1.6a2434p-10f;
  p = std::fma(p, r, 0x1.1239e2p-7f);
  p = std::fma(p, r, 0x1.5558f2p-5f);
  p = std::fma(p, r, 0x1.555492p-3f);
  p = std::fma(p, r, 0x1.fffffcp-2f);
  p = std::fma(p, r, 1.0f);
  p = std::fma(p, r, 1.0f);
  const uint32_t exponent = (std::bit_cast<uint32_t>(shifted) - kRoundMagicBits) << 23;
  const float y = std::bit_cast<float>(std::bit_cast<uint32_t>(p) + exponent);
  return x < -87.0f ? 0.0f : y;
}

/// Both branches are taken and one is selected: an odd polynomial below 0.625, 1 - 2 / (e^2y + 1) from there on; y =
/// |x|, and x gives the sign at the end.
inline float tanh(float x) {
  const float y = std::fabs(x);
  const float far = 1.0f - 2.0f / (exp(2.0f * y) + 1.0f);
  const float z = y * y;
  float p = -0x1.75e1cap-8f;
  p = std::fma(p, z, 0x1.52269ap-6f);
  p = std::fma(p, z, -0x1.b83c5ap-5f);
  p = std::fma(p, z, 0x1.110726p-3f);
  p = std::fma(p, z, -0x1.555532p-2f);
  const float near = std::fma(y * z, p, y);
  return std::copysign(y < 0.625f ? near : far, x);
}

/// The tanh form of GELU.
inline float gelu(float x) {
  const float x2 = x * x;
  const float inner = 0.79788456f * std::fma(0.044715f * x2, x, x);
  return (0.5f * x) * (1.0f + tanh(inner));
}

inline float silu(float x) { return x / (1.0f + exp(-x)); }
inline float relu(float x) { return x > 0.0f ? x : 0.0f; }
inline float sigmoid(float x) { return 1.0f / (1.0f + exp(-x)); }
inline float softcap(float y, float cap) { return cap * tanh(y / cap); }

inline float activate(Activation activation, float x) {
  switch (activation) {
    case Activation::kSilu: return silu(x);
    case Activation::kGelu: return gelu(x);
    case Activation::kRelu: return relu(x);
    case Activation::kReluSquared: return relu(x) * relu(x);
  }
  return x;
}

/// Sums 16 virtual lanes as a tree: lane i += lane i + 8, then + 4, + 2, + 1.
inline float tree16(float (&lane)[16]) {
  for (int half = 8; half >= 1; half /= 2)
    for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
  return lane[0];
}

/// Sum of x: element i goes to lane i mod 16, ascending; lanes start from 0.
inline float sum(std::span<const float> x) {
  float lane[16] = {};
  for (size_t i = 0; i < x.size(); ++i) lane[i % 16] += x[i];
  return tree16(lane);
}

inline float sum_of_squares(std::span<const float> x) {
  float lane[16] = {};
  for (size_t i = 0; i < x.size(); ++i) lane[i % 16] = std::fma(x[i], x[i], lane[i % 16]);
  return tree16(lane);
}

/// Replaces x by exp(x - max) / sum.
inline void softmax(std::span<float> x) {
  const float max = *std::max_element(x.begin(), x.end());
  for (float& value : x) value = exp(value - max);
  const float total = sum(x);
  for (float& value : x) value = value / total;
}

}  // namespace lamina::reference

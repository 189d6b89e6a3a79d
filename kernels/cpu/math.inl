// exp, tanh and what is made of them, 16 lanes at a time: one polynomial each, no libm, the same IEEE operations in the
// same order on every instruction set. Polynomials: minimax fits, errors against double measured in
// tests/reference_test.cpp.

namespace lamina::cpu {
namespace {

/// e^x = 2^n * e^r with n = rne(x / ln 2), |r| <= ln(2) / 2. exp(0) = 1; x < -87 gives 0; x > 88 counts as 88. 0.98
/// ulp.
LAMINA_WORD F exp(F x) {
  const F magic = set1(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer, which then stands in the low bits
  const F t = select_less(x, set1(88.0f), x, set1(88.0f));
  const F shifted = fma(t, set1(0x1.715476p+0f), magic);
  const F n = shifted - magic;
  F r = fma(n, set1(-0x1.62e430p-1f), t);  // float(ln 2), then the rest of ln 2
  r = fma(n, set1(0x1.05c610p-29f), r);
  F p = set1(0x1.6a2434p-10f);
  p = fma(p, r, set1(0x1.1239e2p-7f));
  p = fma(p, r, set1(0x1.5558f2p-5f));
  p = fma(p, r, set1(0x1.555492p-3f));
  p = fma(p, r, set1(0x1.fffffcp-2f));
  p = fma(p, r, set1(1.0f));
  p = fma(p, r, set1(1.0f));
  const F y = as_float(as_int(p) + shift_left(as_int(shifted) - as_int(magic), 23));
  return select_less(x, set1(-87.0f), set1(0.0f), y);
}

/// An odd polynomial below 0.625, 1 - 2 / (e^2|x| + 1) from there on. 1.4 ulp.
LAMINA_WORD F tanh(F x) {
  const I magnitude = as_int(x) & set1_int(0x7fffffff), sign = as_int(x) - magnitude;
  const F y = as_float(magnitude);
  const F far = set1(1.0f) - set1(2.0f) / (exp(set1(2.0f) * y) + set1(1.0f));
  const F z = y * y;
  F p = set1(-0x1.75e1cap-8f);
  p = fma(p, z, set1(0x1.52269ap-6f));
  p = fma(p, z, set1(-0x1.b83c5ap-5f));
  p = fma(p, z, set1(0x1.110726p-3f));
  p = fma(p, z, set1(-0x1.555532p-2f));
  const F near = fma(y * z, p, y);
  return as_float(as_int(select_less(y, set1(0.625f), near, far)) + sign);
}

LAMINA_WORD F softcap(F y, float cap) { return set1(cap) * tanh(y / set1(cap)); }
LAMINA_WORD F negate(F x) { return as_float(as_int(x) + set1_int(INT32_MIN)); }
LAMINA_WORD F sigmoid(F x) { return set1(1.0f) / (set1(1.0f) + exp(negate(x))); }
LAMINA_WORD F silu(F x) { return x / (set1(1.0f) + exp(negate(x))); }
LAMINA_WORD F relu(F x) { return select_less(set1(0.0f), x, x, set1(0.0f)); }

/// x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))  (Hendrycks and Gimpel, arXiv 1606.08415)
LAMINA_WORD F gelu(F x) {
  const F inner = set1(0.79788456f) * fma(set1(0.044715f) * (x * x), x, x);
  return (set1(0.5f) * x) * (set1(1.0f) + tanh(inner));
}

/// The first n < 16 lanes, the others 0.
LAMINA_WORD F load_part(const float* p, uint32_t n) {
  float lane[16] = {};
  std::memcpy(lane, p, n * sizeof(float));
  return load(lane);
}

LAMINA_WORD void store_part(float* p, F x, uint32_t n) {
  float lane[16];
  store(lane, x);
  std::memcpy(p, lane, n * sizeof(float));
}

/// Asks for memory that will be read soon; any address will do.
template <uint32_t kBytes>
LAMINA_WORD void prefetch(const void* p) {
  LAMINA_UNROLL
  for (uint32_t i = 0; i < kBytes; i += 64) __builtin_prefetch(static_cast<const char*>(p) + i);
}

/// y[i] = fn(i, load), 16 at a time; `load(p)` reads p[i ..] and the tail is never passed.
template <class Fn>
LAMINA_WORD void map(uint32_t n, float* y, Fn fn) {
  uint32_t i = 0;
  for (; i + 16 <= n; i += 16) store(y + i, fn([i](const float* p) { return load(p + i); }));
  if (i < n) store_part(y + i, fn([i, n](const float* p) { return load_part(p + i, n - i); }), n - i);
}

}  // namespace
}  // namespace lamina::cpu

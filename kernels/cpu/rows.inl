// What happens to one row of activations between products: norms, gates, rope, packing into the kernels' forms,
// softmax, argmax. In and out: float32 rows of any length; nothing is read or written past the end.

namespace lamina::cpu {
namespace {

float sum_row(const float* x, uint32_t n) {
  F lanes = set1(0.0f);
  uint32_t i = 0;
  for (; i + 16 <= n; i += 16) lanes = lanes + load(x + i);
  if (i < n) lanes = lanes + load_part(x + i, n - i);
  return tree(lanes);
}

/// Sum of (x - mean)^2.
float sum_squares(const float* x, uint32_t n, float mean) {
  F lanes = set1(0.0f);
  uint32_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const F d = load(x + i) - set1(mean);
    lanes = fma(d, d, lanes);
  }
  if (i < n) {
    float tail[16] = {};
    for (uint32_t j = 0; i + j < n; j++) tail[j] = x[i + j] - mean;
    lanes = fma(load(tail), load(tail), lanes);
  }
  return tree(lanes);
}

void norm_row(const float* x, uint32_t n, const NormArgs& args, const float* residual, float* y) {
  const auto count = static_cast<float>(n);
  const float mean = args.layer ? sum_row(x, n) / count : 0.0f;
  const float inverse = 1.0f / __builtin_sqrtf(sum_squares(x, n, mean) / count + args.eps);
  map(n, y, [&](auto part) {
    F v = part(x);
    if (args.layer) v = v - set1(mean);
    v = v * set1(inverse);
    if (args.weight != nullptr) v = v * part(args.weight);
    if (args.bias != nullptr) v = v + part(args.bias);
    if (residual != nullptr) v = v + part(residual);
    return v;
  });
}

void gate_row(Gate act, const float* z, const float* u, uint32_t n, float* y) {
  map(n, y, [&](auto part) {
    F v = part(z);
    if (act == Gate::kSilu) v = silu(v);
    else if (act == Gate::kGelu) v = gelu(v);
    else v = relu(v);
    if (act == Gate::kReluSquared) v = v * v;
    return u != nullptr ? v * part(u) : v;
  });
}

void rotate_row(float* x, uint32_t n_pairs, bool halves, const float* cosines, const float* sines) {
  const uint32_t stride = halves ? 1 : 2, other = halves ? n_pairs : 1;
  for (uint32_t i = 0; i < n_pairs; i += 16) {
    const uint32_t n = n_pairs - i < 16 ? n_pairs - i : 16;
    float first[16] = {}, second[16] = {};
    for (uint32_t j = 0; j < n; j++) {
      first[j] = x[(i + j) * stride];
      second[j] = x[(i + j) * stride + other];
    }
    const F x0 = load(first), x1 = load(second), c = load_part(cosines + i, n), s = load_part(sines + i, n);
    store(first, fma(x0, c, negate(x1 * s)));
    store(second, fma(x0, s, x1 * c));
    for (uint32_t j = 0; j < n; j++) {
      x[(i + j) * stride] = first[j];
      x[(i + j) * stride + other] = second[j];
    }
  }
}

void store_f16_row(const float* x, uint32_t n, uint16_t* out, size_t stride) {
  for (uint32_t i = 0; i < n; i += 16) {
    const uint32_t count = n - i < 16 ? n - i : 16;
    uint16_t half[16];
    store_f16(half, load_part(x + i, count));
    for (uint32_t j = 0; j < count; j++) out[(i + j) * stride] = half[j];
  }
}

/// 32 columns as int8: a = amax / 127, q = rne(clamp(x * (127 / amax))); a block whose amax is below 2^-100 counts as
/// zero.
LAMINA_WORD void pack_block(const float* x, int8_t* q, float* fields, int width, int t) {
  const F x0 = load(x), x1 = load(x + 16);
  const I no_sign = set1_int(0x7fffffff);
  const float amax = highest(max(as_float(as_int(x0) & no_sign), as_float(as_int(x1) & no_sign)));
  const bool zero = amax < 0x1p-100f;
  const float a = zero ? 0.0f : amax / 127.0f;
  const F inverse = set1(zero ? 0.0f : 127.0f / amax), magic = set1(12582912.0f);
  const F limit = set1(127.0f), minus_limit = set1(-127.0f);
  const I q0 = as_int(max(min(x0 * inverse, limit), minus_limit) + magic) - as_int(magic);
  const I q1 = as_int(max(min(x1 * inverse, limit), minus_limit) + magic) - as_int(magic);
  store_i8(q, q0);
  store_i8(q + 16, q1);
  const auto lo = static_cast<float>(sum(q0)), hi = static_cast<float>(sum(q1));
  fields[kPackA * width + t] = a;
  fields[kPackSum * width + t] = lo + hi;
  fields[kPackXs * width + t] = a * (lo + hi);
  fields[kPackSumLo * width + t] = lo;
  fields[kPackSumHi * width + t] = hi;
  fields[kPackXsLo * width + t] = a * lo;
  fields[kPackXsHi * width + t] = a * hi;
}

/// Round to nearest even; denormals become zero.
LAMINA_WORD uint32_t to_bf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if ((bits & 0x7f800000) == 0) return bits >> 31 << 15;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

void pack_row(const float* x, uint32_t n, const PackedTile& tile, int t) {
  const auto width = static_cast<size_t>(tile.width);
  if (tile.q != nullptr) {
    for (uint32_t b = 0; b < n / kColTile; b++) {
      pack_block(x + b * kColTile, tile.q + (b * width + static_cast<size_t>(t)) * kColTile,
                 tile.fields + b * kPackFields * width, tile.width, t);
    }
  }
  if (tile.floats != nullptr) {
    for (size_t c = 0; c < n; c++) tile.floats[c * width + static_cast<size_t>(t)] = x[c];
  }
  if (tile.rounded != nullptr) {
    for (size_t c = 0; c < n; c++) {
      const uint32_t bits = to_bf16(x[c]) << 16;
      std::memcpy(tile.rounded + c * width + static_cast<size_t>(t), &bits, sizeof bits);
    }
    if (n % 2 != 0) tile.rounded[n * width + static_cast<size_t>(t)] = 0.0f;
  }
  if (tile.pairs != nullptr) {
    for (size_t c = 0; c < n; c += 2) {
      const uint32_t odd = c + 1 < n ? to_bf16(x[c + 1]) : 0;
      tile.pairs[c / 2 * width + static_cast<size_t>(t)] = to_bf16(x[c]) | odd << 16;
    }
  }
}

void softmax_row(const float* x, uint32_t n, float* p) {
  float top = x[0];
  for (uint32_t i = 1; i < n; i++) top = x[i] > top ? x[i] : top;
  map(n, p, [&](auto part) { return exp(part(x) - set1(top)); });
  const float total = sum_row(p, n);
  map(n, p, [&](auto part) { return part(p) / set1(total); });
}

void sigmoid_row(const float* x, uint32_t n, float* p) {
  map(n, p, [&](auto part) { return sigmoid(part(x)); });
}

void axpy_row(float w, const float* x, uint32_t n, float* y) {
  map(n, y, [&](auto part) { return fma(set1(w), part(x), part(y)); });
}

void scale_row(const float* x, float s, uint32_t n, float* y) {
  map(n, y, [&](auto part) { return part(x) * set1(s); });
}

void add_row(const float* x, const float* z, uint32_t n, float* y) {
  map(n, y, [&](auto part) { return part(x) + part(z); });
}

/// Each lane keeps its first highest value; indices below 2^24 are exact in float32.
uint32_t argmax_row(const float* x, uint32_t n) {
  float first[16];
  for (int i = 0; i < 16; i++) first[i] = static_cast<float>(i);
  F best = set1(-__builtin_inff()), best_at = set1(0.0f), at = load(first);
  uint32_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const F v = load(x + i);
    best_at = select_less(best, v, at, best_at);
    best = select_less(best, v, v, best);
    at = at + set1(16.0f);
  }
  float value[16], index[16];
  store(value, best);
  store(index, best_at);
  float top = value[0], top_at = index[0];
  for (int j = 1; j < 16; j++) {
    if (value[j] > top || (value[j] == top && index[j] < top_at)) {
      top = value[j];
      top_at = index[j];
    }
  }
  for (; i < n; i++) {
    if (x[i] > top) {
      top = x[i];
      top_at = static_cast<float>(i);
    }
  }
  return static_cast<uint32_t>(top_at);
}

}  // namespace
}  // namespace lamina::cpu

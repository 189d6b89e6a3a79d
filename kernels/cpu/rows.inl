// What happens to one row of activations between products: norms, gates, rope, packing into the kernels' forms,
// softmax. In and out: float32 rows of any length; nothing is read or written past the end.

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
  const auto rotate = [](F& x0, F& x1, F c, F s) {
    const F first = fma(x0, c, negate(x1 * s));
    x1 = fma(x0, s, x1 * c);
    x0 = first;
  };
  uint32_t i = 0;
  for (; i + 16 <= n_pairs; i += 16) {
    F x0, x1;
    if (halves) {
      x0 = load(x + i);
      x1 = load(x + n_pairs + i);
    } else {
      load_pairs(x + 2 * i, x0, x1);
    }
    rotate(x0, x1, load(cosines + i), load(sines + i));
    if (halves) {
      store(x + i, x0);
      store(x + n_pairs + i, x1);
    } else {
      store_pairs(x + 2 * i, x0, x1);
    }
  }
  if (i == n_pairs) return;
  const uint32_t n = n_pairs - i, stride = halves ? 1 : 2, other = halves ? n_pairs : 1;
  float first[16] = {}, second[16] = {};
  for (uint32_t j = 0; j < n; j++) {
    first[j] = x[(i + j) * stride];
    second[j] = x[(i + j) * stride + other];
  }
  F x0 = load(first), x1 = load(second);
  rotate(x0, x1, load_part(cosines + i, n), load_part(sines + i, n));
  store(first, x0);
  store(second, x1);
  for (uint32_t j = 0; j < n; j++) {
    x[(i + j) * stride] = first[j];
    x[(i + j) * stride + other] = second[j];
  }
}

void store_f16_row(const float* x, uint32_t n, uint16_t* out, size_t stride) {
  uint16_t half[16];
  uint32_t i = 0;
  for (; i + 16 <= n; i += 16) {
    if (stride == 1) {
      store_f16(out + i, load(x + i));
      continue;
    }
    store_f16(half, load(x + i));
    for (uint32_t j = 0; j < 16; j++) out[(i + j) * stride] = half[j];
  }
  if (i == n) return;
  store_f16(half, load_part(x + i, n - i));
  for (uint32_t j = 0; i + j < n; j++) out[(i + j) * stride] = half[j];
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

/// bf16, round to nearest even, in the upper half of each lane; denormals become zero.
LAMINA_WORD I to_bf16(F x) {
  const I bits = as_int(x), odd = shift_right(bits, 16) & set1_int(1);
  const F rounded = as_float(bits + set1_int(0x7fff) + odd);
  const F magnitude = as_float(bits & set1_int(0x7fffffff));
  const I kept = as_int(select_less(magnitude, set1(0x1p-126f), as_float(bits & set1_int(INT32_MIN)), rounded));
  return kept & set1_int(static_cast<int32_t>(0xffff0000));
}

/// The first n of 16 words of 32 bits as a token's of a tile: `width` apart.
LAMINA_WORD void store_column(void* out, size_t width, I words, uint32_t n) {
  if (width == 1 && n == 16) return store_u32(static_cast<uint32_t*>(out), words);
  uint32_t word[16];
  store_u32(word, words);
  for (size_t i = 0; i < n; i++) std::memcpy(static_cast<char*>(out) + i * width * sizeof(uint32_t), &word[i], 4);
}

/// 32 columns as 16 pairs of bf16, even column low.
LAMINA_WORD I pack_pairs(const float* x) {
  F even, odd;
  load_pairs(x, even, odd);
  return shift_right(to_bf16(even), 16) + to_bf16(odd);
}

void pack_row(const float* x, uint32_t n, const PackedTile& tile, int t) {
  const auto width = static_cast<size_t>(tile.width);
  if (tile.q != nullptr) {
    for (uint32_t b = 0; b < n / kColTile; b++) {
      pack_block(x + b * kColTile, tile.q + (b * width + static_cast<size_t>(t)) * kColTile,
                 tile.fields + b * kPackFields * width, tile.width, t);
    }
  }
  const auto by_16 = [&](float* out, auto word) {
    uint32_t c = 0;
    for (; c + 16 <= n; c += 16) store_column(out + c * width + t, width, word(load(x + c)), 16);
    if (c < n) store_column(out + c * width + t, width, word(load_part(x + c, n - c)), n - c);
  };
  if (tile.floats != nullptr) by_16(tile.floats, [](F v) { return as_int(v); });
  if (tile.rounded != nullptr) {
    by_16(tile.rounded, [](F v) { return to_bf16(v); });
    if (n % 2 != 0) tile.rounded[n * width + static_cast<size_t>(t)] = 0.0f;
  }
  if (tile.pairs != nullptr) {
    uint32_t* out = tile.pairs + t;
    uint32_t c = 0;
    for (; c + 32 <= n; c += 32) store_column(out + c / 2 * width, width, pack_pairs(x + c), 16);
    float tail[32] = {};
    if (c < n) std::memcpy(tail, x + c, (n - c) * sizeof(float));
    if (c < n) store_column(out + c / 2 * width, width, pack_pairs(tail), (n - c + 1) / 2);
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

}  // namespace
}  // namespace lamina::cpu

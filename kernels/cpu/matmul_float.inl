// Products from float weights, transposed into row tiles: one text over the kinds of weight (F32, F16, BF16). In: up to
// kMaxRowTiles row tiles and one packed token tile. Out: f32 [row tile][token][16]. Each row and token is one chain of
// fused multiply-adds over the columns in the promised order; as many rows and tokens as registers hold go side by side
// to hide the chain's latency and to share loads.

namespace lamina::cpu {
namespace {

/// A kind of weight: what one step along a row loads, and how it is added for token t.
struct WeightF32 {
  static constexpr size_t kColumns = 1;
  using Loaded = F;
  LAMINA_WORD F load_step(const void* row_tiles, size_t at) {
    return load(static_cast<const float*>(row_tiles) + at * kRowTile);
  }
  template <int T>
  LAMINA_WORD F add(F acc, F weight, const PackedTile& x, size_t c, int t) {
    return fma(weight, set1(x.floats[c * T + static_cast<size_t>(t)]), acc);
  }
};

struct WeightF16 : WeightF32 {
  LAMINA_WORD F load_step(const void* row_tiles, size_t at) {
    return load_f16(static_cast<const uint16_t*>(row_tiles) + at * kRowTile);
  }
};

/// Two neighbouring columns of BF16, by two fused multiply-adds: odd, then even. Activations are rounded to bf16.
struct WeightBf16 {
  static constexpr size_t kColumns = 2;
  struct Loaded {
    F odd, even;
  };
  LAMINA_WORD Loaded load_step(const void* row_tiles, size_t at) {
    const I pair = load_u32(static_cast<const uint32_t*>(row_tiles) + at * kRowTile);
    return {as_float(pair & set1_int(static_cast<int32_t>(0xffff0000))), as_float(shift_left(pair, 16))};
  }
  template <int T>
  LAMINA_WORD F add(F acc, const Loaded& weight, const PackedTile& x, size_t p, int t) {
    const float* even = x.rounded + 2 * p * T + static_cast<size_t>(t);
    return fma(weight.even, set1(even[0]), fma(weight.odd, set1(even[T]), acc));
  }
};

/// R row tiles times N of T tokens, from token `from` on.
template <class Kind, int R, int N, int T>
LAMINA_WORD void float_tiles(const PlaneView& w, uint32_t first_tile, const PackedTile& x, int from, float* out) {
  F acc[R][N];
  LAMINA_UNROLL
  for (int r = 0; r < R; r++) {
    LAMINA_UNROLL
    for (int t = 0; t < N; t++) acc[r][t] = set1(0.0f);
  }
  const size_t n_steps = (size_t{w.n_cols} + Kind::kColumns - 1) / Kind::kColumns;
  for (size_t i = 0; i < n_steps; i++) {
    typename Kind::Loaded weight[R];
    LAMINA_UNROLL
    for (int r = 0; r < R; r++)
      weight[r] = Kind::load_step(w.floats, (first_tile + static_cast<size_t>(r)) * n_steps + i);
    LAMINA_UNROLL
    for (int t = 0; t < N; t++) {
      LAMINA_UNROLL
      for (int r = 0; r < R; r++) acc[r][t] = Kind::template add<T>(acc[r][t], weight[r], x, i, from + t);
    }
  }
  LAMINA_UNROLL
  for (int r = 0; r < R; r++) {
    LAMINA_UNROLL
    for (int t = 0; t < N; t++) store(out + (r * T + from + t) * kRowTile, acc[r][t]);
  }
}

template <class Kind, int R, int T>
__attribute__((noinline)) void float_rows(const PlaneView& w, uint32_t first_tile, const PackedTile& x, float* out) {
  constexpr int kTokens = T <= kFloatSums ? T : T % kFloatSums == 0 ? kFloatSums : T / 2;
  static_assert(kTokens <= kFloatSums && T % kTokens == 0);
  for (int from = 0; from < T; from += kTokens) float_tiles<Kind, R, kTokens, T>(w, first_tile, x, from, out);
}

template <class Kind, int T>
void matmul_float(const PlaneView& w, uint32_t first_tile, uint32_t n_tiles, const PackedTile& x, float* out) {
  constexpr uint32_t kFit = kFloatSums / T, kRows = kFit >= 4 ? 4 : kFit >= 2 ? 2 : 1;
  static_assert(kMaxRowTiles % kRows == 0);
  uint32_t i = 0;
  for (; i + kRows <= n_tiles; i += kRows) float_rows<Kind, kRows, T>(w, first_tile + i, x, out + i * T * kRowTile);
  if constexpr (kRows > 1) {
    for (; i < n_tiles; i++) float_rows<Kind, 1, T>(w, first_tile + i, x, out + i * T * kRowTile);
  }
}

/// Denormals count as zero in BF16 products and nowhere else, as in VDPBF16PS. The products are behind a call that is
/// not inlined, so that none moves across the change of mode.
template <class Kind, int T>
void matmul_bf16(const PlaneView& w, uint32_t first_tile, uint32_t n_tiles, const PackedTile& x, float* out) {
  constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x0040;
  const unsigned mode = _mm_getcsr();
  _mm_setcsr(mode | kFlushToZero | kDenormalsAreZero);
  matmul_float<Kind, T>(w, first_tile, n_tiles, x, out);
  _mm_setcsr(mode);
}

template <class Kind>
constexpr ProductKernels bf16_kernels() {
  return {{matmul_bf16<Kind, 1>, matmul_bf16<Kind, 2>, matmul_bf16<Kind, 4>, matmul_bf16<Kind, 8>,
           matmul_bf16<Kind, kMaxTokenTile>}};
}

}  // namespace
}  // namespace lamina::cpu

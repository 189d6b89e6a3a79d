// Matrix products from planes: one text per kind of weight (quantised, F32/F16, BF16), instantiated for every plane
// form and token tile width. In: planes of up to kMaxRowTiles row tiles and one packed token tile. Out: f32 [row
// tile][token][16]. The order of arithmetic is the promise of design section 2: the same chain of operations for every
// row and token, whatever the width. Lanes are the 16 rows of a tile.

namespace lamina::cpu {
namespace {

using gguf::DKind;
using gguf::MinKind;
using gguf::PlaneForm;
using gguf::ScaleKind;

/// Codes above 129 may occur: 8-bit codes, and 16-entry tables that reach from -127 to 113.
constexpr bool is_wide(const PlaneForm& form) { return form.lo_bits == 8 || (form.table && form.lo_bits == 4); }

/// The 8 code words of a tile: word q holds columns 4q .. 4q + 3 of the 16 rows, as unsigned bytes value + offset.
template <PlaneForm P>
LAMINA_WORD void unpack(const PlaneView& w, size_t tile, Table table, W (&code)[8]) {
  constexpr int kLoFields = 8 / P.lo_bits;
  constexpr int kHiBits = P.hi_bits != 0 ? P.hi_bits : 1, kHiFields = 8 / kHiBits;
  const uint32_t* lo = w.lo + tile * P.lo_bits * kRowTile;
  const uint32_t* hi = w.hi + tile * P.hi_bits * kRowTile;
  LAMINA_UNROLL
  for (int q = 0; q < 8; q++) {
    code[q] = load_codes(lo + q / kLoFields * kRowTile);
    if constexpr (P.lo_bits < 8) {
      code[q] = shift_mask(code[q], P.lo_bits * (q % kLoFields), (1u << P.lo_bits) - 1);
    }
    if constexpr (P.hi_bits != 0) {
      const W high = load_codes(hi + q / kHiFields * kRowTile);
      code[q] = code[q] | shift_mask(high, kHiBits * (q % kHiFields) - P.lo_bits, ((1u << kHiBits) - 1) << P.lo_bits);
    }
    if constexpr (P.table) code[q] = look_up(table, code[q]);
  }
}

/// s of one sub group for 16 rows; `group` counts sub groups of the whole row.
template <PlaneForm P>
LAMINA_WORD I stored_scale(const PlaneView& w, uint32_t row_tile, uint32_t group) {
  const size_t n_groups = size_t{w.n_cols} / P.sub_group;
  if constexpr (P.scale == ScaleKind::kInt8) {
    return load_i8(w.scale + (row_tile * n_groups + group) * kRowTile);
  } else if constexpr (P.min == MinKind::kNibble) {
    return load_u8(w.scale + (row_tile * n_groups + group) * kRowTile) & set1_int(15);
  } else {  // groups 2g and 2g + 1 share a byte
    const I both = load_u8(w.scale + (row_tile * ((n_groups + 1) / 2) + group / 2) * kRowTile);
    return group % 2 == 0 ? both & set1_int(15) : shift_right(both, 4);
  }
}

/// factor and shift with  s * v = factor * (code - offset) + shift  for one sub group; shift is for kOddDelta only.
template <PlaneForm P>
LAMINA_WORD void load_scale(const PlaneView& w, uint32_t row_tile, uint32_t group, F& factor, F& shift) {
  const I stored = stored_scale<P>(w, row_tile, group);
  if constexpr (P.scale == ScaleKind::kOddNibble) {
    factor = to_float(stored + stored + set1_int(1));
  } else if constexpr (P.scale == ScaleKind::kOddDelta) {  // s (8 v +- 1): bit 3 of the nibble means -1
    const F s = to_float(shift_left(stored & set1_int(7), 1) + set1_int(1));
    factor = s * set1(8.0f);
    shift = s * select_less(to_float(stored), set1(8.0f), set1(1.0f), set1(-1.0f));
  } else {
    factor = to_float(stored);
  }
}

template <PlaneForm P>
LAMINA_WORD F load_d(const PlaneView& w, size_t group) {
  if constexpr (P.d_kind == DKind::kF16) {
    const F d = load_f16(static_cast<const uint16_t*>(w.d) + group * kRowTile);
    return P.scale == ScaleKind::kNone ? d : d * set1(w.d_factor);
  } else if constexpr (P.d_kind == DKind::kE8M0) {  // 2^(e - 128): a denormal for e = 0, 1
    const I e = load_u8(static_cast<const uint8_t*>(w.d) + group * kRowTile);
    const I normal = shift_left(e - set1_int(1), 23), denormal = shift_left(e + set1_int(1), 21);
    return select_less(to_float(e), set1(2.0f), as_float(denormal), as_float(normal));
  } else {  // UE4M3 has F32's layout with an exponent bias of 7, and its value is halved
    const I bits = load_u8(static_cast<const uint8_t*>(w.d) + group * kRowTile);
    return as_float(shift_left(bits, 20)) * set1(0x1p119f);
  }
}

/// Exact integer sums of code * q over 8 groups of 4 columns, or over the low and the high four.
template <bool kWide>
LAMINA_WORD I dot16(const W* code, const int8_t* q) {
  I s = set1_int(0);
  LAMINA_UNROLL
  for (int i = 0; i < 4; i++) s = dot4<kWide>(s, code[i], q + 4 * i);
  return s;
}

/// One row tile of a quantised product.
template <PlaneForm P, int T>
LAMINA_WORD void matmul_quant_tile(const PlaneView& w, uint32_t row_tile, const PackedTile& x, float* out) {
  constexpr bool kHalves = P.sub_group == 16 || P.d_group == 16;  // sums of 16 columns are scaled apart
  constexpr uint32_t kBlocks = P.d_group >= kColTile ? P.d_group / kColTile : 1;
  const Table table = load_table(w.unsigned_values);
  const F minus_offset = set1(-w.offset), zero = set1(0.0f);
  const uint32_t n_groups = w.n_col_tiles / kBlocks;
  F acc[T];
  LAMINA_UNROLL
  for (int t = 0; t < T; t++) acc[t] = zero;
  for (uint32_t g = 0; g < n_groups; g++) {
    const uint32_t first = g * kBlocks;
    F a[T];
    LAMINA_UNROLL
    for (int t = 0; t < T; t++) a[t] = zero;
    for (uint32_t b = first; b < first + kBlocks; b++) {
      W code[8];
      unpack<P>(w, size_t{row_tile} * w.n_col_tiles + b, table, code);
      F factor[2] = {zero, zero}, shift[2] = {zero, zero};
      if constexpr (P.scale != ScaleKind::kNone) {
        constexpr uint32_t kPerBlock = kColTile / P.sub_group;
        for (uint32_t h = 0; h < kPerBlock; h++) load_scale<P>(w, row_tile, b * kPerBlock + h, factor[h], shift[h]);
      }
      F d_lo = zero, d_hi = zero;
      if constexpr (P.d_group == 16) {
        const size_t at = size_t{row_tile} * (2 * w.n_col_tiles) + 2 * b;
        d_lo = load_d<P>(w, at);
        d_hi = load_d<P>(w, at + 1);
      }
      const int8_t* q = x.q + size_t{b} * T * kColTile;
      const float* fields = x.fields + size_t{b} * kPackFields * T;
      LAMINA_UNROLL
      for (int t = 0; t < T; t++) {
        const I lo = dot16<is_wide(P)>(code, q + t * kColTile), hi = dot16<is_wide(P)>(code + 4, q + t * kColTile + 16);
        const F x_scale = set1(fields[kPackA * T + t]);
        if constexpr (kHalves) {
          F i_lo = to_float(lo), i_hi = to_float(hi);
          if constexpr (P.has_offset) {
            i_lo = fma(minus_offset, set1(fields[kPackSumLo * T + t]), i_lo);
            i_hi = fma(minus_offset, set1(fields[kPackSumHi * T + t]), i_hi);
          }
          if constexpr (P.d_group == 16) {
            acc[t] = fma(d_lo, fma(i_lo, x_scale, zero), acc[t]);
            acc[t] = fma(d_hi, fma(i_hi, x_scale, zero), acc[t]);
          } else {
            a[t] = fma(fma(i_hi, factor[1], i_lo * factor[0]), x_scale, a[t]);
          }
        } else {
          F i = to_float(lo + hi);
          if constexpr (P.has_offset) i = fma(minus_offset, set1(fields[kPackSum * T + t]), i);
          if constexpr (P.scale == ScaleKind::kOddDelta) {
            i = fma(i, factor[0], shift[0] * set1(fields[kPackSum * T + t]));
          } else if constexpr (P.scale != ScaleKind::kNone) {
            i = i * factor[0];
          }
          a[t] = fma(i, x_scale, a[t]);
        }
      }
    }
    if constexpr (P.d_group != 16) {
      const size_t at = size_t{row_tile} * n_groups + g;
      const F d = load_d<P>(w, at);
      LAMINA_UNROLL
      for (int t = 0; t < T; t++) acc[t] = fma(d, a[t], acc[t]);
      if constexpr (P.min == MinKind::kF16) {
        const F m = load_f16(w.dmin + at * kRowTile);
        const float* xs = x.fields + (size_t{first} * kPackFields + kPackXs) * T;
        LAMINA_UNROLL
        for (int t = 0; t < T; t++) acc[t] = fma(m, set1(xs[t]), acc[t]);
      } else if constexpr (P.min != MinKind::kNone) {
        F sums[T];
        LAMINA_UNROLL
        for (int t = 0; t < T; t++) sums[t] = zero;
        const size_t n_sub = size_t{w.n_cols} / P.sub_group;
        for (uint32_t b = first; b < first + kBlocks; b++) {
          const float* fields = x.fields + size_t{b} * kPackFields * T;
          if constexpr (P.min == MinKind::kUint8) {
            const F m = to_float(load_u8(w.min + (row_tile * n_sub + b) * kRowTile));
            LAMINA_UNROLL
            for (int t = 0; t < T; t++) sums[t] = fma(m, set1(fields[kPackXs * T + t]), sums[t]);
          } else {
            const uint8_t* nibbles = w.scale + (row_tile * n_sub + 2 * b) * kRowTile;
            const F m_lo = to_float(shift_right(load_u8(nibbles), 4));
            const F m_hi = to_float(shift_right(load_u8(nibbles + kRowTile), 4));
            LAMINA_UNROLL
            for (int t = 0; t < T; t++) {
              sums[t] = fma(m_lo, set1(fields[kPackXsLo * T + t]), sums[t]);
              sums[t] = fma(m_hi, set1(fields[kPackXsHi * T + t]), sums[t]);
            }
          }
        }
        const F minus_dmin = set1(-0.0f) - load_f16(w.dmin + at * kRowTile);
        LAMINA_UNROLL
        for (int t = 0; t < T; t++) acc[t] = fma(minus_dmin, sums[t], acc[t]);
      }
    }
  }
  LAMINA_UNROLL
  for (int t = 0; t < T; t++) store(out + t * kRowTile, acc[t]);
}

template <PlaneForm P, int T>
void matmul_quant(const PlaneView& w, uint32_t first_tile, uint32_t n_tiles, const PackedTile& x, float* out) {
  for (uint32_t i = 0; i < n_tiles; i++) matmul_quant_tile<P, T>(w, first_tile + i, x, out + i * T * kRowTile);
}

/// R row tiles of a float product at once: a narrow token tile alone would wait for its one chain of additions.
template <bool kHalf, int R, int T>
LAMINA_WORD void matmul_float_tiles(const PlaneView& w, uint32_t first_tile, const PackedTile& x, float* out) {
  F acc[R][T];
  LAMINA_UNROLL
  for (int r = 0; r < R; r++) {
    LAMINA_UNROLL
    for (int t = 0; t < T; t++) acc[r][t] = set1(0.0f);
  }
  const size_t tile = size_t{w.n_cols} * kRowTile;
  for (size_t c = 0; c < w.n_cols; c++) {
    LAMINA_UNROLL
    for (int r = 0; r < R; r++) {
      const size_t at = (first_tile + static_cast<size_t>(r)) * tile + c * kRowTile;
      const F weight = kHalf ? load_f16(static_cast<const uint16_t*>(w.floats) + at)
                             : load(static_cast<const float*>(w.floats) + at);
      LAMINA_UNROLL
      for (int t = 0; t < T; t++) acc[r][t] = fma(weight, set1(x.floats[c * T + t]), acc[r][t]);
    }
  }
  LAMINA_UNROLL
  for (int r = 0; r < R; r++) {
    LAMINA_UNROLL
    for (int t = 0; t < T; t++) store(out + (r * T + t) * kRowTile, acc[r][t]);
  }
}

template <bool kHalf, int T>
void matmul_float(const PlaneView& w, uint32_t first_tile, uint32_t n_tiles, const PackedTile& x, float* out) {
  uint32_t i = 0;
  if constexpr (T <= 2) {
    for (; i + 4 <= n_tiles; i += 4) matmul_float_tiles<kHalf, 4, T>(w, first_tile + i, x, out + i * T * kRowTile);
  }
  for (; i < n_tiles; i++) matmul_float_tiles<kHalf, 1, T>(w, first_tile + i, x, out + i * T * kRowTile);
}

/// R row tiles of a BF16 product at once. Dot adds the two products of a pair, odd then even.
template <class Dot, int R, int T>
__attribute__((noinline)) void matmul_pair_tiles(const PlaneView& w, uint32_t first_tile, const PackedTile& x,
                                                 float* out) {
  F acc[R][T];
  LAMINA_UNROLL
  for (int r = 0; r < R; r++) {
    LAMINA_UNROLL
    for (int t = 0; t < T; t++) acc[r][t] = set1(0.0f);
  }
  const size_t n_pairs = (size_t{w.n_cols} + 1) / 2;
  for (size_t p = 0; p < n_pairs; p++) {
    LAMINA_UNROLL
    for (int r = 0; r < R; r++) {
      const I weight = load_u32(static_cast<const uint32_t*>(w.floats) +
                                ((first_tile + static_cast<size_t>(r)) * n_pairs + p) * kRowTile);
      LAMINA_UNROLL
      for (int t = 0; t < T; t++) acc[r][t] = Dot::add(acc[r][t], weight, x.pairs[p * T + t]);
    }
  }
  LAMINA_UNROLL
  for (int r = 0; r < R; r++) {
    LAMINA_UNROLL
    for (int t = 0; t < T; t++) store(out + (r * T + t) * kRowTile, acc[r][t]);
  }
}

/// Denormals count as zero here and nowhere else, as in VDPBF16PS. The products are behind a call that is not inlined,
/// so that none moves across the change of mode.
template <class Dot, int T>
void matmul_pairs(const PlaneView& w, uint32_t first_tile, uint32_t n_tiles, const PackedTile& x, float* out) {
  constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x0040;
  const unsigned mode = _mm_getcsr();
  _mm_setcsr(mode | kFlushToZero | kDenormalsAreZero);
  uint32_t i = 0;
  if constexpr (T <= 2) {
    for (; i + 4 <= n_tiles; i += 4) matmul_pair_tiles<Dot, 4, T>(w, first_tile + i, x, out + i * T * kRowTile);
  }
  for (; i < n_tiles; i++) matmul_pair_tiles<Dot, 1, T>(w, first_tile + i, x, out + i * T * kRowTile);
  _mm_setcsr(mode);
}

}  // namespace
}  // namespace lamina::cpu

// Products from quantised planes: one text, instantiated for every plane form and token tile width. In: planes of up to
// kMaxRowTiles row tiles and one packed token tile. Out: f32 [row tile][token][16]. The order of arithmetic is the
// promise of design section 2: the same chain of operations for every row and token, whatever the width. Lanes are the
// 16 rows of a tile.
//
// Few tokens: codes go from the planes into registers and meet every token there. Many tokens: a row tile is unpacked
// once into a panel of bytes, which all token tiles read.

namespace lamina::cpu {
namespace {

using gguf::DKind;
using gguf::MinKind;
using gguf::PlaneForm;
using gguf::ScaleKind;

/// The form of an unpacked panel: codes are bytes now, all else is as it was.
constexpr PlaneForm panel_form(PlaneForm form) {
  form.lo_bits = 8;
  form.hi_bits = 0;
  form.table = false;
  return form;
}

/// Blocks that weights are fetched ahead of their use: 2 KiB of the wider code plane. A core's own prefetcher follows
/// one stream too late and not across pages.
constexpr uint32_t blocks_ahead(const PlaneForm& form) { return 32u / form.lo_bits; }

/// The codes of one row tile, from its planes.
template <PlaneForm P>
struct PlaneCodes {
  const uint32_t *lo, *hi;
  Table table;

  LAMINA_WORD PlaneCodes of(const PlaneView& w, uint32_t row_tile) {
    const size_t tile = size_t{row_tile} * w.n_col_tiles;
    return {w.lo + tile * P.lo_bits * kRowTile, w.hi + tile * P.hi_bits * kRowTile, load_table(w.unsigned_values)};
  }

  /// Columns 16 * half .. + 15 of a block: word i holds columns 4i .. 4i + 3 of the 16 rows, as unsigned bytes value +
  /// offset.
  LAMINA_METHOD void load(uint32_t block, int half, W (&code)[4]) const {
    constexpr int kLoFields = 8 / P.lo_bits;
    constexpr int kHiBits = P.hi_bits != 0 ? P.hi_bits : 1, kHiFields = 8 / kHiBits;
    const uint32_t* low = lo + size_t{block} * P.lo_bits * kRowTile;
    const uint32_t* high = hi + size_t{block} * P.hi_bits * kRowTile;
    if (half == 0) {
      prefetch<P.lo_bits * 64>(low + blocks_ahead(P) * P.lo_bits * kRowTile);
      prefetch<P.hi_bits * 64>(high + blocks_ahead(P) * P.hi_bits * kRowTile);
    }
    LAMINA_UNROLL
    for (int i = 0; i < 4; i++) {
      const int q = 4 * half + i;
      code[i] = load_codes(low + q / kLoFields * kRowTile);
      if constexpr (P.lo_bits < 8) {
        code[i] = shift_mask(code[i], P.lo_bits * (q % kLoFields), (1u << P.lo_bits) - 1);
      }
      if constexpr (P.hi_bits != 0) {
        const W bits = load_codes(high + q / kHiFields * kRowTile);
        code[i] = code[i] | shift_mask(bits, kHiBits * (q % kHiFields) - P.lo_bits, ((1u << kHiBits) - 1) << P.lo_bits);
      }
      if constexpr (P.table) code[i] = look_up(table, code[i]);
    }
  }
};

/// The same from a panel: [block][8][16] u32.
struct PanelCodes {
  const uint32_t* panel;

  LAMINA_METHOD void load(uint32_t block, int half, W (&code)[4]) const {
    LAMINA_UNROLL
    for (int i = 0; i < 4; i++) code[i] = load_codes(panel + (size_t{block} * 8 + 4 * half + i) * kRowTile);
  }
};

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

/// The scale, minimum and d planes of the d group that follows `group` by about as much as codes are fetched ahead.
template <PlaneForm P>
LAMINA_WORD void prefetch_scales(const PlaneView& w, uint32_t row_tile, uint32_t group) {
  constexpr uint32_t kGroupsAhead =
      blocks_ahead(P) * kColTile / P.d_group > 1 ? blocks_ahead(P) * kColTile / P.d_group : 1;
  const size_t d_at = size_t{row_tile} * (w.n_cols / P.d_group) + group + kGroupsAhead;
  constexpr uint32_t kDBytes = P.d_kind == DKind::kF16 ? 2 * kRowTile : kRowTile;
  prefetch<kDBytes>(static_cast<const char*>(w.d) + d_at * kDBytes);
  if constexpr (P.min != MinKind::kNone) prefetch<2 * kRowTile>(w.dmin + d_at * kRowTile);
  if constexpr (P.scale != ScaleKind::kNone) {
    constexpr bool kByte = P.scale == ScaleKind::kInt8 || P.min == MinKind::kNibble;
    constexpr uint32_t kBytes = P.d_group / P.sub_group * kRowTile / (kByte ? 1 : 2);
    prefetch<kBytes>(w.scale + d_at * kBytes);
    if constexpr (P.min == MinKind::kUint8) prefetch<kBytes>(w.min + d_at * kBytes);
  }
}

/// M of the d group that begins with block `first`: sums of minimum * x, blocks ascending.
template <PlaneForm P, int T>
LAMINA_WORD void add_minimums(const PlaneView& w, uint32_t row_tile, uint32_t first, const PackedTile& x,
                              F (&sums)[T]) {
  constexpr uint32_t kBlocks = P.d_group / kColTile;
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
}

/// One row tile of a quantised product.
template <PlaneForm P, int T, class Codes>
LAMINA_WORD void quant_tile(const PlaneView& w, uint32_t row_tile, const Codes& codes, const PackedTile& x,
                            float* out) {
  constexpr bool kHalves = P.sub_group == 16 || P.d_group == 16;  // sums of 16 columns are scaled apart
  constexpr bool kStarts = P.has_offset || kCodeBias<P.max_code> != 0;
  constexpr uint32_t kBlocks = P.d_group >= kColTile ? P.d_group / kColTile : 1;
  const F start_of_sum = set1(static_cast<float>(kCodeBias<P.max_code>) - w.offset), zero = set1(0.0f);
  const uint32_t n_groups = w.n_col_tiles / kBlocks;
  F acc[T];
  LAMINA_UNROLL
  for (int t = 0; t < T; t++) acc[t] = zero;
  for (uint32_t g = 0; g < n_groups; g++) {
    const uint32_t first = g * kBlocks;
    if constexpr (T < kMaxTokenTile) prefetch_scales<P>(w, row_tile, g);
    F a[T];
    LAMINA_UNROLL
    for (int t = 0; t < T; t++) a[t] = zero;
    for (uint32_t b = first; b < first + kBlocks; b++) {
      F factor[2] = {zero, zero}, shift[2] = {zero, zero};
      if constexpr (P.scale != ScaleKind::kNone) {
        constexpr uint32_t kPerBlock = kColTile / P.sub_group;
        for (uint32_t h = 0; h < kPerBlock; h++) load_scale<P>(w, row_tile, b * kPerBlock + h, factor[h], shift[h]);
      }
      const int8_t* q = x.q + size_t{b} * T * kColTile;
      const float* fields = x.fields + size_t{b} * kPackFields * T;
      // Integer sums begin with -offset * sum(q), so that they are those of value * q.
      alignas(64) float start[2][16];
      if constexpr (kStarts && kHalves) {
        store(start[0], as_float(to_int(load(fields + kPackSumLo * T) * start_of_sum)));
        store(start[1], as_float(to_int(load(fields + kPackSumHi * T) * start_of_sum)));
      } else if constexpr (kStarts) {
        store(start[0], as_float(to_int(load(fields + kPackSum * T) * start_of_sum)));
      }
      asm("" : "+m"(start));  // read lane by lane from memory: loads are free here, shuffles are not
      I sum[T];
      F part[T];
      LAMINA_UNROLL
      for (int h = 0; h < 2; h++) {
        W code[4];
        codes.load(b, h, code);
        F d_half = zero;
        if constexpr (P.d_group == 16)
          d_half = load_d<P>(w, size_t{row_tile} * (2 * w.n_col_tiles) + 2 * b + static_cast<uint32_t>(h));
        LAMINA_UNROLL
        for (int t = 0; t < T; t++) {
          if (h == 0 || kHalves) sum[t] = kStarts ? as_int(set1(start[h][t])) : set1_int(0);
          sum[t] = dot16<P.max_code>(sum[t], code, q + t * kColTile + 16 * h);
          const F x_scale = set1(fields[kPackA * T + t]);
          if constexpr (P.d_group == 16) {
            acc[t] = fma(d_half, fma(to_float(sum[t]), x_scale, zero), acc[t]);
          } else if constexpr (kHalves) {
            if (h == 0) part[t] = to_float(sum[t]) * factor[0];
            else a[t] = fma(fma(to_float(sum[t]), factor[1], part[t]), x_scale, a[t]);
          } else if (h == 1) {
            F i = to_float(sum[t]);
            if constexpr (P.scale == ScaleKind::kOddDelta) {
              i = fma(i, factor[0], shift[0] * set1(fields[kPackSum * T + t]));
            } else if constexpr (P.scale != ScaleKind::kNone) {
              i = i * factor[0];
            }
            a[t] = fma(i, x_scale, a[t]);
          }
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
        add_minimums<P, T>(w, row_tile, first, x, sums);
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
  for (uint32_t i = 0; i < n_tiles; i++) {
    quant_tile<P, T>(w, first_tile + i, PlaneCodes<P>::of(w, first_tile + i), x, out + i * T * kRowTile);
  }
}

template <PlaneForm P>
void unpack_panel(const PlaneView& w, uint32_t row_tile, uint32_t* panel) {
  const auto codes = PlaneCodes<P>::of(w, row_tile);
  for (uint32_t b = 0; b < w.n_col_tiles; b++) {
    for (int h = 0; h < 2; h++) {
      W code[4];
      codes.load(b, h, code);
      LAMINA_UNROLL
      for (int i = 0; i < 4; i++)
        store_codes(panel + (size_t{b} * 8 + 4 * static_cast<size_t>(h) + i) * kRowTile, code[i]);
    }
  }
}

template <PlaneForm P>
void matmul_panel(const PlaneView& w, uint32_t row_tile, const uint32_t* panel, const PackedTile& x, float* out) {
  quant_tile<P, kMaxTokenTile>(w, row_tile, PanelCodes{panel}, x, out);
}

}  // namespace
}  // namespace lamina::cpu

// Products of quantised weights. In: planes (planes.clh) and packed rows (pack.clh). Out: rows of float32: see
// linear.clh. A block's codes become pairs of 16-bit integers once, then meet each of the T rows: a lane's two halves
// multiply two columns at once, and are widened before their sums could pass 16 bits. All integers are exact, so bits
// are those of kernels/reference/product.cpp.
#define FORM 0
#include "kernels/linear.clh"
#include "kernels/planes.clh"

// Products that a 16-bit sum holds: 127 * MOST each.
#define FIT (32767 / (127 * (MOST)))
#define RUN (FIT >= 16 && !HALVES ? 16 : FIT >= 8 ? 8 : FIT >= 4 ? 4 : 2)

/// Sum of value * x over n words, a multiple of RUN; sum_x: of x.
FUNCTION wfloat block_sum(const wuint *pairs, PACKED_SPACE const uint *x, uint n, float sum_x) {
  wint sum = (wint)0;
#pragma unroll
  for (uint i = 0; i < n; i += RUN) {
    wuint run = multiply_halves(pairs[i], x[i]);
#pragma unroll
    for (uint j = 1; j < RUN; j++) run = add_halves(run, multiply_halves(pairs[i + j], x[i + j]));
    sum += sum_halves(run);
  }
  return to_wfloat(sum) * (float)STEP - SUM_OFFSET * sum_x;
}

/// Has all planes fetched 4 KiB of low codes behind a block of 32 columns: the next tile's at a tile's end.
FUNCTION void prefetch_block(TilePlanes w, uint block) {
  const uint ahead = block + 64 / LO_BITS;
#pragma unroll
  for (uint i = 0; i < LO_BITS; i++) PREFETCH(w.lo + (ahead * LO_BITS + i) * 16);
#pragma unroll
  for (uint i = 0; i < HI_BITS; i++) PREFETCH(w.hi + (ahead * HI_BITS + i) * 16);
  PREFETCH(w.d + ahead * 32 / D_GROUP * (D_KIND == D_F16 ? 32 : 16));
#if MIN_KIND != MIN_NONE
  PREFETCH(w.dmin + ahead * 32 / D_GROUP * 32);
#endif
#if SCALE_KIND != SCALE_NONE
  PREFETCH(w.scale + ahead * (32 / SUB_GROUP) * (SCALE_IS_BYTE ? 16 : 8));
#endif
#if MIN_KIND == MIN_UINT8
  PREFETCH(w.min + ahead * 16);
#endif
}

FUNCTION void multiply_tile(GLOBAL const uint *planes, PlaneArgs args, uint tile, PACKED_SPACE const uint *x,
                            const uint *x_at, wfloat *acc) {
  wuint pairs[16];
  wfloat a[T], m[T], factor[2], shift;
  const TilePlanes w = tile_planes(planes, args, tile);
  const uint n_blocks = args.n_cols / 32;
#pragma unroll
  for (uint t = 0; t < T; t++) {
    acc[t] = (wfloat)0.0f;
    a[t] = (wfloat)0.0f;
    m[t] = (wfloat)0.0f;
  }
  for (uint b = 0; b < n_blocks; b++) {
    prefetch_block(w, b);
#pragma unroll
    for (uint i = 0; i < 8; i++) {
      const wuint bytes = code_bytes(w, b, i);
      pairs[2 * i] = even_columns(bytes);
      pairs[2 * i + 1] = odd_columns(bytes);
    }
#if SCALE_KIND != SCALE_NONE
    for (uint h = 0; h < 32 / SUB_GROUP; h++) factor[h] = load_scale(w, b * (32 / SUB_GROUP) + h, &shift);
#elif D_GROUP == 16
    for (uint h = 0; h < 2; h++) factor[h] = load_d(w, 2 * b + h);
#endif
#pragma unroll 1
    for (uint t = 0; t < T; t++) {
      PACKED_SPACE const uint *words = x + x_at[t] + b * LAMINA_BLOCK_WORDS;
      PACKED_SPACE const float *fields = (PACKED_SPACE const float *)(words + 16);
#if HALVES
      const wfloat lo = block_sum(pairs, words, 8, fields[PACKED_SUM_HALF]);
      const wfloat hi = block_sum(pairs + 8, words + 8, 8, fields[PACKED_SUM_HALF + 1]);
#if D_GROUP == 16
      acc[t] = fma(factor[0], lo * fields[PACKED_A], acc[t]);
      acc[t] = fma(factor[1], hi * fields[PACKED_A], acc[t]);
#else
      a[t] = fma(fma(hi, factor[1], lo * factor[0]), (wfloat)fields[PACKED_A], a[t]);
#endif
#else
      wfloat sum = block_sum(pairs, words, 16, fields[PACKED_SUM]);
#if SCALE_KIND == SCALE_ODD_DELTA
      sum = fma(sum, factor[0], shift * fields[PACKED_SUM]);
#elif SCALE_KIND != SCALE_NONE
      sum = sum * factor[0];
#endif
      a[t] = fma(sum, (wfloat)fields[PACKED_A], a[t]);
#endif
    }
#if MIN_KIND == MIN_UINT8 || MIN_KIND == MIN_NIBBLE
    for (uint h = 0; h < 32 / SUB_GROUP; h++) {
      const wfloat min_ = load_min(w, b * (32 / SUB_GROUP) + h);
      for (uint t = 0; t < T; t++) {
        PACKED_SPACE const float *fields = (PACKED_SPACE const float *)(x + x_at[t] + b * LAMINA_BLOCK_WORDS + 16);
        m[t] = fma(min_, (wfloat)fields[SUB_GROUP == 32 ? PACKED_XS : PACKED_XS_HALF + h], m[t]);
      }
    }
#endif
#if D_GROUP != 16
    if ((b + 1) % (D_GROUP / 32) != 0) continue;
    const uint group = b / (D_GROUP / 32);
    const wfloat d = load_d(w, group);
#if MIN_KIND == MIN_F16
    const wfloat dmin = load_dmin(w, group);
#elif MIN_KIND != MIN_NONE
    const wfloat dmin = -load_dmin(w, group);
#endif
#pragma unroll
    for (uint t = 0; t < T; t++) {
      acc[t] = fma(d, a[t], acc[t]);
#if MIN_KIND == MIN_F16
      PACKED_SPACE const float *fields = (PACKED_SPACE const float *)(x + x_at[t] + b * LAMINA_BLOCK_WORDS + 16);
      acc[t] = fma(dmin, (wfloat)fields[PACKED_XS], acc[t]);
#elif MIN_KIND != MIN_NONE
      acc[t] = fma(dmin, m[t], acc[t]);
#endif
      a[t] = (wfloat)0.0f;
      m[t] = (wfloat)0.0f;
    }
#endif
  }
}

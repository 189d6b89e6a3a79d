// Products of float weights, FLOAT_KIND 1 F32, 2 F16, 3 BF16. In: row tiles (planes.h) and packed rows of floats. Out:
// rows of float32: see linear.clh. A row and its input make one chain of fused multiply-adds over the columns, by
// chunks that stay in the nearest cache for all T rows. BF16's goes by pairs, the odd column first, and denormals count
// as zeros there. Where all weights and inputs are 0 or at least 2^-56, products and their sums are multiples of 2^-126,
// so that no denormal comes up: only from the first chunk on that has a smaller one, each sum is looked at.
#define FORM (FLOAT_KIND == 3 ? LAMINA_FORM_BF16 : LAMINA_FORM_FLOAT)
#include "kernels/linear.clh"

#define TOGETHER (T < 4 ? T : 4)  // rows whose sums registers hold
#define CHUNK 32                  // steps of STEP_COLUMNS columns

#if FLOAT_KIND == 3
#define STEP_COLUMNS 2
#define STEP_WORDS 16

/// Denormals count as zero; the sign stays.
FUNCTION wfloat flush(wfloat x) {
  return WSELECT(x, as_wfloat(as_wuint(x) & 0x80000000u), fabs(x) < (wfloat)0x1p-126f);
}

/// Whether any of T packed rows has a value between 0 and 2^-56.
FUNCTION bool has_tiny_input(uint n_cols, PACKED_SPACE const uint *packed, const uint *x_at) {
  uint least = LAMINA_NONE;
  for (uint t = 0; t < T; t++)
    for (uint i = 1; i <= 16; i++) least = min(least, packed[x_at[t] + LAMINA_PACKED_WORDS(FORM, n_cols) - i]);
  return least < PACKED_TINY;
}

/// Whether any weight of steps [first, last) is.
FUNCTION bool has_tiny(GLOBAL const uint *w, uint first, uint last) {
  wuint least = (wuint)LAMINA_NONE;
  for (uint i = first; i < last; i++) {
    const wuint pair = loadw(w + (size_t)i * 16);
    least = min(least, min((pair & 0x7fff0000u) - 1u, (pair << 16 & 0x7fff0000u) - 1u));
  }
  return ANY(least < (wuint)PACKED_TINY);
}

/// acc[t] + the columns of steps [first, last), t below TOGETHER.
FUNCTION void add_steps(GLOBAL const uint *w, uint first, uint last, PACKED_SPACE const float *x, const uint *x_at,
                        bool flushes, wfloat *acc) {
  for (uint i = first; i < last; i++) {
    const wuint pair = loadw(w + (size_t)i * 16);
    wfloat odd = as_wfloat(pair & 0xffff0000u), even = as_wfloat(pair << 16);
    if (flushes) {
      odd = flush(odd);
      even = flush(even);
    }
#pragma unroll
    for (uint t = 0; t < TOGETHER; t++) {
      acc[t] = fma(odd, (wfloat)x[x_at[t] + 2 * i + 1], acc[t]);
      if (flushes) acc[t] = flush(acc[t]);
      acc[t] = fma(even, (wfloat)x[x_at[t] + 2 * i], acc[t]);
      if (flushes) acc[t] = flush(acc[t]);
    }
  }
}
#else
#define STEP_COLUMNS 1
#define has_tiny_input(n_cols, packed, x_at) false
#define has_tiny(w, first, last) false
#if FLOAT_KIND == 2
#define STEP_WORDS 8
#define load_weights(w, i) loadw_half((GLOBAL const ushort *)(w) + (size_t)(i) * 16)
#else
#define STEP_WORDS 16
#define load_weights(w, i) as_wfloat(loadw((w) + (size_t)(i) * 16))
#endif

FUNCTION void add_steps(GLOBAL const uint *w, uint first, uint last, PACKED_SPACE const float *x, const uint *x_at,
                        bool flushes, wfloat *acc) {
  for (uint i = first; i < last; i++) {
    const wfloat weights = load_weights(w, i);
#pragma unroll
    for (uint t = 0; t < TOGETHER; t++) acc[t] = fma(weights, (wfloat)x[x_at[t] + i], acc[t]);
  }
}
#endif

FUNCTION void multiply_tile(GLOBAL const uint *planes, PlaneArgs args, uint tile, PACKED_SPACE const uint *packed,
                            const uint *x_at, wfloat *acc) {
  wfloat sums[TOGETHER];
  PACKED_SPACE const float *x = (PACKED_SPACE const float *)packed;
  const uint n_steps = (args.n_cols + STEP_COLUMNS - 1) / STEP_COLUMNS;
  GLOBAL const uint *w = planes + (size_t)args.lo * 16 + (size_t)tile * n_steps * STEP_WORDS;
  for (uint t = 0; t < T; t++) acc[t] = (wfloat)0.0f;
  bool flushes = has_tiny_input(args.n_cols, packed, x_at);
  for (uint first = 0; first < n_steps; first += CHUNK) {
    const uint last = min(first + CHUNK, n_steps);
    for (uint i = first; i < first + CHUNK; i += 16 / STEP_WORDS) PREFETCH(w + (size_t)(i + CHUNK) * STEP_WORDS);
    flushes = flushes || has_tiny(w, first, last);
#pragma unroll 1
    for (uint t = 0; t < T; t += TOGETHER) {
#pragma unroll
      for (uint u = 0; u < TOGETHER; u++) sums[u] = acc[t + u];
      if (flushes) add_steps(w, first, last, x, x_at + t, true, sums);
      else add_steps(w, first, last, x, x_at + t, false, sums);
#pragma unroll
      for (uint u = 0; u < TOGETHER; u++) acc[t + u] = sums[u];
    }
  }
}

// Products of float weights, FLOAT_KIND 1 F32, 2 F16, 3 BF16. In: row tiles (planes.h) and packed rows of floats. Out:
// rows of float32: see linear.clh. A row and its input make one chain of fused multiply-adds over the columns; BF16's
// goes by pairs, the odd column first, and denormals count as zeros there.
#define FORM (FLOAT_KIND == 3 ? LAMINA_FORM_BF16 : LAMINA_FORM_FLOAT)
#include "kernels/linear.clh"

/// Denormals count as zero; the sign stays.
FUNCTION wfloat flush(wfloat x) {
  return WSELECT(x, as_wfloat(as_wuint(x) & 0x80000000u), fabs(x) < (wfloat)0x1p-126f);
}

/// acc + the columns of step i.
#if FLOAT_KIND == 3
#define STEP_COLUMNS 2
FUNCTION void add_step(GLOBAL const uint *w, uint i, PACKED_SPACE const float *x, const uint *x_at, wfloat *acc) {
  const wuint pair = loadw(w + (size_t)i * 16);
  const wfloat odd = flush(as_wfloat(pair & 0xffff0000u)), even = flush(as_wfloat(pair << 16));
#pragma unroll
  for (uint t = 0; t < T; t++) {
    acc[t] = flush(fma(odd, (wfloat)x[x_at[t] + 2 * i + 1], acc[t]));
    acc[t] = flush(fma(even, (wfloat)x[x_at[t] + 2 * i], acc[t]));
  }
}
#else
#define STEP_COLUMNS 1
#if FLOAT_KIND == 2
#define load_weights(w, i) loadw_half((GLOBAL const ushort *)(w) + (size_t)(i) * 16)
#else
#define load_weights(w, i) as_wfloat(loadw((w) + (size_t)(i) * 16))
#endif
FUNCTION void add_step(GLOBAL const uint *w, uint i, PACKED_SPACE const float *x, const uint *x_at, wfloat *acc) {
  const wfloat weights = load_weights(w, i);
#pragma unroll
  for (uint t = 0; t < T; t++) acc[t] = fma(weights, (wfloat)x[x_at[t] + i], acc[t]);
}
#endif

FUNCTION void multiply_tile(GLOBAL const uint *planes, PlaneArgs args, uint tile, PACKED_SPACE const uint *x,
                            const uint *x_at, wfloat *acc) {
  const uint n_steps = (args.n_cols + STEP_COLUMNS - 1) / STEP_COLUMNS, words = FLOAT_KIND == 2 ? 8 : 16;  // of a step
  GLOBAL const uint *w = planes + (size_t)args.lo * 16 + (size_t)tile * n_steps * words;
#pragma unroll
  for (uint t = 0; t < T; t++) acc[t] = (wfloat)0.0f;
  for (uint i = 0; i < n_steps; i++) {
    PREFETCH(w + (size_t)i * words + 512);
    add_step(w, i, (PACKED_SPACE const float *)x, x_at, acc);
  }
}

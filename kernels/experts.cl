// Mixtures of experts. In: router logits, then what the chosen experts made. Out: which experts a row takes (ascending)
// and with what weights; their weighted sum.
#include "kernels/math.clh"

/// Replaces x[0..n) by exp(x - max) / sum; x has room up to a multiple of 16.
FUNCTION void softmax_local(LOCAL float *x, uint n, LOCAL float *scratch) {
  wfloat highest = (wfloat)-INFINITY, lanes = (wfloat)0.0f;
  for (uint c = 0; c < n; c += 16) highest = fmax(highest, WSELECT((wfloat)-INFINITY, loadw(x + c), lanes_in(c, n)));
  const float most = tree_max(highest, scratch);
  for (uint c = 0; c < n; c += 16) {
    const wfloat e = WSELECT((wfloat)0.0f, exp_w(loadw(x + c) - most), lanes_in(c, n));
    storew(e, x + c);
    lanes = lanes + e;
  }
  const float total = tree_sum(lanes, scratch);
  for (uint c = 0; c < n; c += 16) storew(loadw(x + c) / total, x + c);
  BARRIER();
}

/// The n_used highest probabilities of a row, ties to the lowest index: those that fewer than n_used come before. A
/// group does one row.
KERNEL void route(GLOBAL const float *logits, RouteArgs args, GLOBAL uint *chosen, GLOBAL float *weights) {
  LOCAL float p[LAMINA_MOST_EXPERTS];
  LOCAL float weight[LAMINA_MOST_EXPERTS];
  LOCAL int rank[LAMINA_MOST_EXPERTS];
  LOCAL float scratch[16];
  const uint n = args.n_expert, n_used = args.n_used;
  logits += (size_t)GROUP() * args.stride;
  for (uint e = LANE(); e < (n + 15) / 16 * 16; e += L) {
    p[e] = e < n ? logits[e] : 0.0f;
    weight[e] = 0.0f;
  }
  BARRIER();
  if (args.gating == 0) softmax_local(p, n, scratch);
  if (args.gating == 1) {
    for (uint c = 0; c < n; c += 16) storew(sigmoid_w(loadw(p + c)), p + c);
    BARRIER();
  }
  for (uint c = 0; c < n; c += 16) {
    const wfloat mine = loadw(p + c);
    wint before = (wint)0;
    for (uint other = 0; other < n; other++) {
      const wfloat its = (wfloat)p[other];
      const wint is_before = (its > mine) | ((its == mine) & (as_wint(FIRST_LANES + c) > (wint)(int)other));
      before += WSELECT((wint)0, (wint)1, is_before);
    }
    storew(before, rank + c);
  }
  BARRIER();
  if (LANE() == 0) {
    for (uint e = 0, slot = 0; e < n && slot < n_used; e++) {
      if (rank[e] >= (int)n_used) continue;
      weight[slot] = p[e];
      chosen[GROUP() * n_used + slot++] = e;
    }
  }
  BARRIER();
  if (args.gating == 2) softmax_local(weight, n_used, scratch);
  float total = 1.0f;
  if (args.normalize) {
    wfloat lanes = (wfloat)0.0f;
    for (uint c = 0; c < n_used; c += 16)
      lanes = lanes + WSELECT((wfloat)0.0f, loadw(weight + c), lanes_in(c, n_used));
    total = fmax(tree_sum(lanes, scratch), 0x1p-14f);  // the smallest normal f16
  }
  for (uint slot = LANE(); slot < n_used; slot += L)
    weights[GROUP() * n_used + slot] = weight[slot] / total * args.scale;
}

/// y = fma(w_e, in_e, y) from 0 over a row's experts, then + residual. A group does 16 columns of one row.
KERNEL void combine(GLOBAL const float *in, GLOBAL const float *weights, GLOBAL const float *residual, CombineArgs args,
                    GLOBAL float *out) {
  const uint row = GROUP_Y(), c = 16 * GROUP();
  wfloat y = (wfloat)0.0f;
  for (uint pair = row * args.n_used; pair < (row + 1) * args.n_used; pair++)
    y = fma((wfloat)weights[pair], row_part(in + (size_t)pair * args.in_stride, c, args.width), y);
  if (args.has_residual) y = y + row_part(residual + (size_t)row * args.residual_stride, c, args.width);
  storew(y, out + (size_t)row * args.out_stride + c);
}

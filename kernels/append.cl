// Heads on their way to attention. In: a row's q, k and v. Out: q normalised and rotated in place; k, treated alike,
// and v in their KV pages, rounded to f16. A group does one head of one row: those of q, then k's, then v's.
// Rotation of a pair: x0 = fma(x0, cos, -(x1 * sin)), x1 = fma(x0, sin, x1 * cos).
#include "kernels/math.clh"

/// The head x, normalised and rotated, to `head`; `first` is its place in all that the norm's weight covers.
FUNCTION void turn_head(AppendArgs args, NormArgs norm, GLOBAL const float *x, uint first, GLOBAL const float *vectors,
                        GLOBAL const float *cosines, LOCAL float *head, LOCAL float *scratch) {
  const uint dim = args.heads.head_dim_k, n_pairs = args.n_pairs;
  if (norm.kind == 0) {
    for (uint i = LANE(); i < dim; i += L) head[i] = x[i];
  } else {
    const NormSums sums = norm_sums(norm, x, dim, scratch);
    for (uint c = 0; c < dim; c += 16) storew(norm_part(norm, sums, x, c, dim, first, vectors), head + c);
  }
  BARRIER();
  for (uint i = LANE(); i < n_pairs; i += L) {
    const uint at0 = args.halves ? i : 2 * i, at1 = args.halves ? i + n_pairs : 2 * i + 1;
    const float x0 = head[at0], x1 = head[at1], cosine = cosines[i], sine = cosines[n_pairs + i];
    head[at0] = fma(x0, cosine, -(x1 * sine));
    head[at1] = fma(x0, sine, x1 * cosine);
  }
  BARRIER();
}

KERNEL void append(GLOBAL float *q, GLOBAL const float *k, GLOBAL const float *v, GLOBAL const float *vectors,
                   GLOBAL const float *rotations, GLOBAL const uint *step, AppendArgs args, GLOBAL half *k_pages,
                   GLOBAL half *v_pages) {
  LOCAL float head[LAMINA_MOST_HEAD_DIM + 16];
  LOCAL float scratch[16];
  const uint row = GROUP_Y(), dim_k = args.heads.head_dim_k, dim_v = args.heads.head_dim_v;
  const uint position = step[args.heads.position_at + row], slot = position % LAMINA_PAGE;
  GLOBAL const float *cosines = rotations + (size_t)position * 2 * args.n_pairs;
  uint h = GROUP();
  if (h < args.heads.n_head) {
    q += (size_t)row * args.q_stride + h * dim_k;
    turn_head(args, args.q_norm, q, h * dim_k, vectors, cosines, head, scratch);
    for (uint i = LANE(); i < dim_k; i += L) q[i] = head[i];
    return;
  }
  h -= args.heads.n_head;
  const size_t page = step[step[args.heads.pages_at + row] + position / LAMINA_PAGE] * (size_t)args.heads.n_head_kv;
  if (h < args.heads.n_head_kv) {
    k += (size_t)row * args.k_stride + h * dim_k;
    turn_head(args, args.k_norm, k, h * dim_k, vectors, cosines, head, scratch);
    k_pages += (page + h) * dim_k * LAMINA_PAGE + slot;
    for (uint i = LANE(); i < dim_k; i += L) vstore_half_rte(head[i], i * LAMINA_PAGE, k_pages);
    return;
  }
  h -= args.heads.n_head_kv;
  v += (size_t)row * args.v_stride + h * dim_v;
  v_pages += ((page + h) * LAMINA_PAGE + slot) * dim_v;
  for (uint i = LANE(); i < dim_v; i += L) vstore_half_rte(v[i], i, v_pages);
}

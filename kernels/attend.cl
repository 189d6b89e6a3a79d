// Attention with the softmax taken online, page by page. In: a row's query heads and the KV pages of its sequence. Out:
// attended heads, or with several splits of LAMINA_SPLIT positions parts of them that attend_merge adds in order.
// A group does HEADS query heads of one KV head over one split, so that keys and values are read once for them.
// Scores: a lane is a position; values: a lane is a dimension.
#include "kernels/math.clh"

#define MOST_SUMS (LAMINA_MOST_HEAD_DIM + 16)
/// Words of a head that are worked on at once: with those of the other heads, enough chains of fma to hide its latency.
#define WORDS (HEADS == 1 ? 4 : HEADS == 2 ? 2 : 1)

/// The first position that a query sees.
FUNCTION uint first_seen(AttendArgs args, uint position) {
  return args.window != 0 && position >= args.window ? position - args.window + 1 : 0;
}

/// q.k of the positions of WORDS words for all heads, to `scores`; k: [dim][LAMINA_PAGE].
FUNCTION void dot_keys(GLOBAL const float *q, const uint *q_at, GLOBAL const half *k, uint dim, LOCAL float *scores) {
  wfloat dots[HEADS][WORDS];
#pragma unroll
  for (uint i = 0; i < HEADS * WORDS; i++) dots[i / WORDS][i % WORDS] = (wfloat)0.0f;
  for (uint d = 0; d < dim; d++) {
#pragma unroll
    for (uint w = 0; w < WORDS; w++) {
      const wfloat keys = loadw_half(k + d * LAMINA_PAGE + 16 * w);
#pragma unroll
      for (uint h = 0; h < HEADS; h++) dots[h][w] = fma((wfloat)q[q_at[h] + d], keys, dots[h][w]);
    }
  }
#pragma unroll
  for (uint i = 0; i < HEADS * WORDS; i++)
    storew(dots[i / WORDS][i % WORDS], scores + i / WORDS * LAMINA_PAGE + i % WORDS * 16);
}

/// sums = sums * shrink + weights.v over the positions [lo, hi), for n_words words of all heads; n_last: values of the
/// last word; v: [LAMINA_PAGE][dim].
FUNCTION void add_values(LOCAL const float *weights, const float *shrink, GLOBAL const half *v, uint dim, uint lo,
                         uint hi, uint n_words, uint n_last, LOCAL float *sums) {
  wfloat sum[HEADS][WORDS];
#pragma unroll
  for (uint h = 0; h < HEADS; h++) {
#pragma unroll
    for (uint w = 0; w < n_words; w++) sum[h][w] = loadw(sums + h * MOST_SUMS + 16 * w) * shrink[h];
  }
  for (uint p = lo; p < hi; p++) {
#pragma unroll
    for (uint w = 0; w < n_words; w++) {
      GLOBAL const half *at = v + p * dim + 16 * w;
      const wfloat values = n_last == 16 ? loadw_half(at) : loadw_half_part(at, n_last);
#pragma unroll
      for (uint h = 0; h < HEADS; h++) sum[h][w] = fma((wfloat)weights[h * LAMINA_PAGE + p], values, sum[h][w]);
    }
  }
#pragma unroll
  for (uint h = 0; h < HEADS; h++) {
#pragma unroll
    for (uint w = 0; w < n_words; w++) storew(sum[h][w], sums + h * MOST_SUMS + 16 * w);
  }
}

KERNEL void attend(GLOBAL const float *q, GLOBAL const half *k_pages, GLOBAL const half *v_pages,
                   GLOBAL const float *vectors, GLOBAL const uint *step, AttendArgs args, GLOBAL float *parts,
                   GLOBAL float *out) {
  LOCAL float sums[HEADS * MOST_SUMS];
  LOCAL float weights[HEADS * LAMINA_PAGE];  // scores at first
  LOCAL float scratch[16];
  const uint row = args.first_row + GROUP_Y(), position = step[args.heads.position_at + row];
  const uint dim_k = args.heads.head_dim_k, dim_v = args.heads.head_dim_v, of_kv = args.heads.n_head / args.heads.n_head_kv;
  const uint blocks = (of_kv + HEADS - 1) / HEADS, block = GROUP() / args.n_splits, split = GROUP() % args.n_splits;
  const uint kv_head = block / blocks, in_block = block % blocks * HEADS;
  const uint seen = first_seen(args, position), begin = max(seen, split * LAMINA_SPLIT);
  const uint end = min(position + 1, (split + 1) * LAMINA_SPLIT);
  const bool is_seen = begin < end;  // else the row is shorter than the launch's longest, or its window is past this
  const float scale = args.temperature == LAMINA_NONE ? args.scale : vectors[args.temperature + position];
  GLOBAL const uint *table = step + step[args.heads.pages_at + row];

  uint head[HEADS], q_at[HEADS];  // a block that is not full does its last head again
  float most[HEADS], total[HEADS], shrink[HEADS];
#pragma unroll
  for (uint h = 0; h < HEADS; h++) {
    head[h] = kv_head * of_kv + min(in_block + h, of_kv - 1);
    q_at[h] = head[h] * dim_k;
    most[h] = -INFINITY;
    total[h] = 0.0f;
    for (uint c = 0; c < dim_v; c += 16) storew((wfloat)0.0f, sums + h * MOST_SUMS + c);
  }
  q += (size_t)row * args.q_stride;

  for (uint page = begin / LAMINA_PAGE; is_seen && page * LAMINA_PAGE < end; page++) {
    const uint lo = max(begin, page * LAMINA_PAGE) % LAMINA_PAGE, hi = min(end - page * LAMINA_PAGE, (uint)LAMINA_PAGE);
    const size_t at = (size_t)table[page] * args.heads.n_head_kv + kv_head;
    GLOBAL const half *k = k_pages + at * dim_k * LAMINA_PAGE, *v = v_pages + at * dim_v * LAMINA_PAGE;
    for (uint p = lo / (16 * WORDS) * 16 * WORDS; p < hi; p += 16 * WORDS) dot_keys(q, q_at, k + p, dim_k, weights + p);
#pragma unroll
    for (uint h = 0; h < HEADS; h++) {
      LOCAL float *of_head = weights + h * LAMINA_PAGE;
      wfloat highest = (wfloat)-INFINITY, lanes = (wfloat)0.0f;
      for (uint p = lo / 16 * 16; p < hi; p += 16) {
        const wint lane = as_wint(FIRST_LANES + p);
        wfloat s = loadw(of_head + p) * scale;
        if (args.softcap != 0.0f) s = softcap_w(s, args.softcap);
        s = WSELECT((wfloat)-INFINITY, s, (lane >= (wint)(int)lo) & (lane < (wint)(int)hi));
        storew(s, of_head + p);
        highest = fmax(highest, s);
      }
      const float higher = fmax(most[h], tree_max(highest, scratch));
      for (uint p = lo / 16 * 16; p < hi; p += 16) {
        const wfloat weight = exp_w(loadw(of_head + p) - higher);  // 0 of what is not seen
        storew(weight, of_head + p);
        lanes = lanes + weight;
      }
      shrink[h] = exp_1(most[h] - higher);
      most[h] = higher;
      total[h] = fma(total[h], shrink[h], tree_sum(lanes, scratch));
    }
    BARRIER();
    uint c = 0;
    for (; c + 16 * WORDS <= dim_v; c += 16 * WORDS)
      add_values(weights, shrink, v + c, dim_v, lo, hi, WORDS, 16, sums + c);
    for (; c + 16 <= dim_v; c += 16) add_values(weights, shrink, v + c, dim_v, lo, hi, 1, 16, sums + c);
    if (c < dim_v) add_values(weights, shrink, v + c, dim_v, lo, hi, 1, dim_v - c, sums + c);
    BARRIER();
  }

  for (uint h = 0; is_seen && h < HEADS && in_block + h < of_kv; h++) {
    LOCAL const float *sum = sums + h * MOST_SUMS;
    if (args.n_splits == 1) {
      GLOBAL float *to = out + (size_t)row * args.out_stride + head[h] * dim_v;
      // Adding 0: the merge with nothing makes a -0 a 0.
      for (uint i = LANE(); i < dim_v; i += L) to[i] = (sum[i] + 0.0f) / total[h];
      continue;
    }
    GLOBAL float *part = parts + (((size_t)GROUP_Y() * args.heads.n_head + head[h]) * args.n_splits + split) * LAMINA_PART_FLOATS(dim_v);
    for (uint i = LANE(); i < dim_v; i += L) part[i] = sum[i];
    if (LANE() == 0) {
      part[LAMINA_PART_FLOATS(dim_v) - 16] = most[h];
      part[LAMINA_PART_FLOATS(dim_v) - 15] = total[h];
    }
  }
}

/// Adds the parts of a head in ascending order and divides by the denominator.
KERNEL void attend_merge(GLOBAL const float *parts, GLOBAL const uint *step, AttendArgs args, GLOBAL float *out) {
  LOCAL float sums[MOST_SUMS];
  const uint row = args.first_row + GROUP_Y(), position = step[args.heads.position_at + row], dim = args.heads.head_dim_v;
  const size_t first = ((size_t)GROUP_Y() * args.heads.n_head + GROUP()) * args.n_splits;
  for (uint i = LANE(); i < dim; i += L) sums[i] = 0.0f;
  float most = -INFINITY, total = 0.0f;
  for (uint split = first_seen(args, position) / LAMINA_SPLIT; split <= position / LAMINA_SPLIT; split++) {
    GLOBAL const float *part = parts + (first + split) * LAMINA_PART_FLOATS(dim);
    const float part_most = part[LAMINA_PART_FLOATS(dim) - 16], part_total = part[LAMINA_PART_FLOATS(dim) - 15];
    const float higher = fmax(most, part_most), e0 = exp_1(most - higher), e1 = exp_1(part_most - higher);
    most = higher;
    total = fma(part_total, e1, total * e0);
    for (uint i = LANE(); i < dim; i += L) sums[i] = fma(part[i], e1, sums[i] * e0);
  }
  out += (size_t)row * args.out_stride + GROUP() * dim;
  for (uint i = LANE(); i < dim; i += L) out[i] = sums[i] / total;
}

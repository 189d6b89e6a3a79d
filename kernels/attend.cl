// Attention with the softmax taken online, page by page. In: a row's query heads and the KV pages of its sequence. Out:
// attended heads, or with several splits of LAMINA_SPLIT positions parts of them that attend_merge adds in order.
// A group does HEADS query heads of one KV head over one split, so that keys and values are read once for them.
// Scores: a lane is a position; values: a lane is a dimension.
#include "kernels/math.clh"

/// Floats of a part: sums padded to 16, then maximum and denominator.
#define PART(dim) (((dim) + 31) / 16 * 16)

/// The first position that a query sees.
FUNCTION uint first_seen(AttendArgs args, uint position) {
  return args.window != 0 && position >= args.window ? position - args.window + 1 : 0;
}

KERNEL void attend(GLOBAL const float *q, GLOBAL const half *k_pages, GLOBAL const half *v_pages,
                   GLOBAL const float *vectors, GLOBAL const uint *step, AttendArgs args, GLOBAL float *parts,
                   GLOBAL float *out) {
  LOCAL float sums[HEADS * (LAMINA_MOST_HEAD_DIM + 16)];
  LOCAL float weights[HEADS * LAMINA_PAGE];
  LOCAL float scratch[16];
  const uint row = args.first_row + GROUP_Y(), position = step[args.position_at + row];
  const uint dim_k = args.head_dim_k, dim_v = args.head_dim_v, of_kv = args.n_head / args.n_head_kv;
  const uint blocks = (of_kv + HEADS - 1) / HEADS, block = GROUP() / args.n_splits, split = GROUP() % args.n_splits;
  const uint kv_head = block / blocks, in_block = block % blocks * HEADS;
  const uint seen = first_seen(args, position), begin = max(seen, split * LAMINA_SPLIT);
  const uint end = min(position + 1, (split + 1) * LAMINA_SPLIT);
  const bool is_seen = begin < end;  // else the row is shorter than the launch's longest, or its window is past this
  const float scale = args.temperature == LAMINA_NONE ? args.scale : vectors[args.temperature + position];
  GLOBAL const uint *table = step + step[args.pages_at + row];

  uint head[HEADS];  // a block that is not full does its last head again
  float most[HEADS], total[HEADS];
  for (uint h = 0; h < HEADS; h++) {
    head[h] = kv_head * of_kv + min(in_block + h, of_kv - 1);
    most[h] = -INFINITY;
    total[h] = 0.0f;
    for (uint c = 0; c < dim_v; c += 16) storew((wfloat)0.0f, sums + h * (LAMINA_MOST_HEAD_DIM + 16) + c);
  }
  q += (size_t)row * args.q_stride;

  for (uint page = begin / LAMINA_PAGE; is_seen && page * LAMINA_PAGE < end; page++) {
    const uint lo = max(begin, page * LAMINA_PAGE) % LAMINA_PAGE, hi = min(end - page * LAMINA_PAGE, (uint)LAMINA_PAGE);
    const size_t at = (size_t)table[page] * args.n_head_kv + kv_head;
    GLOBAL const half *k = k_pages + at * dim_k * LAMINA_PAGE, *v = v_pages + at * dim_v * LAMINA_PAGE;
    wfloat score[HEADS][LAMINA_PAGE / 16];
    wint seen_lanes[LAMINA_PAGE / 16];
    for (uint j = 0; j < LAMINA_PAGE / 16; j++) {
      const wint lane = as_wint(FIRST_LANES + 16 * j);
      seen_lanes[j] = (lane >= (wint)(int)lo) & (lane < (wint)(int)hi);
      wfloat dot_[HEADS];
      for (uint h = 0; h < HEADS; h++) dot_[h] = (wfloat)0.0f;
      if (16 * j < hi && 16 * j + 16 > lo) {
        for (uint d = 0; d < dim_k; d++) {
          const wfloat keys = loadw_half(k + d * LAMINA_PAGE + 16 * j);
          for (uint h = 0; h < HEADS; h++) dot_[h] = fma((wfloat)q[head[h] * dim_k + d], keys, dot_[h]);
        }
      }
      for (uint h = 0; h < HEADS; h++) {
        wfloat s = dot_[h] * scale;
        if (args.softcap != 0.0f) s = softcap_w(s, args.softcap);
        score[h][j] = WSELECT((wfloat)-INFINITY, s, seen_lanes[j]);
      }
    }
    float shrink[HEADS];
    for (uint h = 0; h < HEADS; h++) {
      const wfloat pair0 = fmax(score[h][0], score[h][1]), pair1 = fmax(score[h][2], score[h][3]);
      const float higher = fmax(most[h], tree_max(fmax(pair0, pair1), scratch));
      wfloat lanes = (wfloat)0.0f;
      for (uint j = 0; j < LAMINA_PAGE / 16; j++) {
        const wfloat weight = WSELECT((wfloat)0.0f, exp_w(score[h][j] - higher), seen_lanes[j]);
        storew(weight, weights + h * LAMINA_PAGE + 16 * j);
        lanes = lanes + weight;
      }
      shrink[h] = exp_1(most[h] - higher);
      most[h] = higher;
      total[h] = fma(total[h], shrink[h], tree_sum(lanes, scratch));
    }
    BARRIER();
    for (uint c = 0; c < dim_v; c += 16) {
      wfloat sum[HEADS];
      for (uint h = 0; h < HEADS; h++) sum[h] = loadw(sums + h * (LAMINA_MOST_HEAD_DIM + 16) + c) * shrink[h];
      for (uint p = lo; p < hi; p++) {
        const wfloat values =
            c + 16 <= dim_v ? loadw_half(v + p * dim_v + c) : loadw_half_part(v + p * dim_v + c, dim_v - c);
        for (uint h = 0; h < HEADS; h++) sum[h] = fma((wfloat)weights[h * LAMINA_PAGE + p], values, sum[h]);
      }
      for (uint h = 0; h < HEADS; h++) storew(sum[h], sums + h * (LAMINA_MOST_HEAD_DIM + 16) + c);
    }
    BARRIER();
  }

  for (uint h = 0; is_seen && h < HEADS && in_block + h < of_kv; h++) {
    LOCAL const float *sum = sums + h * (LAMINA_MOST_HEAD_DIM + 16);
    if (args.n_splits == 1) {
      GLOBAL float *to = out + (size_t)row * args.out_stride + head[h] * dim_v;
      // Adding 0: the merge with nothing makes a -0 a 0.
      for (uint i = LANE(); i < dim_v; i += L) to[i] = (sum[i] + 0.0f) / total[h];
      continue;
    }
    GLOBAL float *part = parts + (((size_t)GROUP_Y() * args.n_head + head[h]) * args.n_splits + split) * PART(dim_v);
    for (uint i = LANE(); i < dim_v; i += L) part[i] = sum[i];
    if (LANE() == 0) {
      part[PART(dim_v) - 16] = most[h];
      part[PART(dim_v) - 15] = total[h];
    }
  }
}

/// Adds the parts of a head in ascending order and divides by the denominator.
KERNEL void attend_merge(GLOBAL const float *parts, GLOBAL const uint *step, AttendArgs args, GLOBAL float *out) {
  LOCAL float sums[LAMINA_MOST_HEAD_DIM + 16];
  const uint row = args.first_row + GROUP_Y(), position = step[args.position_at + row], dim = args.head_dim_v;
  const size_t first = ((size_t)GROUP_Y() * args.n_head + GROUP()) * args.n_splits;
  for (uint i = LANE(); i < dim; i += L) sums[i] = 0.0f;
  float most = -INFINITY, total = 0.0f;
  for (uint split = first_seen(args, position) / LAMINA_SPLIT; split <= position / LAMINA_SPLIT; split++) {
    GLOBAL const float *part = parts + (first + split) * PART(dim);
    const float part_most = part[PART(dim) - 16], part_total = part[PART(dim) - 15];
    const float higher = fmax(most, part_most), e0 = exp_1(most - higher), e1 = exp_1(part_most - higher);
    most = higher;
    total = fma(part_total, e1, total * e0);
    for (uint i = LANE(); i < dim; i += L) sums[i] = fma(part[i], e1, sums[i] * e0);
  }
  out += (size_t)row * args.out_stride + GROUP() * dim;
  for (uint i = LANE(); i < dim; i += L) out[i] = sums[i] / total;
}

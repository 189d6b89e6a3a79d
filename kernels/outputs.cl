// The end of a step. In: rows of activations, then logits. Out: the rows whose logits are wanted; the best token of
// each, found in parts and merged without the host; and with `advance` the next step's token and position.
#include "kernels/math.clh"

/// A group copies 16 columns of one output row.
KERNEL void select_rows(GLOBAL const float *in, GLOBAL const uint *step, SelectArgs args, GLOBAL float *out) {
  const uint row = step[args.outputs_at + GROUP_Y()], c = 16 * GROUP();
  storew(row_part(in + (size_t)row * args.in_stride, c, args.width), out + (size_t)GROUP_Y() * args.out_stride + c);
}

#define NO_COLUMN 0x7fffffff

/// The highest of a part of a row's columns and its index, the lowest of equals: -infinity and NO_COLUMN without a
/// number.
KERNEL void argmax_parts(GLOBAL const float *logits, ArgmaxArgs args, GLOBAL float *best, GLOBAL uint *best_index) {
  LOCAL float values[16];
  LOCAL int columns[16];
  const uint part = GROUP(), row = GROUP_Y(), n_words = (args.width + 15) / 16;
  const uint words = (n_words + args.n_parts - 1) / args.n_parts, first = part * words;
  logits += (size_t)row * args.stride;
  wfloat value = (wfloat)-INFINITY;
  wint column = (wint)NO_COLUMN;
  for (uint word = min(n_words, first + words); word > first; word--) {  // descending: of equals the last one stays
    const uint c = 16 * (word - 1);
    const wint here = as_wint(FIRST_LANES + c);
    const wfloat v = row_part(logits, c, args.width);
    const wint is_better = (v >= value) & lanes_in(c, args.width);
    value = WSELECT(value, v, is_better);
    column = WSELECT(column, here, is_better);
  }
  storew(value, values);
  storew(column, columns);
  BARRIER();
  if (LANE() != 0) return;
  for (uint i = 1; i < 16; i++) {
    if (values[i] < values[0] || (values[i] == values[0] && columns[i] > columns[0])) continue;
    values[0] = values[i];
    columns[0] = columns[i];
  }
  best[row * args.n_parts + part] = values[0];
  best_index[row * args.n_parts + part] = (uint)columns[0];
}

/// result: tokens of all rows, then the bits of their logits. A group does one row.
KERNEL void argmax_merge(GLOBAL const float *best, GLOBAL const uint *best_index, ArgmaxArgs args,
                         GLOBAL uint *result) {
  const uint row = GROUP();
  if (LANE() != 0) return;
  uint highest = row * args.n_parts;
  for (uint part = highest + 1; part < (row + 1) * args.n_parts; part++)
    if (best[part] > best[highest] || best_index[highest] == NO_COLUMN) highest = part;
  result[row] = best_index[highest] == NO_COLUMN ? 0 : best_index[highest];
  result[args.n_rows + row] = as_uint(best[highest]);
}

/// The chosen token becomes the next step's, at the next position.
KERNEL void advance(GLOBAL const uint *result, GLOBAL uint *step, uint position_at) {
  if (LANE() != 0) return;
  step[0] = result[0];
  step[position_at]++;
}

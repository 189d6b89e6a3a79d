// The norm behind a sub-layer. In: rows of float32. Out: norm(in) (+ residual), in the order of kernels/reference:
// sums over 16 lanes, then a tree. A group does one row. What stands behind a row's width may be overwritten.
#include "kernels/math.clh"

KERNEL void norm(GLOBAL const float *in, GLOBAL const float *residual, GLOBAL const float *vectors, NormOpArgs args,
                 GLOBAL float *out) {
  LOCAL float scratch[16];
  const size_t row = GROUP();
  in += row * args.in_stride;
  residual += row * args.residual_stride;
  out += row * args.out_stride;
  const NormSums sums = norm_sums(args.norm, in, args.width, scratch);
  for (uint c = 0; c < args.width; c += 16) {
    wfloat v = norm_part(args.norm, sums, in, c, args.width, 0, vectors);
    if (args.has_residual) v = v + row_part(residual, c, args.width);
    storew(v, out + c);
  }
}

// Packs the input rows of products. In: rows of float32. Out: packed rows of FORM, one behind the other: see pack.clh. A
// group does one row.
#define PACKED_SPACE GLOBAL
#include "kernels/pack.clh"

KERNEL void pack(GLOBAL const float *in, GLOBAL const float *gate, GLOBAL const float *vectors, PackArgs args,
                 GLOBAL uint *packed) {
  LOCAL float scratch[16];
  const uint row = GROUP();
  pack_row(args, in, gate, vectors, row, packed + (size_t)row * LAMINA_PACKED_WORDS(FORM, args.n_cols), scratch);
}

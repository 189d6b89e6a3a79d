// Rows of a table. In: planes of any type, indices of rows. Out: float32 rows, each value decoded as
// gguf::dequantize() does. A group does 32 columns of one row; lanes are columns here.
#if FLOAT_KIND == 0
#include "kernels/planes.clh"

FUNCTION uint code_at(GLOBAL const uint *plane, uint bits, uint column) {
  const uint i = column / 4, fields = 8 / bits;
  return plane[i / fields * 16] >> (bits * (i % fields) + 8 * (column % 4)) & ((1u << bits) - 1);
}

/// One weight. `lane`: row of the tile.
FUNCTION float weight_at(GLOBAL const uint *planes, PlaneArgs args, uint tile, uint lane, uint column) {
  const TilePlanes w = tile_planes(planes, args, tile);
  const uint group = column / D_GROUP * 16 + lane;
  uint code = code_at(w.lo + lane, LO_BITS, column);
#if HI_BITS != 0
  code |= code_at(w.hi + lane, HI_BITS, column) << LO_BITS;
#endif
#if LOOK_UP
  int value = (int)kTable[code] - OFFSET;
#else
  int value = STEP * (int)code - OFFSET;
#endif
  int s = 1;
#if SCALE_KIND != SCALE_NONE
  const uint sub = column / SUB_GROUP;
  const uint stored = w.scale[(SCALE_IS_BYTE ? sub : sub / 2) * 16 + lane];
#if SCALE_KIND == SCALE_INT8
  s = (char)stored;
#elif SCALE_IS_BYTE
  s = stored & 15;
#else
  const int nibble = stored >> (sub % 2 * 4) & 15;
  s = SCALE_KIND == SCALE_ODD_DELTA ? 2 * (nibble & 7) + 1 : 2 * nibble + 1;
  if (SCALE_KIND == SCALE_ODD_DELTA) value = 8 * value + (nibble >= 8 ? -1 : 1);
#endif
#endif
#if D_KIND == D_F16
  const float d = vload_half(group, (GLOBAL const half *)w.d) * D_FACTOR;
#elif D_KIND == D_E8M0  // see load_d
  const uint e = w.d[group];
  const float d = as_float(e < 2 ? (e + 1) << 21 : (e - 1) << 23);
#else
  const uint e = w.d[group];
  const float d = e < 8 ? (float)e * 0x1p-10f : as_float((e << 20) + (119u << 23));
#endif
  const float v = d * (float)s * (float)value;
#if MIN_KIND == MIN_F16
  return v + vload_half(group, (GLOBAL const half *)w.dmin);
#elif MIN_KIND == MIN_UINT8
  return v - vload_half(group, (GLOBAL const half *)w.dmin) * (float)w.min[sub * 16 + lane];
#elif MIN_KIND == MIN_NIBBLE
  return v - vload_half(group, (GLOBAL const half *)w.dmin) * (float)(stored >> 4);
#else
  return v;
#endif
}
#else
FUNCTION float weight_at(GLOBAL const uint *planes, PlaneArgs args, uint tile, uint lane, uint column) {
  planes += (size_t)args.lo * 16;
  const size_t at = ((size_t)tile * args.n_cols + column) * 16 + lane;
#if FLOAT_KIND == 1
  return as_float(planes[at]);
#elif FLOAT_KIND == 2
  return vload_half(at, (GLOBAL const half *)planes);
#else
  const uint pair = planes[((size_t)tile * ((args.n_cols + 1) / 2) + column / 2) * 16 + lane];
  return as_float(column % 2 == 0 ? pair << 16 : pair & 0xffff0000u);
#endif
}
#endif

KERNEL void embed(GLOBAL const uint *planes, GLOBAL const uint *index, EmbedArgs args, GLOBAL float *out) {
  const uint at = index[args.index_at + GROUP_Y()] - args.first_row;
  if (at >= args.n_table_rows) return;
  out += (size_t)GROUP_Y() * args.stride;
  const uint end = min(GROUP() * 32 + 32, args.width);
  for (uint c = GROUP() * 32 + LANE(); c < end; c += L) {
    const float w = weight_at(planes, args.planes, at / 16, at % 16, c);
    out[c] = args.add ? out[c] + w : w * args.scale;
  }
}

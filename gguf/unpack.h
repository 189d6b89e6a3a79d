// The unpackers behind the type table: one function a quantised type. In: n contiguous blocks as they lie in the file.
// Out: their Fields (type.h), every code, scale byte and raw d in column order. No arithmetic on d happens here.
// unpack.cpp holds the types whose codes are stored as bits, unpack_iq.cpp those whose codes come from a grid.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "gguf/type.h"

namespace lamina::gguf {

using Unpack = void(const std::byte* blocks, size_t n_blocks, const Fields& out);

Unpack unpack_q1_0, unpack_q2_0, unpack_q4_0, unpack_q4_1, unpack_q5_0, unpack_q5_1, unpack_q8_0;
Unpack unpack_q2_k, unpack_q3_k, unpack_q4_k, unpack_q5_k, unpack_q6_k;
Unpack unpack_tq1_0, unpack_tq2_0, unpack_mxfp4, unpack_nvfp4, unpack_iq4_xs;
Unpack unpack_iq1_s, unpack_iq1_m, unpack_iq2_xxs, unpack_iq2_xs, unpack_iq2_s, unpack_iq3_xxs, unpack_iq3_s;

/// How far one block moves each pointer: bytes read, entries written to each array of Fields (0: not written).
struct Step {
  int bytes;
  int code;
  int d = 1;
  int dmin = 0;
  int scale = 0;
  int min = 0;
};

/// Calls `one(block bytes, where its fields go)` for each block.
template <Step step, class One>
inline void for_blocks(const std::byte* blocks, size_t n_blocks, Fields out, One one) {
  const uint8_t* in = reinterpret_cast<const uint8_t*>(blocks);
  for (; n_blocks > 0; --n_blocks) {
    one(in, out);
    in += step.bytes;
    out.code += step.code;
    out.d += step.d;
    if constexpr (step.dmin != 0) out.dmin += step.dmin;
    if constexpr (step.scale != 0) out.scale += step.scale;
    if constexpr (step.min != 0) out.min += step.min;
  }
}

static_assert(std::endian::native == std::endian::little, "GGUF numbers are read as they lie");

/// Numbers at any address.
template <class T>
inline T load(const uint8_t* in) {
  T x;
  std::memcpy(&x, in, sizeof x);
  return x;
}

template <class T>
inline void store(uint8_t* out, T x) {
  std::memcpy(out, &x, sizeof x);
}

/// The byte `x` in all eight bytes.
constexpr uint64_t repeat8(uint8_t x) { return 0x0101010101010101u * x; }

/// Entry b: byte i is 0xFF where bit i of b is set.
inline constexpr auto kByteMask = [] {
  std::array<uint64_t, 256> mask{};
  for (int b = 0; b < 256; ++b) {
    for (int i = 0; i < 8; ++i) {
      if (b >> i & 1) mask[b] |= uint64_t{0xFF} << 8 * i;
    }
  }
  return mask;
}();

/// n bytes of nibbles -> 2n numbers, the low nibble of each byte first.
inline void nibbles_in_turn(const uint8_t* in, int n, int8_t* out) {
  for (int i = 0; i < n; ++i) {
    out[2 * i] = static_cast<int8_t>(in[i] & 15);
    out[2 * i + 1] = static_cast<int8_t>(in[i] >> 4);
  }
}

}  // namespace lamina::gguf

// Unpackers of the types whose codes are stored as bits: Q*, TQ*, IQ4_*, MXFP4, NVFP4.
// In: blocks as they lie in the file. Out: Fields (type.h): codes in column order, stored scales and mins as whole
// bytes, raw d.
//
// Drawings name the parts of a block in the order of their bytes, each with its size: "d2" is a number of two bytes,
// "nibbles16", "pairs64" and "trits32" are that many bytes of codes (split_nibbles, split_pairs, split_trits); w[i] is
// column i of the block. Loops run over bytes so that compilers vectorise them; none branches on data.
#include "gguf/unpack.h"

namespace lamina::gguf {
namespace {

/// n bytes -> the n low nibbles, then the n high nibbles:   byte j = w[j + n] << 4 | w[j]
template <int n>
inline void split_nibbles(const uint8_t* __restrict in, uint8_t* __restrict code) {
  for (int i = 0; i < n; i += 8) {
    const auto eight = load<uint64_t>(in + i);
    store(code + i, eight & repeat8(15));
    store(code + n + i, eight >> 4 & repeat8(15));
  }
}

/// 64 bytes -> 256 two-bit codes. Each half of the bytes holds 128 columns:
///   byte 32 h + j = w[j + 96] << 6 | w[j + 64] << 4 | w[j + 32] << 2 | w[j]   of half h
inline void split_pairs(const uint8_t* __restrict in, uint8_t* __restrict code) {
  for (int half = 0; half < 2; ++half) {
    for (int k = 0; k < 4; ++k) {
      for (int j = 0; j < 32; ++j) code[128 * half + 32 * k + j] = in[32 * half + j] >> 2 * k & 3;
    }
  }
}

/// n bytes -> n_trits groups of n codes 0..2. A byte is a fraction b / 256 = 0.t0 t1 t2 t3 t4 in base 3, so trit k is
/// the integer part of 3 frac(3^k b / 256); it belongs to column n k + j for byte j.
template <int n, int n_trits>
inline void split_trits(const uint8_t* __restrict in, uint8_t* __restrict code) {
  for (int k = 0, power = 1; k < n_trits; ++k, power *= 3) {
    for (int j = 0; j < n; ++j) code[n * k + j] = static_cast<uint8_t>((in[j] * power & 255) * 3 >> 8);
  }
}

/// Adds bit i of `bits` to code[i] as its bit `place`, for 32 columns.
template <int place>
inline void add_bits(uint32_t bits, uint8_t* code) {
  for (int i = 0; i < 4; ++i) {
    const uint64_t high = kByteMask[bits >> 8 * i & 255] & repeat8(1 << place);
    store(code + 8 * i, load<uint64_t>(code + 8 * i) | high);
  }
}

/// Adds bit k of in[j] to code[32 k + j] as its bit `place`, for 32 bytes.
template <int place>
inline void add_bit_planes(const uint8_t* __restrict in, uint8_t* __restrict code) {
  for (int k = 0; k < 8; ++k) {
    for (int j = 0; j < 32; ++j) code[32 * k + j] = static_cast<uint8_t>(code[32 * k + j] | (in[j] >> k & 1) << place);
  }
}

/// 12 bytes -> 8 scales and 8 mins of 6 bits (Q4_K, Q5_K). Letters: a scale (a..h) or min (A..H), one a bit.
///   byte 0..3    eeaaaaaa ffbbbbbb ggcccccc hhdddddd     upper bits of the last four beside the first four
///   byte 4..7    EEAAAAAA FFBBBBBB GGCCCCCC HHDDDDDD
///   byte 8..11   EEEEeeee FFFFffff GGGGgggg HHHHhhhh
inline void split_scales_and_mins(const uint8_t* in, const Fields& out) {
  for (int i = 0; i < 4; ++i) {
    out.scale[i] = static_cast<int8_t>(in[i] & 63);
    out.min[i] = in[4 + i] & 63;
    out.scale[4 + i] = static_cast<int8_t>((in[8 + i] & 15) | (in[i] >> 6) << 4);
    out.min[4 + i] = static_cast<uint8_t>(in[8 + i] >> 4 | (in[4 + i] >> 6) << 4);
  }
}

}  // namespace

// d2 | 16 bytes, column i is bit i % 8 of byte i / 8
void unpack_q1_0(const std::byte* blocks, size_t n_blocks, const Fields& out) {
  for_blocks<Step{.bytes = 18, .code = 128}>(blocks, n_blocks, out, [](const uint8_t* in, const Fields& f) {
    f.d[0] = load<uint16_t>(in);
    for (int i = 0; i < 16; ++i) store(f.code + 8 * i, kByteMask[in[2 + i]] & repeat8(1));
  });
}

// d2 | 16 bytes, byte j = w[4j + 3] << 6 | w[4j + 2] << 4 | w[4j + 1] << 2 | w[4j]
void unpack_q2_0(const std::byte* blocks, size_t n_blocks, const Fields& out) {
  for_blocks<Step{.bytes = 18, .code = 64}>(blocks, n_blocks, out, [](const uint8_t* in, const Fields& f) {
    f.d[0] = load<uint16_t>(in);
    for (int i = 0; i < 16; ++i) {
      const uint32_t b = in[2 + i];
      store(f.code + 4 * i, (b | b << 6 | b << 12 | b << 18) & 0x03030303u);
    }
  });
}

// d2 | nibbles16                                                                                        (also IQ4_NL)
void unpack_q4_0(const std::byte* blocks, size_t n_blocks, const Fields& out) {
  for_blocks<Step{.bytes = 18, .code = 32}>(blocks, n_blocks, out, [](const uint8_t* in, const Fields& f) {
    f.d[0] = load<uint16_t>(in);
    split_nibbles<16>(in + 2, f.code);
  });
}

// d2 | m2 | nibbles16
void unpack_q4_1(const std::byte* blocks, size_t n_blocks, const Fields& out) {
  for_blocks<Step{.bytes = 20, .code = 32, .dmin = 1}>(blocks, n_blocks, out, [](const uint8_t* in, const Fields& f) {
    f.d[0] = load<uint16_t>(in);
    f.dmin[0] = load<uint16_t>(in + 2);
    split_nibbles<16>(in + 4, f.code);
  });
}

// d2 | fifth bits 4 (bit i of a 32-bit number belongs to w[i]) | nibbles16
void unpack_q5_0(const std::byte* blocks, size_t n_blocks, const Fields& out) {
  for_blocks<Step{.bytes = 22, .code = 32}>(blocks, n_blocks, out, [](const uint8_t* in, const Fields& f) {
    f.d[0] = load<uint16_t>(in);
    split_nibbles<16>(in + 6, f.code);
    add_bits<4>(load<uint32_t>(in + 2), f.code);
  });
}

// d2 | m2 | fifth bits 4 | nibbles16
void unpack_q5_1(const std::byte* blocks, size_t n_blocks, const Fields& out) {
  for_blocks<Step{.bytes = 24, .code = 32, .dmin = 1}>(blocks, n_blocks, out, [](const uint8_t* in, const Fields& f) {
    f.d[0] = load<uint16_t>(in);
    f.dmin[0] = load<uint16_t>(in + 2);
    split_nibbles<16>(in + 8, f.code);
    add_bits<4>(load<uint32_t>(in + 4), f.code);
  });
}

// d2 | q32, signed bytes. code = q + 128.
void unpack_q8_0(const std::byte* blocks, size_t n_blocks, const Fields& out) {
  for_blocks<Step{.bytes = 34, .code = 32}>(blocks, n_blocks, out, [](const uint8_t* in, const Fields& f) {
    f.d[0] = load<uint16_t>(in);
    for (int i = 0; i < 4; ++i) store(f.code + 8 * i, load<uint64_t>(in + 2 + 8 * i) ^ repeat8(0x80));
  });
}

// scales 16 (min << 4 | scale for 16 columns) | pairs64 | d2 | dmin2
void unpack_q2_k(const std::byte* blocks, size_t n_blocks, const Fields& out) {
  constexpr Step kStep = {.bytes = 84, .code = 256, .dmin = 1, .scale = 16, .min = 16};
  for_blocks<kStep>(blocks, n_blocks, out, [](const uint8_t* in, const Fields& f) {
    for (int i = 0; i < 16; ++i) f.scale[i] = static_cast<int8_t>(in[i] & 15);
    for (int i = 0; i < 16; ++i) f.min[i] = in[i] >> 4;
    split_pairs(in + 16, f.code);
    f.d[0] = load<uint16_t>(in + 80);
    f.dmin[0] = load<uint16_t>(in + 82);
  });
}

// third bits 32 (bit k of byte j belongs to w[32k + j]) | pairs64 | scales 12 | d2
// Scales, 6 bits less 32, for 16 columns each. Letters a..p: a scale, one a bit.
//   byte 0..7    iiiiaaaa jjjjbbbb kkkkcccc lllldddd mmmmeeee nnnnffff oooogggg pppphhhh
//   byte 8..11   mmiieeaa nnjjffbb ookkggcc ppllhhdd
void unpack_q3_k(const std::byte* blocks, size_t n_blocks, const Fields& out) {
  for_blocks<Step{.bytes = 110, .code = 256, .scale = 16}>(
      blocks, n_blocks, out, [](const uint8_t* in, const Fields& f) {
        split_pairs(in + 32, f.code);
        add_bit_planes<2>(in, f.code);
        const uint8_t *low = in + 96, *high = in + 104;
        for (int i = 0; i < 16; ++i) {
          const int low4 = low[i % 8] >> 4 * (i / 8) & 15, high2 = high[i % 4] >> 2 * (i / 4) & 3;
          f.scale[i] = static_cast<int8_t>((high2 << 4 | low4) - 32);
        }
        f.d[0] = load<uint16_t>(in + 108);
      });
}

// d2 | dmin2 | scales and mins 12 | 4 times nibbles32
void unpack_q4_k(const std::byte* blocks, size_t n_blocks, const Fields& out) {
  constexpr Step kStep = {.bytes = 144, .code = 256, .dmin = 1, .scale = 8, .min = 8};
  for_blocks<kStep>(blocks, n_blocks, out, [](const uint8_t* in, const Fields& f) {
    f.d[0] = load<uint16_t>(in);
    f.dmin[0] = load<uint16_t>(in + 2);
    split_scales_and_mins(in + 4, f);
    for (int k = 0; k < 4; ++k) split_nibbles<32>(in + 16 + 32 * k, f.code + 64 * k);
  });
}

// d2 | dmin2 | scales and mins 12 | fifth bits 32 (bit k of byte j belongs to w[32k + j]) | 4 times nibbles32
void unpack_q5_k(const std::byte* blocks, size_t n_blocks, const Fields& out) {
  constexpr Step kStep = {.bytes = 176, .code = 256, .dmin = 1, .scale = 8, .min = 8};
  for_blocks<kStep>(blocks, n_blocks, out, [](const uint8_t* in, const Fields& f) {
    f.d[0] = load<uint16_t>(in);
    f.dmin[0] = load<uint16_t>(in + 2);
    split_scales_and_mins(in + 4, f);
    for (int k = 0; k < 4; ++k) split_nibbles<32>(in + 48 + 32 * k, f.code + 64 * k);
    add_bit_planes<4>(in + 16, f.code);
  });
}

// low nibbles 128 (2 times nibbles64) | upper pairs 64 (pairs64) | scales 16, signed bytes | d2
void unpack_q6_k(const std::byte* blocks, size_t n_blocks, const Fields& out) {
  for_blocks<Step{.bytes = 210, .code = 256, .scale = 16}>(
      blocks, n_blocks, out, [](const uint8_t* in, const Fields& f) {
        uint8_t upper[256];
        split_pairs(in + 128, upper);
        split_nibbles<64>(in, f.code);
        split_nibbles<64>(in + 64, f.code + 128);
        for (int i = 0; i < 256; ++i) f.code[i] = static_cast<uint8_t>(f.code[i] | upper[i] << 4);
        std::memcpy(f.scale, in + 192, 16);
        f.d[0] = load<uint16_t>(in + 208);
      });
}

// trits32 (5 a byte) | trits16 (5 a byte) | trits4 (4 a byte) | d2
void unpack_tq1_0(const std::byte* blocks, size_t n_blocks, const Fields& out) {
  for_blocks<Step{.bytes = 54, .code = 256}>(blocks, n_blocks, out, [](const uint8_t* in, const Fields& f) {
    split_trits<32, 5>(in, f.code);
    split_trits<16, 5>(in + 32, f.code + 160);
    split_trits<4, 4>(in + 48, f.code + 240);
    f.d[0] = load<uint16_t>(in + 52);
  });
}

// pairs64 | d2
void unpack_tq2_0(const std::byte* blocks, size_t n_blocks, const Fields& out) {
  for_blocks<Step{.bytes = 66, .code = 256}>(blocks, n_blocks, out, [](const uint8_t* in, const Fields& f) {
    split_pairs(in, f.code);
    f.d[0] = load<uint16_t>(in + 64);
  });
}

// d1 | nibbles16
void unpack_mxfp4(const std::byte* blocks, size_t n_blocks, const Fields& out) {
  for_blocks<Step{.bytes = 17, .code = 32}>(blocks, n_blocks, out, [](const uint8_t* in, const Fields& f) {
    f.d[0] = in[0];
    split_nibbles<16>(in + 1, f.code);
  });
}

// d1 d1 d1 d1, for 16 columns each | 4 times nibbles8
// Bit 7 of d is ignored, yet 0x7F means zero and 0xFF 240: stored as 0 and 0x7F.
void unpack_nvfp4(const std::byte* blocks, size_t n_blocks, const Fields& out) {
  for_blocks<Step{.bytes = 36, .code = 64, .d = 4}>(blocks, n_blocks, out, [](const uint8_t* in, const Fields& f) {
    for (int k = 0; k < 4; ++k) {
      f.d[k] = in[k] == 0x7F ? 0 : in[k] & 0x7F;
      split_nibbles<8>(in + 4 + 8 * k, f.code + 16 * k);
    }
  });
}

// d2 | upper bits of the scales 2 (bits 2k and 2k + 1: scale k) | lower nibbles of the scales 4, in turn | 8 times
// nibbles16
void unpack_iq4_xs(const std::byte* blocks, size_t n_blocks, const Fields& out) {
  for_blocks<Step{.bytes = 136, .code = 256, .scale = 8}>(
      blocks, n_blocks, out, [](const uint8_t* in, const Fields& f) {
        f.d[0] = load<uint16_t>(in);
        const uint32_t high = load<uint16_t>(in + 2);
        nibbles_in_turn(in + 4, 4, f.scale);
        for (int k = 0; k < 8; ++k) {
          f.scale[k] = static_cast<int8_t>((f.scale[k] | (high >> 2 * k & 3) << 4) - 32);
          split_nibbles<16>(in + 8 + 16 * k, f.code + 32 * k);
        }
      });
}

}  // namespace lamina::gguf

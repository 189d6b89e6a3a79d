// Unpackers of the types whose codes come from a grid: IQ1_*, IQ2_*, IQ3_*.
// In: blocks as they lie in the file: grid indices, signs, scales. Out: Fields (type.h) with plain codes, one a column.
//
// A grid is expanded at compile time to the codes of its 8 or 4 columns, one byte each, so that an index costs one
// load. A sign then flips bits of the code (see the value tables of type.cpp: IQ2 bit 2, IQ3_XXS bit 3, IQ3_S all
// four).
#include "gguf/codebooks.inc"
#include "gguf/unpack.h"

namespace lamina::gguf {
namespace {

/// Grid entries with one byte a column (Word: uint64_t for 8 columns of 2 bits, uint32_t for 4 of 4), plus `more` in
/// each byte.
template <class Word, size_t n>
constexpr std::array<Word, n> expand(const uint16_t (&grid)[n], unsigned more = 0) {
  constexpr int kColumns = sizeof(Word), kBits = 16 / kColumns;
  std::array<Word, n> out{};
  for (size_t i = 0; i < n; ++i) {
    for (int c = 0; c < kColumns; ++c) {
      const unsigned number = grid[i] >> kBits * c & ((1u << kBits) - 1);
      out[i] |= static_cast<Word>(number | more) << 8 * c;
    }
  }
  return out;
}

constexpr auto kGrid1 = expand<uint64_t>(kIq1SGrid);
constexpr auto kGrid2Xxs = expand<uint64_t>(kIq2XxsGrid);
constexpr auto kGrid2Xs = expand<uint64_t>(kIq2XsGrid);
constexpr auto kGrid2S = expand<uint64_t>(kIq2SGrid);
constexpr auto kGrid3Xxs = expand<uint32_t>(kIq3XxsGrid);
constexpr auto kGrid3S = expand<uint32_t>(kIq3SGrid, 8);  // positive values are codes 8..15

/// Eight sign bits from seven stored ones: the number of minus signs is even.
constexpr auto kEvenSigns = [] {
  std::array<uint8_t, 128> signs{};
  for (unsigned s = 0; s < 128; ++s) {
    unsigned ones = 0;
    for (int i = 0; i < 7; ++i) ones += s >> i & 1;
    signs[s] = static_cast<uint8_t>(s | (ones & 1) << 7);
  }
  return signs;
}();

/// The bits of `flip` in every byte whose column has a minus sign.
inline uint64_t flips(uint8_t signs, uint8_t flip) { return kByteMask[signs] & repeat8(flip); }

constexpr uint8_t kFlip2 = 4, kFlip3Xxs = 8, kFlip3S = 15, kDelta1M = 4;

inline uint64_t pair(uint32_t first, uint32_t second) { return uint64_t{second} << 32 | first; }

}  // namespace

// d2 | 8 times, for 32 columns each: grid indices 4 | 32-bit number: bits 0..27 four times 7 signs, 28..31 the scale
void unpack_iq2_xxs(const std::byte* blocks, size_t n_blocks, const Fields& out) {
  for_blocks<Step{.bytes = 66, .code = 256, .scale = 8}>(blocks, n_blocks, out, [](const uint8_t* in, const Fields& f) {
    f.d[0] = load<uint16_t>(in);
    for (int k = 0; k < 8; ++k) {
      const uint8_t* index = in + 2 + 8 * k;
      const uint32_t signs = load<uint32_t>(index + 4);
      f.scale[k] = static_cast<int8_t>(signs >> 28);
      for (int i = 0; i < 4; ++i) {
        store(f.code + 32 * k + 8 * i, kGrid2Xxs[index[i]] ^ flips(kEvenSigns[signs >> 7 * i & 127], kFlip2));
      }
    }
  });
}

// d2 | 32 16-bit numbers, for 8 columns each: bits 0..8 grid index, 9..15 signs | scales 8, nibbles in turn
void unpack_iq2_xs(const std::byte* blocks, size_t n_blocks, const Fields& out) {
  for_blocks<Step{.bytes = 74, .code = 256, .scale = 16}>(
      blocks, n_blocks, out, [](const uint8_t* in, const Fields& f) {
        f.d[0] = load<uint16_t>(in);
        for (int i = 0; i < 32; ++i) {
          const uint32_t q = load<uint16_t>(in + 2 + 2 * i);
          store(f.code + 8 * i, kGrid2Xs[q & 511] ^ flips(kEvenSigns[q >> 9], kFlip2));
        }
        nibbles_in_turn(in + 66, 8, f.scale);
      });
}

// d2 | grid indices 32, low bytes | signs 32 | grid indices 8, upper 2 bits (index i: bits 2 (i % 4) of byte i / 4)
//    | scales 8, nibbles in turn
void unpack_iq2_s(const std::byte* blocks, size_t n_blocks, const Fields& out) {
  for_blocks<Step{.bytes = 82, .code = 256, .scale = 16}>(
      blocks, n_blocks, out, [](const uint8_t* in, const Fields& f) {
        f.d[0] = load<uint16_t>(in);
        const uint8_t *low = in + 2, *signs = in + 34, *high = in + 66;
        for (int k = 0; k < 8; ++k) {
          const uint32_t upper = high[k];
          for (int i = 0; i < 4; ++i) {
            const uint32_t index = low[4 * k + i] | (upper << (8 - 2 * i) & 0x300);
            store(f.code + 32 * k + 8 * i, kGrid2S[index] ^ flips(signs[4 * k + i], kFlip2));
          }
        }
        nibbles_in_turn(in + 74, 8, f.scale);
      });
}

// d2 | grid indices 64, for 4 columns each | 8 32-bit numbers, for 32 columns each: four times 7 signs, scale in
// bits 28..31
void unpack_iq3_xxs(const std::byte* blocks, size_t n_blocks, const Fields& out) {
  for_blocks<Step{.bytes = 98, .code = 256, .scale = 8}>(blocks, n_blocks, out, [](const uint8_t* in, const Fields& f) {
    f.d[0] = load<uint16_t>(in);
    for (int k = 0; k < 8; ++k) {
      const uint8_t* index = in + 2 + 8 * k;
      const uint32_t signs = load<uint32_t>(in + 66 + 4 * k);
      f.scale[k] = static_cast<int8_t>(signs >> 28);
      for (int i = 0; i < 4; ++i) {
        const uint64_t codes = pair(kGrid3Xxs[index[2 * i]], kGrid3Xxs[index[2 * i + 1]]);
        store(f.code + 32 * k + 8 * i, codes ^ flips(kEvenSigns[signs >> 7 * i & 127], kFlip3Xxs));
      }
    }
  });
}

// d2 | grid indices 64, low bytes | grid indices 8, ninth bits (index i: bit i % 8 of byte i / 8) | signs 32
//    | scales 4, nibbles in turn
void unpack_iq3_s(const std::byte* blocks, size_t n_blocks, const Fields& out) {
  for_blocks<Step{.bytes = 110, .code = 256, .scale = 8}>(
      blocks, n_blocks, out, [](const uint8_t* in, const Fields& f) {
        f.d[0] = load<uint16_t>(in);
        const uint8_t *low = in + 2, *high = in + 66, *signs = in + 74;
        for (int k = 0; k < 8; ++k) {
          const uint32_t ninth = high[k];
          const auto grid = [&](int i) { return kGrid3S[low[8 * k + i] | (ninth << (8 - i) & 256)]; };
          for (int i = 0; i < 4; ++i) {
            store(f.code + 32 * k + 8 * i, pair(grid(2 * i), grid(2 * i + 1)) ^ flips(signs[4 * k + i], kFlip3S));
          }
        }
        nibbles_in_turn(in + 106, 4, f.scale);
      });
}

// d2 | grid indices 32, low bytes | 8 16-bit numbers, for 32 columns each: bits 0..11 the upper 3 bits of four indices,
//    12..14 the scale, 15 the sign of the delta
void unpack_iq1_s(const std::byte* blocks, size_t n_blocks, const Fields& out) {
  for_blocks<Step{.bytes = 50, .code = 256, .scale = 8}>(blocks, n_blocks, out, [](const uint8_t* in, const Fields& f) {
    f.d[0] = load<uint16_t>(in);
    for (int k = 0; k < 8; ++k) {
      const uint32_t high = load<uint16_t>(in + 34 + 2 * k);
      f.scale[k] = static_cast<int8_t>(high >> 12);
      for (int i = 0; i < 4; ++i) {
        store(f.code + 32 * k + 8 * i, kGrid1[in[2 + 4 * k + i] | (high >> 3 * i & 7) << 8]);
      }
    }
  });
}

// grid indices 32, low bytes | 16 bytes of nibbles in turn, one an index: bits 0..2 its upper bits, 3 the sign of the
// delta
//    | 4 16-bit numbers: bits 0..11 four scales of 3 bits, for 16 columns each, 12..15 a nibble of d, lowest nibble
//    first
void unpack_iq1_m(const std::byte* blocks, size_t n_blocks, const Fields& out) {
  for_blocks<Step{.bytes = 56, .code = 256, .scale = 16}>(
      blocks, n_blocks, out, [](const uint8_t* in, const Fields& f) {
        for (int k = 0; k < 16; ++k) {
          const uint32_t high = in[32 + k];
          for (int i = 0; i < 2; ++i) {
            const uint64_t delta = repeat8(1) * (high >> (4 * i + 3) & 1) * kDelta1M;
            store(f.code + 16 * k + 8 * i, kGrid1[in[2 * k + i] | (high << (8 - 4 * i) & 0x700)] | delta);
          }
        }
        uint32_t d = 0;
        for (int k = 0; k < 4; ++k) {
          const uint32_t scales = load<uint16_t>(in + 48 + 2 * k);
          for (int i = 0; i < 4; ++i) f.scale[4 * k + i] = static_cast<int8_t>(scales >> 3 * i & 7);
          d |= scales >> 12 << 4 * k;
        }
        f.d[0] = static_cast<uint16_t>(d);
      });
}

}  // namespace lamina::gguf

// Planes against the dequantiser: for every type that can be a weight, every row read back from the planes has the bits
// of its file form, whatever the shape; and the layout is the one that planes.h draws.
#include "kernels/planes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "gguf/type_table.h"
#include "kernels/memory.h"

namespace lamina {
namespace {

using gguf::Type;
using gguf::TypeKind;

std::vector<std::byte> random_rows(const Type& type, uint32_t n_rows, uint32_t n_cols, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(uint64_t{n_rows} * n_cols / type.block * type.bytes);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

/// Equal in every bit; any NaN equals any other.
bool same(float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0 || (std::isnan(a) && std::isnan(b)); }

void expect_exact(const Type& type, uint32_t n_rows, uint32_t n_cols) {
  SCOPED_TRACE(testing::Message() << type.name << " " << n_rows << " x " << n_cols);
  const std::vector<std::byte> rows = random_rows(type, n_rows, n_cols, n_rows * 1000 + n_cols);
  const Memory memory(plane_bytes(type, n_rows, n_cols), "planes");
  Planes planes(type, n_rows, n_cols, memory.data());
  const uint32_t n_tiles = planes.view().n_row_tiles;
  // In two parts, the later first: tiles are independent.
  planes.fill(rows.data(), n_tiles / 2, n_tiles);
  planes.fill(rows.data(), 0, n_tiles / 2);
  const uint64_t row_bytes = uint64_t{n_cols} / type.block * type.bytes;
  std::vector<float> want(n_cols), got(n_cols);
  for (uint32_t r = 0; r < n_rows; r++) {
    gguf::dequantize(type, rows.data() + r * row_bytes, n_cols, want.data());
    planes.decode_row(r, got.data());
    for (uint32_t c = 0; c < n_cols; c++) {
      ASSERT_TRUE(same(got[c], want[c])) << "row " << r << " column " << c << ": " << got[c] << ", file " << want[c];
    }
  }
}

TEST(Planes, EveryTypeIsExactOffTheTileSize) {
  for (const Type& type : gguf::types()) {
    if (type.kind == TypeKind::kData) continue;
    for (const uint32_t n_rows : {1u, 15u, 16u, 17u, 33u}) {
      for (const uint32_t blocks : {1u, 2u, 3u, 5u}) {
        // Floats have blocks of one: try odd columns and one past a tile.
        expect_exact(type, n_rows, type.block == 1 ? blocks * 16 + 1 : blocks * type.block);
      }
    }
  }
}

/// Sizes of real models that are no multiple of 256.
TEST(Planes, ColumnsNeedOnlyBeWholeBlocks) {
  for (const Type& type : gguf::types()) {
    if (type.kind == TypeKind::kData) continue;
    for (const uint32_t n_cols : {576u, 640u, 96u}) {
      if (n_cols % type.block == 0) expect_exact(type, 16, n_cols);
    }
  }
}

/// The drawing of planes.h for width 4: word k of a row holds columns 8k + i in the low and 8k + 4 + i in the high
/// nibble of byte i.
TEST(Planes, FourBitWordsAreLaidOutAsDrawn) {
  const Type& type = *gguf::find_type("Q4_0");
  const uint32_t n_rows = 20, n_cols = 64;
  const std::vector<std::byte> rows = random_rows(type, n_rows, n_cols, 7);
  const Memory memory(plane_bytes(type, n_rows, n_cols), "planes");
  Planes planes(type, n_rows, n_cols, memory.data());
  planes.fill(rows.data(), 0, 2);
  for (uint32_t r = 0; r < n_rows; r++) {
    for (uint32_t c = 0; c < n_cols; c++) {
      // Byte j of a block's 16 holds weight j in its low and weight j + 16 in its high nibble.
      const std::byte* block = rows.data() + (r * 2 + c / 32) * type.bytes;
      const auto byte = static_cast<uint32_t>(block[2 + c % 16]);
      const uint32_t code = c % 32 < 16 ? byte & 15 : byte >> 4;
      const uint32_t in_tile = c % 32, word = in_tile / 8, field = in_tile % 8 / 4, i = in_tile % 4;
      const uint32_t at = ((r / 16 * 2 + c / 32) * 4 + word) * 16 + r % 16;
      EXPECT_EQ(planes.view().lo[at] >> (4 * field + 8 * i) & 15, code) << "row " << r << " column " << c;
    }
  }
}

TEST(Planes, PaddedRowsAreZero) {
  const Type& type = *gguf::find_type("Q8_0");
  const std::vector<std::byte> rows = random_rows(type, 3, 32, 1);
  const Memory memory(plane_bytes(type, 3, 32), "planes");
  Planes planes(type, 3, 32, memory.data());
  planes.fill(rows.data(), 0, 1);
  for (uint32_t row = 3; row < 16; row++) {
    EXPECT_EQ(planes.view().lo[row], 0u);
    EXPECT_EQ(static_cast<const uint16_t*>(planes.view().d)[row], 0u);
  }
}

TEST(Planes, StartOn64Bytes) {
  for (const Type& type : gguf::types()) {
    if (type.kind != TypeKind::kQuant) continue;
    const Memory memory(plane_bytes(type, 17, 3 * type.block), "planes");
    const Planes planes(type, 17, 3 * type.block, memory.data());
    const PlaneView& view = planes.view();
    for (const void* p :
         {static_cast<const void*>(view.lo), static_cast<const void*>(view.hi), static_cast<const void*>(view.scale),
          static_cast<const void*>(view.min), static_cast<const void*>(view.d), static_cast<const void*>(view.dmin)}) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % 64, 0u) << type.name;
    }
  }
}

/// research/quants.md, "compact plane": bits a weight that each type may take, plus nothing but padding.
TEST(Planes, BitsAWeightAreThoseOfTheDesign) {
  const std::pair<const char*, double> want[] = {
      {"Q4_0", 4.5},       {"Q4_1", 5.0},     {"Q4_K", 4.625},   {"IQ4_XS", 4.3125}, {"IQ3_S", 4.1875},
      {"IQ3_XXS", 4.1875}, {"Q3_K", 3.5625},  {"IQ2_S", 3.3125}, {"IQ2_XS", 3.3125}, {"IQ2_XXS", 3.1875},
      {"Q2_K", 2.625},     {"IQ1_M", 3.3125}, {"IQ1_S", 2.1875}, {"TQ1_0", 2.0625},  {"TQ2_0", 2.0625},
      {"Q2_0", 2.25},      {"Q1_0", 1.125},   {"Q5_0", 5.5},     {"Q5_1", 6.0},      {"Q5_K", 5.625},
      {"Q6_K", 6.5625},    {"Q8_0", 8.5},     {"MXFP4", 4.25},   {"NVFP4", 4.5},     {"IQ4_NL", 4.5}};
  for (const auto& [name, bits] : want) {
    const uint32_t n = 4096;
    EXPECT_EQ(static_cast<double>(plane_bytes(*gguf::find_type(name), n, n)) * 8 / n / n, bits) << name;
  }
}

}  // namespace
}  // namespace lamina

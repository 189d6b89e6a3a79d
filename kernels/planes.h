// Weights in the kernels' layout. A quantised matrix becomes planes; float matrices are transposed into the same row
// tiles.
//
// A tile is 16 rows x 32 columns. A code plane of width b gives each row of a tile b words of 32 bits; word k of the 16
// rows stand side by side (64 bytes). Field j (b bits), byte i of word k holds the code of column 32*tile + (32/b)*k +
// 4*j + i:
//
//     b = 4    word 0, 16 rows                 word 1                           word 2, word 3
//              row 0: c0|c4 c1|c5 c2|c6 c3|c7  row 0: c8|c12 c9|c13 c10|c14 ...
//              (low nibble | high nibble)
//
// so (word >> b*j) & mask is four consecutive columns of 16 rows: one operand of a 4-way int8 dot product.
//
//     lo, hi        [row tile][column tile][word][16] u32     widths lo_bits, hi_bits; code = lo | hi << lo_bits
//     scale         [row tile][sub group][16] i8, or two groups (2g, 2g+1) in the nibbles of one byte; with
//     MinKind::kNibble
//                   a byte holds (scale, min) of one group
//     min           [row tile][sub group][16] u8              MinKind::kUint8
//     d, dmin       [row tile][d group][16] f16 or u8
//     F32, F16      [row tile][column][16]
//     BF16          [row tile][column pair][16] u32           even column in the low half; odd K padded with 0
//
// Rows are padded to 16 with zeros. Each plane starts on 64 bytes.
#pragma once
#include <cstddef>
#include <cstdint>

#include "gguf/type.h"

namespace lamina {

constexpr uint32_t kRowTile = 16;
constexpr uint32_t kColTile = 32;

/// Pointers to the planes of one matrix and all that a kernel needs to read them. Plain data, shared with kernel code.
struct PlaneView {
  uint32_t* lo = nullptr;
  uint32_t* hi = nullptr;
  uint8_t* scale = nullptr;
  uint8_t* min = nullptr;
  void* d = nullptr;  ///< uint16_t f16, or uint8_t
  uint16_t* dmin = nullptr;
  void* floats = nullptr;  ///< TypeKind::kFloat
  uint32_t n_rows = 0, n_cols = 0;
  uint32_t n_row_tiles = 0, n_col_tiles = 0;
  float d_factor = 1;
  float offset = 0;                  ///< value = entry - offset, where entry is the code or unsigned_values[code]
  uint8_t unsigned_values[16] = {};  ///< value + offset of each code, for table types
};

/// Bytes that the planes of an n_rows x n_cols matrix take, padding included.
uint64_t plane_bytes(const gguf::Type& type, uint32_t n_rows, uint32_t n_cols);

/// Whether two numbers share a byte of the scale plane.
constexpr bool scale_is_nibble(const gguf::PlaneForm& form) {
  return form.scale == gguf::ScaleKind::kNibble || form.scale == gguf::ScaleKind::kOddNibble ||
         form.scale == gguf::ScaleKind::kOddDelta;
}

/// The planes of one matrix, in memory of the caller's.
class Planes {
 public:
  /// `memory`: plane_bytes, 64-byte aligned; zeros, or planes that were filled before.
  Planes(const gguf::Type& type, uint32_t n_rows, uint32_t n_cols, std::byte* memory);

  /// Fills rows [16 * first_tile, 16 * last_tile) from `file_rows`: the matrix's rows in file form, row 0 first.
  /// Different tiles may be filled by different threads.
  void fill(const std::byte* file_rows, uint32_t first_tile, uint32_t last_tile);

  /// Row `row` as float32 [n_cols], bit-equal to gguf::dequantize of its file form.
  void decode_row(uint32_t row, float* out) const;

  const gguf::Type& type() const { return *type_; }
  const PlaneView& view() const { return view_; }
  uint64_t bytes() const { return bytes_; }

 private:
  void fill_quant_row(uint32_t row, const gguf::Fields& fields);
  void fill_float_tile(uint32_t tile, const std::byte* file_rows, uint64_t row_bytes);

  const gguf::Type* type_;
  PlaneView view_;
  uint64_t bytes_;
};

}  // namespace lamina

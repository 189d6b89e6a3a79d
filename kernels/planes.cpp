// Splits matrices into planes (see planes.h for the layout) and reads rows back.
#include "kernels/planes.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "gguf/error.h"

namespace lamina {

using gguf::DKind;
using gguf::MinKind;
using gguf::PlaneForm;
using gguf::ScaleKind;
using gguf::Type;
using gguf::TypeId;
using gguf::TypeKind;

namespace {

/// Offsets of the planes in one allocation, each a multiple of 64; 0 bytes for planes that the form has not.
struct Layout {
  uint64_t lo = 0, hi = 0, scale = 0, min = 0, d = 0, dmin = 0, floats = 0, end = 0;
};

uint32_t tiles(uint32_t n, uint32_t tile) { return (n + tile - 1) / tile; }

/// Bytes of scale that one row of a tile stores for all its sub groups.
uint64_t scale_bytes_per_row(const PlaneForm& form, uint64_t n_cols) {
  if (form.scale == ScaleKind::kNone) return 0;
  const uint64_t groups = n_cols / form.sub_group;
  return scale_is_nibble(form) && form.min != MinKind::kNibble ? (groups + 1) / 2 : groups;
}

Layout layout_of(const Type& type, uint32_t n_rows, uint32_t n_cols) {
  Layout at;
  const uint64_t row_tiles = tiles(n_rows, kRowTile);
  uint64_t end = 0;
  // `per_tile` bytes for each row tile; every plane starts on 64 bytes.
  auto place = [&](uint64_t& offset, uint64_t per_tile) {
    offset = end;
    end += (row_tiles * per_tile + 63) / 64 * 64;
  };
  if (type.kind == TypeKind::kFloat) {
    const uint64_t cols = type.id == TypeId::kBF16 ? (uint64_t{n_cols} + 1) / 2 * 2 : n_cols;
    place(at.floats, kRowTile * cols * type.bytes);
  } else {
    const PlaneForm& form = type.form;
    const uint64_t words = uint64_t{n_cols} / kColTile * kRowTile * sizeof(uint32_t);
    const uint64_t d_groups = n_cols / form.d_group;
    place(at.lo, words * form.lo_bits);
    place(at.hi, words * form.hi_bits);
    place(at.scale, kRowTile * scale_bytes_per_row(form, n_cols));
    place(at.min, form.min == MinKind::kUint8 ? kRowTile * uint64_t{n_cols} / form.sub_group : 0);
    place(at.d, kRowTile * d_groups * (form.d_kind == DKind::kF16 ? 2 : 1));
    place(at.dmin, form.min == MinKind::kNone ? 0 : kRowTile * d_groups * 2);
  }
  at.end = end;
  return at;
}

/// Packs the n codes of one row, each cut to kBits, into its words: kBits a column tile, 16 words apart.
template <int kBits>
void pack_codes(const uint8_t* codes, uint32_t n, uint32_t* words) {
  constexpr int kFields = 8 / kBits;
  for (uint32_t c = 0; c < n; c += 4 * kFields) {
    uint32_t word = 0;
    for (int j = 0; j < kFields; j++) {
      uint32_t four;
      std::memcpy(&four, codes + c + 4 * j, 4);
      word |= four << (kBits * j);
    }
    *words = word;
    words += kRowTile;
  }
}

void pack_codes(int bits, const uint8_t* codes, uint32_t n, uint32_t* words) {
  switch (bits) {
    case 1: return pack_codes<1>(codes, n, words);
    case 2: return pack_codes<2>(codes, n, words);
    case 4: return pack_codes<4>(codes, n, words);
    case 8: return pack_codes<8>(codes, n, words);
    default: LAMINA_CHECK(false);
  }
}

/// The code of column `col` in a plane's words of one row (see planes.h).
uint32_t unpack_code(int bits, const uint32_t* words, uint32_t col) {
  const uint32_t group = col / 4, fields = 8 / bits;
  const uint32_t word = words[group / fields * kRowTile];
  return word >> (bits * (group % fields) + 8 * (col % 4)) & ((1u << bits) - 1);
}

/// Columns are taken a few at a time, so that the 16 rows' scattered writes stay in the nearest cache.
template <class Element>
void transpose(const std::byte* file_rows, uint64_t row_bytes, uint32_t n_rows, uint64_t n_cols, Element* out) {
  constexpr uint64_t kColumns = 32;
  for (uint64_t first = 0; first < n_cols; first += kColumns) {
    const uint64_t last = std::min(first + kColumns, n_cols);
    for (uint32_t lane = 0; lane < n_rows; lane++) {
      const auto* in = reinterpret_cast<const Element*>(file_rows + lane * row_bytes);
      for (uint64_t c = first; c < last; c++) out[c * kRowTile + lane] = in[c];
    }
  }
}

}  // namespace

uint64_t plane_bytes(const Type& type, uint32_t n_rows, uint32_t n_cols) { return layout_of(type, n_rows, n_cols).end; }

Planes::Planes(const Type& type, uint32_t n_rows, uint32_t n_cols, std::byte* memory) : type_(&type) {
  LAMINA_CHECK(n_rows > 0 && n_cols > 0 && n_cols % type.block == 0 && type.kind != TypeKind::kData);
  const Layout at = layout_of(type, n_rows, n_cols);
  bytes_ = at.end;
  view_.n_rows = n_rows;
  view_.n_cols = n_cols;
  view_.n_row_tiles = tiles(n_rows, kRowTile);
  view_.n_col_tiles = tiles(n_cols, kColTile);
  if (type.kind == TypeKind::kFloat) {
    view_.floats = memory + at.floats;
    return;
  }
  view_.lo = reinterpret_cast<uint32_t*>(memory + at.lo);
  view_.hi = reinterpret_cast<uint32_t*>(memory + at.hi);
  view_.scale = reinterpret_cast<uint8_t*>(memory + at.scale);
  view_.min = reinterpret_cast<uint8_t*>(memory + at.min);
  view_.d = memory + at.d;
  view_.dmin = reinterpret_cast<uint16_t*>(memory + at.dmin);
  view_.d_factor = type.d_factor;
  view_.offset = type.offset;
  if (type.form.table) {
    for (size_t i = 0; i < type.values.size(); i++) {
      view_.unsigned_values[i] = static_cast<uint8_t>(type.values[i] + type.offset);
    }
  }
}

void Planes::fill(const std::byte* file_rows, uint32_t first_tile, uint32_t last_tile) {
  const uint32_t n = view_.n_cols;
  const uint64_t row_bytes = uint64_t{n} / type_->block * type_->bytes;
  if (type_->kind == TypeKind::kFloat) {
    for (uint32_t tile = first_tile; tile < last_tile; tile++) fill_float_tile(tile, file_rows, row_bytes);
    return;
  }
  // Groups hold at least 16 columns. One spare scale: the partner of an odd last group is 0.
  std::vector<uint8_t> code(n), min(n / 16);
  std::vector<int8_t> scale(n / 16 + 1);
  std::vector<uint16_t> d(n / 16), dmin(n / 16);
  const gguf::Fields fields{code.data(), scale.data(), min.data(), d.data(), dmin.data()};
  for (uint32_t row = first_tile * kRowTile; row < last_tile * kRowTile && row < view_.n_rows; row++) {
    type_->unpack(file_rows + row * row_bytes, n / type_->block, fields);
    fill_quant_row(row, fields);
  }
}

void Planes::fill_quant_row(uint32_t row, const gguf::Fields& fields) {
  const PlaneForm& form = type_->form;
  const uint64_t tile = row / kRowTile, lane = row % kRowTile;
  const uint32_t n = view_.n_cols;
  const uint64_t words = uint64_t{view_.n_col_tiles} * kRowTile;  // of a row tile, per bit of width
  if (form.hi_bits == 0) {
    pack_codes(form.lo_bits, fields.code, n, view_.lo + tile * words * form.lo_bits + lane);
  } else {
    std::vector<uint8_t> high(n);
    const uint8_t lo_mask = static_cast<uint8_t>((1u << form.lo_bits) - 1);
    for (uint32_t c = 0; c < n; c++) {
      high[c] = static_cast<uint8_t>(fields.code[c] >> form.lo_bits);
      fields.code[c] &= lo_mask;
    }
    pack_codes(form.lo_bits, fields.code, n, view_.lo + tile * words * form.lo_bits + lane);
    pack_codes(form.hi_bits, high.data(), n, view_.hi + tile * words * form.hi_bits + lane);
  }

  const uint64_t scale_bytes = scale_bytes_per_row(form, n);
  uint8_t* scale = view_.scale + tile * scale_bytes * kRowTile + lane;
  for (uint64_t g = 0; g < scale_bytes; g++) {
    uint32_t byte = static_cast<uint8_t>(fields.scale[g]);
    if (form.min == MinKind::kNibble) {
      byte |= uint32_t{fields.min[g]} << 4;
    } else if (scale_is_nibble(form)) {
      byte = static_cast<uint8_t>(fields.scale[2 * g]) | uint32_t{static_cast<uint8_t>(fields.scale[2 * g + 1])} << 4;
    }
    scale[g * kRowTile] = static_cast<uint8_t>(byte);
  }
  if (form.min == MinKind::kUint8) {
    const uint64_t groups = n / form.sub_group;
    uint8_t* min = view_.min + tile * groups * kRowTile + lane;
    for (uint64_t g = 0; g < groups; g++) min[g * kRowTile] = fields.min[g];
  }
  const uint64_t d_groups = n / form.d_group;
  for (uint64_t g = 0; g < d_groups; g++) {
    const uint64_t at = (tile * d_groups + g) * kRowTile + lane;
    if (form.d_kind == DKind::kF16) {
      static_cast<uint16_t*>(view_.d)[at] = fields.d[g];
    } else {
      static_cast<uint8_t*>(view_.d)[at] = static_cast<uint8_t>(fields.d[g]);
    }
    if (form.min != MinKind::kNone) view_.dmin[at] = fields.dmin[g];
  }
}

void Planes::fill_float_tile(uint32_t tile, const std::byte* file_rows, uint64_t row_bytes) {
  const uint64_t n = view_.n_cols, pairs = (n + 1) / 2;
  const uint32_t n_rows = std::min(kRowTile, view_.n_rows - tile * kRowTile);
  const std::byte* rows = file_rows + uint64_t{tile} * kRowTile * row_bytes;
  if (type_->id == TypeId::kF32) {
    transpose(rows, row_bytes, n_rows, n, static_cast<uint32_t*>(view_.floats) + tile * n * kRowTile);
  } else if (type_->id == TypeId::kF16) {
    transpose(rows, row_bytes, n_rows, n, static_cast<uint16_t*>(view_.floats) + tile * n * kRowTile);
  } else {  // BF16: whole pairs move as one word; rows of odd length start on odd addresses
    auto* out = static_cast<uint32_t*>(view_.floats) + tile * pairs * kRowTile;
    if (n % 2 == 0) return transpose(rows, row_bytes, n_rows, pairs, out);
    for (uint32_t lane = 0; lane < n_rows; lane++) {
      const auto* in = reinterpret_cast<const uint16_t*>(rows + lane * row_bytes);
      for (uint64_t p = 0; p < pairs; p++) {
        const uint32_t odd = 2 * p + 1 < n ? in[2 * p + 1] : 0;
        out[p * kRowTile + lane] = in[2 * p] | odd << 16;
      }
    }
  }
}

void Planes::decode_row(uint32_t row, float* out) const {
  LAMINA_CHECK(row < view_.n_rows);
  const uint64_t tile = row / kRowTile, lane = row % kRowTile, n = view_.n_cols;
  if (type_->kind == TypeKind::kFloat) {
    const uint64_t pairs = (n + 1) / 2;
    for (uint64_t c = 0; c < n; c++) {
      const uint64_t at = (tile * n + c) * kRowTile + lane;
      if (type_->id == TypeId::kF32) {
        out[c] = static_cast<const float*>(view_.floats)[at];
      } else if (type_->id == TypeId::kF16) {
        out[c] = gguf::f16_to_f32(static_cast<const uint16_t*>(view_.floats)[at]);
      } else {
        const uint32_t pair = static_cast<const uint32_t*>(view_.floats)[(tile * pairs + c / 2) * kRowTile + lane];
        out[c] = gguf::bf16_to_f32(static_cast<uint16_t>(pair >> (16 * (c % 2))));
      }
    }
    return;
  }
  const PlaneForm& form = type_->form;
  const uint64_t words = uint64_t{view_.n_col_tiles} * kRowTile;
  const uint32_t* lo = view_.lo + tile * words * form.lo_bits + lane;
  const uint32_t* hi = view_.hi + tile * words * form.hi_bits + lane;
  const uint8_t* scale = view_.scale + tile * scale_bytes_per_row(form, n) * kRowTile + lane;
  const uint64_t d_groups = n / form.d_group;
  for (uint64_t c = 0; c < n; c++) {
    uint32_t code = unpack_code(form.lo_bits, lo, static_cast<uint32_t>(c));
    if (form.hi_bits != 0) code |= unpack_code(form.hi_bits, hi, static_cast<uint32_t>(c)) << form.lo_bits;
    uint8_t stored = 0;
    float m = 0;
    if (form.scale != ScaleKind::kNone) {
      const uint64_t g = c / form.sub_group;
      if (form.min == MinKind::kNibble) {
        stored = scale[g * kRowTile] & 15;
        m = scale[g * kRowTile] >> 4;
      } else if (scale_is_nibble(form)) {
        stored = scale[g / 2 * kRowTile] >> (4 * (g % 2)) & 15;
      } else {
        stored = scale[g * kRowTile];
      }
      if (form.min == MinKind::kUint8) m = view_.min[(tile * (n / form.sub_group) + g) * kRowTile + lane];
    }
    const uint64_t at = (tile * d_groups + c / form.d_group) * kRowTile + lane;
    const uint16_t d_bits = form.d_kind == DKind::kF16 ? static_cast<const uint16_t*>(view_.d)[at]
                                                       : static_cast<const uint8_t*>(view_.d)[at];
    const float d = gguf::d_to_f32(form.d_kind, d_bits) * view_.d_factor;
    const auto s = static_cast<int8_t>(stored);
    const float w = d * static_cast<float>(gguf::scale_of(*type_, s)) *
                    static_cast<float>(gguf::value_of(*type_, static_cast<uint8_t>(code), s));
    if (form.min == MinKind::kNone) {
      out[c] = w;
    } else if (form.min == MinKind::kF16) {
      out[c] = w + gguf::f16_to_f32(view_.dmin[at]);
    } else {
      out[c] = w - gguf::f16_to_f32(view_.dmin[at]) * m;
    }
  }
}

}  // namespace lamina

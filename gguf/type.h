// Every GGML tensor type as one row of a table, the fields into which a quantised block splits, and the exact
// dequantiser.
//
// A quantised weight is      w = (d * s) * v  (- dmin * m)  or  d * v + m,      with
//   code   u8                 one per weight, code_bits(lo) + code_bits(hi) wide
//   v      = value[code]      a table of up to 16 integers, or linear: code - offset
//   s      integer            one per sub_group columns (ScaleKind says how the stored byte becomes s)
//   d      f16/E8M0/UE4M3     one per d_group columns, times a power of two (d_factor)
//   m      integer or f16     MinKind
// Source of the layouts: ../shared/research/quants.md (public facts about GGML blocks); grids: codebooks.inc.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace lamina::gguf {

/// Type numbers as stored in the file.
// clang-format off
enum class TypeId : uint32_t {
  kF32 = 0, kF16 = 1, kQ4_0 = 2, kQ4_1 = 3, kQ5_0 = 6, kQ5_1 = 7, kQ8_0 = 8, kQ2_K = 10, kQ3_K = 11, kQ4_K = 12,
  kQ5_K = 13, kQ6_K = 14, kIQ2_XXS = 16, kIQ2_XS = 17, kIQ3_XXS = 18, kIQ1_S = 19, kIQ4_NL = 20, kIQ3_S = 21,
  kIQ2_S = 22, kIQ4_XS = 23, kI8 = 24, kI16 = 25, kI32 = 26, kI64 = 27, kF64 = 28, kIQ1_M = 29, kBF16 = 30,
  kTQ1_0 = 34, kTQ2_0 = 35, kMXFP4 = 39, kNVFP4 = 40, kQ1_0 = 41, kQ2_0 = 42
};
// clang-format on

enum class TypeKind : uint8_t {
  kFloat,  ///< F32, F16, BF16: can be a weight
  kData,   ///< F64 and integers: readable, never a weight
  kQuant   ///< splits into Fields
};

/// How d is stored: one number per d_group columns.
enum class DKind : uint8_t {
  kF16,
  kE8M0,   ///< 2^(byte - 128)
  kUE4M3,  ///< unsigned 4-bit exponent (bias 7), 3-bit mantissa, halved; Fields holds 0..0x7F, where 0x7F is 240
};

/// How the stored sub-scale byte b becomes the integer s.
enum class ScaleKind : uint8_t {
  kNone,       ///< s = 1, nothing stored
  kInt8,       ///< s = b
  kNibble,     ///< s = b, 0..15
  kOddNibble,  ///< s = 2b + 1, b 0..15
  kOddDelta,   ///< IQ1_S: s = 2(b & 7) + 1 and v = 8 (code - 1) + (b & 8 ? -1 : +1)
};

enum class MinKind : uint8_t {
  kNone,
  kF16,     ///< w = d * v + m, an f16 m beside each d (Q4_1, Q5_1)
  kNibble,  ///< - dmin * m, m 0..15 per sub_group of 16, an f16 dmin beside each d (Q2_K)
  kUint8,   ///< - dmin * m, m 0..63 per sub_group of 32, an f16 dmin beside each d (Q4_K, Q5_K)
};

/// A row of quantised weights split into its fields. Arrays are the caller's; lengths for n columns are given.
struct Fields {
  uint8_t* code;   ///< [n]
  int8_t* scale;   ///< [n / sub_group] stored bytes (see ScaleKind); untouched for kNone
  uint8_t* min;    ///< [n / sub_group]; untouched unless MinKind is kNibble or kUint8
  uint16_t* d;     ///< [n / d_group] raw bits (a byte for E8M0 and UE4M3)
  uint16_t* dmin;  ///< [n / d_group] raw f16 bits of dmin or m; untouched for MinKind::kNone
};

/// What a kernel must know of a quantised type: everything but names, numbers and block order. Types with equal forms
/// share their kernels.
struct PlaneForm {
  uint8_t lo_bits = 0;      ///< width of the low (wider) code plane: 1, 2, 4 or 8
  uint8_t hi_bits = 0;      ///< width of the plane with the remaining high bits: 0, 1 or 2
  bool table = false;       ///< v from `Type::values`, else linear
  bool has_offset = false;  ///< linear with an offset other than 0, or a table with negative values
  uint8_t max_code = 0;  ///< no code (or value + offset of a table) is above it: 32, 64, 129 or 255; see code_limit()
  DKind d_kind = DKind::kF16;
  uint16_t d_group = 32;  ///< columns that share d: 16, 32, 64, 128, 256
  ScaleKind scale = ScaleKind::kNone;
  MinKind min = MinKind::kNone;
  uint16_t sub_group = 0;  ///< columns that share a sub-scale (and min): 16 or 32; 0 for ScaleKind::kNone
  friend bool operator==(const PlaneForm&, const PlaneForm&) = default;
  constexpr int code_bits() const { return lo_bits + hi_bits; }
};

/// One row of the type table.
struct Type {
  TypeId id;
  const char* name;  ///< as llama.cpp prints it: "Q4_K", "IQ2_XXS", "F16"
  TypeKind kind;
  uint32_t block;         ///< weights in a block; 1 for unquantised types
  uint32_t bytes;         ///< bytes of a block
  PlaneForm form = {};    ///< kQuant only
  int16_t offset = 0;     ///< linear: v = code - offset (kOddDelta: 8 (code - offset) +- 1). Table: -min(values), so
                          ///< that value + offset is unsigned
  float d_factor = 1.0f;  ///< applied to d in float32: 1, 1/4 or 1/8
  std::array<int8_t, 16> values = {};                                                     ///< form.table only
  void (*unpack)(const std::byte* blocks, size_t n_blocks, const Fields& out) = nullptr;  ///< kQuant only
};

/// All types, in the order of their numbers.
std::span<const Type> types();

/// The row of a type number, or nullptr when lamina does not know it.
const Type* find_type(uint32_t id);

/// The row of a name ("Q4_K", any letter case), or nullptr.
const Type* find_type(std::string_view name);

/// Why a type number is not in the table, for messages: "removed from GGML in 2024", "an ik_llama.cpp type", "unknown".
const char* unknown_type_reason(uint32_t id);

/// Numbers from their stored bits, exact.
float f16_to_f32(uint16_t bits);
float bf16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float x);   ///< round to nearest even
uint16_t f32_to_bf16(float x);  ///< round to nearest even, denormals kept
float d_to_f32(DKind kind, uint16_t bits);

/// v of a code, and s of a stored scale byte (see ScaleKind; for kOddDelta v depends on the scale byte too).
int value_of(const Type& type, uint8_t code, int8_t scale);
int scale_of(const Type& type, int8_t scale);

/// Dequantises `n` weights (a multiple of type.block) to float32, bit-equal to the Python package gguf 0.19:
/// ((d * d_factor) * float(s)) * float(v), then - dmin * m or + m, one rounding each. Also F32, F16 and BF16.
void dequantize(const Type& type, const std::byte* data, size_t n, float* out);

}  // namespace lamina::gguf

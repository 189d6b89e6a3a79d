// The type table, exact conversions of stored numbers, and the scalar dequantiser.
// In: type numbers and names, blocks as they lie in the file. Out: rows of the table, float32 weights bit-equal to the
// Python package gguf 0.19. Block layouts are drawn beside their unpackers (unpack.cpp, unpack_iq.cpp); here is only
// what a kernel or a loader must know of a type.
#include "gguf/type.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstring>

#include "gguf/type_table.h"

namespace lamina::gguf {
namespace {

constexpr uint32_t kLargestBlock = 256;

/// Bits that the planes of one block take. No unpacker may lose any, so they are at least those of the block.
constexpr uint32_t plane_bits(const Type& type) {
  const PlaneForm& form = type.form;
  const uint32_t d_bits = form.d_kind == DKind::kF16 ? 16 : 8;
  uint32_t bits = type.block * form.code_bits() + type.block / form.d_group * d_bits;
  if (form.scale != ScaleKind::kNone) bits += type.block / form.sub_group * (form.scale == ScaleKind::kInt8 ? 8 : 4);
  if (form.min == MinKind::kNibble) bits += type.block / form.sub_group * 4;
  if (form.min == MinKind::kUint8) bits += type.block / form.sub_group * 8;
  if (form.min != MinKind::kNone) bits += type.block / form.d_group * 16;
  return bits;
}

constexpr bool is_sound(const Type& type) {
  if (type.kind != TypeKind::kQuant) return type.block == 1 && type.unpack == nullptr;
  const PlaneForm& form = type.form;
  const bool lo = form.lo_bits == 1 || form.lo_bits == 2 || form.lo_bits == 4 || form.lo_bits == 8;
  const bool hi = form.hi_bits <= 2 && form.hi_bits < form.lo_bits;
  const bool groups = type.block <= kLargestBlock && type.block % form.d_group == 0;
  const bool subs =
      form.scale == ScaleKind::kNone ? form.sub_group == 0 : form.sub_group != 0 && form.d_group % form.sub_group == 0;
  const bool mins = (form.min != MinKind::kNibble && form.min != MinKind::kUint8) || form.sub_group != 0;
  const bool table = !form.table || form.code_bits() <= 4;
  return lo && hi && groups && subs && mins && table && plane_bits(type) >= 8 * type.bytes;
}

static_assert(std::ranges::all_of(kTypes, is_sound));
static_assert(std::ranges::adjacent_find(kTypes, std::ranges::greater_equal{}, &Type::id) == std::ranges::end(kTypes),
              "types() promises the order of the numbers");

float power_of_two(int exponent) {  // -149 .. 127
  return std::bit_cast<float>(exponent >= -126 ? uint32_t(exponent + 127) << 23 : uint32_t{1} << (exponent + 149));
}

/// One block from its fields. Columns that share every factor form a group.
void dequantize_block(const Type& type, const Fields& fields, float* out) {
  const PlaneForm& form = type.form;
  const uint32_t group = form.sub_group != 0 ? form.sub_group : form.d_group;
  for (uint32_t column = 0; column < type.block; column += group) {
    const uint32_t i_sub = column / group, i_d = column / form.d_group;
    const int8_t scale = form.scale == ScaleKind::kNone ? 0 : fields.scale[i_sub];
    const float d = d_to_f32(form.d_kind, fields.d[i_d]) * type.d_factor * float(scale_of(type, scale));
    const uint8_t* code = fields.code + column;
    float* w = out + column;
    if (form.table) {
      for (uint32_t i = 0; i < group; ++i) w[i] = d * float(type.values[code[i]]);
    } else {
      for (uint32_t i = 0; i < group; ++i) w[i] = d * float(value_of(type, code[i], scale));
    }
    if (form.min == MinKind::kF16) {
      const float m = f16_to_f32(fields.dmin[i_d]);
      for (uint32_t i = 0; i < group; ++i) w[i] = w[i] + m;
    } else if (form.min != MinKind::kNone) {
      const float m = f16_to_f32(fields.dmin[i_d]) * float(fields.min[i_sub]);
      for (uint32_t i = 0; i < group; ++i) w[i] = w[i] - m;
    }
  }
}

}  // namespace

std::span<const Type> types() { return kTypes; }

const Type* find_type(uint32_t id) {
  const auto row = std::ranges::find(kTypes, static_cast<TypeId>(id), &Type::id);
  return row == std::ranges::end(kTypes) ? nullptr : row;
}

const Type* find_type(std::string_view name) {
  const auto same_letter = [](char a, char b) { return std::toupper(uint8_t(a)) == std::toupper(uint8_t(b)); };
  const auto row = std::ranges::find_if(
      kTypes, [&](const Type& type) { return std::ranges::equal(std::string_view(type.name), name, same_letter); });
  return row == std::ranges::end(kTypes) ? nullptr : row;
}

const char* unknown_type_reason(uint32_t id) {
  if (id == 4 || id == 5) return "removed from GGML in 2023 (Q4_2, Q4_3)";
  if (id == 9 || id == 15) return "a type that GGML uses while computing, not in files (Q8_1, Q8_K)";
  if (id >= 31 && id <= 33) return "removed from GGML in 2024 (Q4_0_4_4, Q4_0_4_8, Q4_0_8_8): use the Q4_0 file";
  if (id >= 36 && id <= 38) return "removed from GGML in 2024 (IQ4_NL_4_4, 4_8, 8_8), or I2_S of ik_llama.cpp";
  if (id >= 133 && id <= 399) return "an ik_llama.cpp type";
  return "unknown";
}

float f16_to_f32(uint16_t bits) {
  const uint32_t sign = uint32_t(bits & 0x8000) << 16, exponent = bits >> 10 & 31, mantissa = bits & 0x3FF;
  uint32_t magnitude;
  if (exponent == 31) magnitude = 0x7F800000 | mantissa << 13;
  else if (exponent != 0) magnitude = (exponent + 127 - 15) << 23 | mantissa << 13;
  else magnitude = std::bit_cast<uint32_t>(float(mantissa) * 0x1p-24f);
  return std::bit_cast<float>(sign | magnitude);
}

uint16_t f32_to_f16(float x) {
  constexpr uint32_t kInfinity = 0x7F800000, kOverflow = 0x477FF000 /* 65520 */, kLeastNormal = 0x38800000 /* 2^-14 */;
  const uint32_t bits = std::bit_cast<uint32_t>(x), magnitude = bits & 0x7FFFFFFF;
  uint32_t half;
  if (magnitude > kInfinity) half = 0x7E00 | (magnitude >> 13 & 0x1FF);
  else if (magnitude >= kOverflow) half = 0x7C00;
  else if (magnitude >= kLeastNormal) half = (magnitude - ((127 - 15) << 23) + 0xFFF + (magnitude >> 13 & 1)) >> 13;
  else half = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - std::bit_cast<uint32_t>(0.5f);
  return static_cast<uint16_t>((bits >> 16 & 0x8000) |
                               half);  // the last line: an ulp of 0.5 is 2^-24, f16's denormal step
}

float bf16_to_f32(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

uint16_t f32_to_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return static_cast<uint16_t>(bits >> 16 | 0x40);  // NaN stays NaN, quiet
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

float d_to_f32(DKind kind, uint16_t bits) {
  switch (kind) {
    case DKind::kF16: return f16_to_f32(bits);
    case DKind::kE8M0: return power_of_two(int{bits} - 128);
    case DKind::kUE4M3: {
      const int exponent = bits >> 3 & 15, mantissa = bits & 7;
      return exponent == 0 ? float(mantissa) * 0x1p-10f : float(8 + mantissa) * power_of_two(exponent - 7 - 3 - 1);
    }
  }
  return 0;
}

int value_of(const Type& type, uint8_t code, int8_t scale) {
  if (type.form.table) return type.values[code & 15];
  if (type.form.scale == ScaleKind::kOddDelta) return 8 * (code - type.offset) + (scale & 8 ? -1 : 1);
  return code - type.offset;
}

int scale_of(const Type& type, int8_t scale) {
  switch (type.form.scale) {
    case ScaleKind::kNone: return 1;
    case ScaleKind::kInt8:
    case ScaleKind::kNibble: return scale;
    case ScaleKind::kOddNibble: return 2 * scale + 1;
    case ScaleKind::kOddDelta: return 2 * (scale & 7) + 1;
  }
  return 0;
}

void dequantize(const Type& type, const std::byte* data, size_t n, float* out) {
  switch (type.id) {
    case TypeId::kF32: std::memcpy(out, data, n * sizeof(float)); return;
    case TypeId::kF16:
    case TypeId::kBF16:
      for (size_t i = 0; i < n; ++i) {
        uint16_t bits;
        std::memcpy(&bits, data + 2 * i, sizeof bits);
        out[i] = type.id == TypeId::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
      }
      return;
    default: break;
  }
  uint8_t code[kLargestBlock], min[kLargestBlock / 16];
  int8_t scale[kLargestBlock / 16];
  uint16_t d[kLargestBlock / 16], dmin[kLargestBlock / 16];
  const Fields fields = {.code = code, .scale = scale, .min = min, .d = d, .dmin = dmin};
  for (size_t i = 0; i < n; i += type.block, data += type.bytes) {
    type.unpack(data, 1, fields);
    dequantize_block(type, fields, out + i);
  }
}

}  // namespace lamina::gguf

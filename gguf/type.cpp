// The type table, exact conversions of stored numbers, and the scalar dequantiser.
// In: type numbers and names, blocks as they lie in the file. Out: rows of the table, float32 weights bit-equal to the
// Python package gguf 0.19. Block layouts are drawn beside their unpackers (unpack.cpp, unpack_iq.cpp); here is only
// what a kernel or a loader must know of a type.
#include "gguf/type.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstring>

#include "gguf/unpack.h"

namespace lamina::gguf {
namespace {

using Values = std::array<int8_t, 16>;

constexpr Type unquantised(TypeId id, const char* name, TypeKind kind, uint32_t bytes) {
  return {.id = id, .name = name, .kind = kind, .block = 1, .bytes = bytes};
}

/// v = code - offset.
constexpr Type linear(TypeId id, const char* name, uint32_t block, uint32_t bytes, PlaneForm form, int16_t offset,
                      Unpack* unpack) {
  form.has_offset = offset != 0;
  return {.id = id,
          .name = name,
          .kind = TypeKind::kQuant,
          .block = block,
          .bytes = bytes,
          .form = form,
          .offset = offset,
          .unpack = unpack};
}

/// v = values[code].
constexpr Type tabled(TypeId id, const char* name, uint32_t block, uint32_t bytes, PlaneForm form, const Values& values,
                      float d_factor, Unpack* unpack) {
  const int lowest = *std::min_element(values.begin(), values.end());
  form.table = true;
  form.has_offset = lowest < 0;
  return {.id = id,
          .name = name,
          .kind = TypeKind::kQuant,
          .block = block,
          .bytes = bytes,
          .form = form,
          .offset = static_cast<int16_t>(-lowest),
          .d_factor = d_factor,
          .values = values,
          .unpack = unpack};
}

// Codes that no block produces have value 0.
constexpr Values kSigns = {-1, 1};
constexpr Values kIq2 = {8, 25, 43, 0, -8, -25, -43, 0};                                            // bit 2: sign
constexpr Values kIq3Xxs = {4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62};  // bit 3: sign
constexpr Values kIq3S = {-15, -13, -11, -9, -7, -5, -3, -1, 1, 3, 5, 7, 9, 11, 13, 15};            // 2 code - 15
constexpr Values kIq1M = {-7, 1, 9, 0, -9, -1, 7, 0};  // 8 (code & 3) - 8, bit 2: +1 or -1
constexpr Values kIq4 = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr Values kE2m1 = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};  // twice FP4 E2M1

// clang-format off
constexpr PlaneForm kNibbles32 = {.lo_bits = 4, .d_group = 32};
constexpr PlaneForm kTernary = {.lo_bits = 2, .d_group = 256};
constexpr PlaneForm kThreeBitsBy16 = {
    .lo_bits = 2, .hi_bits = 1, .d_group = 256, .scale = ScaleKind::kOddNibble, .sub_group = 16};
constexpr PlaneForm kThreeBitsBy32 = {
    .lo_bits = 2, .hi_bits = 1, .d_group = 256, .scale = ScaleKind::kOddNibble, .sub_group = 32};
constexpr PlaneForm kFourBitsBy32 = {.lo_bits = 4, .d_group = 256, .scale = ScaleKind::kOddNibble, .sub_group = 32};

constexpr Type kTypes[] = {
    unquantised(TypeId::kF32, "F32", TypeKind::kFloat, 4),
    unquantised(TypeId::kF16, "F16", TypeKind::kFloat, 2),
    linear(TypeId::kQ4_0, "Q4_0", 32, 18, kNibbles32, 8, unpack_q4_0),
    linear(TypeId::kQ4_1, "Q4_1", 32, 20, {.lo_bits = 4, .d_group = 32, .min = MinKind::kF16}, 0, unpack_q4_1),
    linear(TypeId::kQ5_0, "Q5_0", 32, 22, {.lo_bits = 4, .hi_bits = 1, .d_group = 32}, 16, unpack_q5_0),
    linear(TypeId::kQ5_1, "Q5_1", 32, 24,
           {.lo_bits = 4, .hi_bits = 1, .d_group = 32, .min = MinKind::kF16}, 0, unpack_q5_1),
    linear(TypeId::kQ8_0, "Q8_0", 32, 34, {.lo_bits = 8, .d_group = 32}, 128, unpack_q8_0),
    linear(TypeId::kQ2_K, "Q2_K", 256, 84,
           {.lo_bits = 2, .d_group = 256, .scale = ScaleKind::kNibble, .min = MinKind::kNibble, .sub_group = 16},
           0, unpack_q2_k),
    linear(TypeId::kQ3_K, "Q3_K", 256, 110,
           {.lo_bits = 2, .hi_bits = 1, .d_group = 256, .scale = ScaleKind::kInt8, .sub_group = 16}, 4, unpack_q3_k),
    linear(TypeId::kQ4_K, "Q4_K", 256, 144,
           {.lo_bits = 4, .d_group = 256, .scale = ScaleKind::kInt8, .min = MinKind::kUint8, .sub_group = 32},
           0, unpack_q4_k),
    linear(TypeId::kQ5_K, "Q5_K", 256, 176,
           {.lo_bits = 4, .hi_bits = 1, .d_group = 256, .scale = ScaleKind::kInt8, .min = MinKind::kUint8,
            .sub_group = 32}, 0, unpack_q5_k),
    linear(TypeId::kQ6_K, "Q6_K", 256, 210,
           {.lo_bits = 4, .hi_bits = 2, .d_group = 256, .scale = ScaleKind::kInt8, .sub_group = 16}, 32, unpack_q6_k),
    tabled(TypeId::kIQ2_XXS, "IQ2_XXS", 256, 66, kThreeBitsBy32, kIq2, 0.125f, unpack_iq2_xxs),
    tabled(TypeId::kIQ2_XS, "IQ2_XS", 256, 74, kThreeBitsBy16, kIq2, 0.125f, unpack_iq2_xs),
    tabled(TypeId::kIQ3_XXS, "IQ3_XXS", 256, 98, kFourBitsBy32, kIq3Xxs, 0.25f, unpack_iq3_xxs),
    [] {  // v comes from the code and the scale byte: see ScaleKind::kOddDelta
      Type type = linear(TypeId::kIQ1_S, "IQ1_S", 256, 50,
                         {.lo_bits = 2, .d_group = 256, .scale = ScaleKind::kOddDelta, .sub_group = 32},
                         1, unpack_iq1_s);
      type.d_factor = 0.125f;
      return type;
    }(),
    tabled(TypeId::kIQ4_NL, "IQ4_NL", 32, 18, kNibbles32, kIq4, 1, unpack_q4_0),
    tabled(TypeId::kIQ3_S, "IQ3_S", 256, 110, kFourBitsBy32, kIq3S, 1, unpack_iq3_s),
    tabled(TypeId::kIQ2_S, "IQ2_S", 256, 82, kThreeBitsBy16, kIq2, 0.125f, unpack_iq2_s),
    tabled(TypeId::kIQ4_XS, "IQ4_XS", 256, 136,
           {.lo_bits = 4, .d_group = 256, .scale = ScaleKind::kInt8, .sub_group = 32}, kIq4, 1, unpack_iq4_xs),
    unquantised(TypeId::kI8, "I8", TypeKind::kData, 1),
    unquantised(TypeId::kI16, "I16", TypeKind::kData, 2),
    unquantised(TypeId::kI32, "I32", TypeKind::kData, 4),
    unquantised(TypeId::kI64, "I64", TypeKind::kData, 8),
    unquantised(TypeId::kF64, "F64", TypeKind::kData, 8),
    tabled(TypeId::kIQ1_M, "IQ1_M", 256, 56, kThreeBitsBy16, kIq1M, 0.125f, unpack_iq1_m),
    unquantised(TypeId::kBF16, "BF16", TypeKind::kFloat, 2),
    linear(TypeId::kTQ1_0, "TQ1_0", 256, 54, kTernary, 1, unpack_tq1_0),
    linear(TypeId::kTQ2_0, "TQ2_0", 256, 66, kTernary, 1, unpack_tq2_0),
    tabled(TypeId::kMXFP4, "MXFP4", 32, 17,
           {.lo_bits = 4, .d_kind = DKind::kE8M0, .d_group = 32}, kE2m1, 1, unpack_mxfp4),
    tabled(TypeId::kNVFP4, "NVFP4", 64, 36,
           {.lo_bits = 4, .d_kind = DKind::kUE4M3, .d_group = 16}, kE2m1, 1, unpack_nvfp4),
    tabled(TypeId::kQ1_0, "Q1_0", 128, 18, {.lo_bits = 1, .d_group = 128}, kSigns, 1, unpack_q1_0),
    linear(TypeId::kQ2_0, "Q2_0", 64, 18, {.lo_bits = 2, .d_group = 64}, 1, unpack_q2_0),
};
// clang-format on

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

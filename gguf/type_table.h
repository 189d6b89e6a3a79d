// The table of all GGML tensor types, one row each: what a kernel or a loader must know of a type, as compile-time
// data, so that kernels can be instantiated once for every distinct plane form. Block layouts are drawn beside their
// unpackers.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>

#include "gguf/type.h"
#include "gguf/unpack.h"

namespace lamina::gguf {

using Values = std::array<int8_t, 16>;

constexpr Type unquantised(TypeId id, const char* name, TypeKind kind, uint32_t bytes) {
  return {.id = id, .name = name, .kind = kind, .block = 1, .bytes = bytes};
}

/// PlaneForm::max_code of a highest code. A sum of 4, 2 or 1 products of two codes with int8 activations fits 16 bits
/// (128 * 127 * 2 = 32512) for the first three limits; forms share kernels, so there are few limits.
constexpr uint8_t code_limit(int highest) {
  return highest <= 32 ? 32 : highest <= 64 ? 64 : highest <= 129 ? 129 : 255;
}

/// v = code - offset.
constexpr Type linear(TypeId id, const char* name, uint32_t block, uint32_t bytes, PlaneForm form, int16_t offset,
                      Unpack* unpack) {
  form.has_offset = offset != 0;
  form.max_code = code_limit((1 << form.code_bits()) - 1);
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
  form.max_code = code_limit(*std::max_element(values.begin(), values.end()) - lowest);
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

inline constexpr Type kTypes[] = {
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

/// Number of different plane forms among the quantised types: types with equal forms share their kernels.
consteval size_t count_forms() {
  size_t n = 0;
  for (size_t i = 0; i < std::size(kTypes); i++) {
    bool seen = kTypes[i].kind != TypeKind::kQuant;
    for (size_t j = 0; j < i; j++) seen = seen || kTypes[j].form == kTypes[i].form;
    n += seen ? 0 : 1;
  }
  return n;
}

consteval std::array<PlaneForm, count_forms()> distinct_forms() {
  std::array<PlaneForm, count_forms()> forms = {};
  size_t n = 0;
  for (const Type& type : kTypes) {
    if (type.kind != TypeKind::kQuant) continue;
    bool seen = false;
    for (size_t j = 0; j < n; j++) seen = seen || forms[j] == type.form;
    if (!seen) forms[n++] = type.form;
  }
  return forms;
}

inline constexpr auto kForms = distinct_forms();

}  // namespace lamina::gguf

// Tests of the type table, the unpackers and the dequantiser.
// In: tests/data/types/TYPE.bin (blocks, then the float32 weights the PyPI package gguf 0.19 makes of them; written by
// tests/make_type_fixtures.py). Every test loops over types(), so a new row without a fixture fails.
#include "gguf/type.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace lamina::gguf {
namespace {

/// Bit-equal, any NaN equal to any other.
bool same(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

struct Fixture {
  std::vector<std::byte> blocks;
  std::vector<float> weights;
  size_t n_blocks = 0;
};

bool has_fixture(const Type& type) {
  return type.kind != TypeKind::kData && type.id != TypeId::kQ1_0 && type.id != TypeId::kQ2_0;
}

Fixture read_fixture(const Type& type) {
  const auto path = std::filesystem::path(LAMINA_SOURCE_DIR) / "tests/data/types" / (std::string(type.name) + ".bin");
  std::ifstream in(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  const size_t per_block = type.bytes + 4 * type.block;
  Fixture fixture;
  fixture.n_blocks = bytes.size() / per_block;
  EXPECT_GT(fixture.n_blocks, 0u) << path << " is missing or empty";
  EXPECT_EQ(bytes.size() % per_block, 0u) << path;
  fixture.blocks.resize(fixture.n_blocks * type.bytes);
  fixture.weights.resize(fixture.n_blocks * type.block);
  std::memcpy(fixture.blocks.data(), bytes.data(), fixture.blocks.size());
  std::memcpy(fixture.weights.data(), bytes.data() + fixture.blocks.size(), 4 * fixture.weights.size());
  return fixture;
}

std::vector<std::byte> random_blocks(const Type& type, size_t n_blocks) {
  std::mt19937 random(uint32_t(type.id) + 1);
  std::vector<std::byte> blocks(n_blocks * type.bytes);
  for (std::byte& b : blocks) b = std::byte(random() >> 24);
  return blocks;
}

/// Fields of n blocks with a guard entry behind each array; arrays the type does not have stay empty, hence null.
struct OwnedFields {
  static constexpr uint8_t kGuard = 0xA5;
  std::vector<uint8_t> code, min;
  std::vector<int8_t> scale;
  std::vector<uint16_t> d, dmin;

  OwnedFields(const Type& type, size_t n_blocks) {
    const PlaneForm& form = type.form;
    const size_t n = n_blocks * type.block;
    code.resize(n + 1, kGuard);
    d.resize(n / form.d_group + 1, kGuard);
    if (form.scale != ScaleKind::kNone) scale.resize(n / form.sub_group + 1, int8_t(kGuard));
    if (form.min == MinKind::kNibble || form.min == MinKind::kUint8) min.resize(n / form.sub_group + 1, kGuard);
    if (form.min != MinKind::kNone) dmin.resize(n / form.d_group + 1, kGuard);
  }
  Fields fields() { return {code.data(), scale.data(), min.data(), d.data(), dmin.data()}; }
  bool guards_stand() const {
    return code.back() == kGuard && d.back() == kGuard && (scale.empty() || scale.back() == int8_t(kGuard)) &&
           (min.empty() || min.back() == kGuard) && (dmin.empty() || dmin.back() == kGuard);
  }
};

/// The formula of type.h, weight by weight.
float weight_at(const Type& type, const Fields& fields, size_t i) {
  const PlaneForm& form = type.form;
  const int8_t scale = form.scale == ScaleKind::kNone ? 0 : fields.scale[i / form.sub_group];
  const float d = d_to_f32(form.d_kind, fields.d[i / form.d_group]) * type.d_factor;
  const float w = d * float(scale_of(type, scale)) * float(value_of(type, fields.code[i], scale));
  if (form.min == MinKind::kNone) return w;
  const float dmin = f16_to_f32(fields.dmin[i / form.d_group]);
  return form.min == MinKind::kF16 ? w + dmin : w - dmin * float(fields.min[i / form.sub_group]);
}

/// f16 by its definition.
float f16_value(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  double x = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  if (exponent == 31) x = mantissa == 0 ? INFINITY : NAN;
  return float(bits & 0x8000 ? -x : x);
}

TEST(GgufType, DequantisesToTheBitsOfThePythonPackage) {
  for (const Type& type : types()) {
    if (!has_fixture(type)) continue;
    const Fixture fixture = read_fixture(type);
    std::vector<float> w(fixture.weights.size());
    dequantize(type, fixture.blocks.data(), w.size(), w.data());
    for (size_t i = 0; i < w.size(); ++i) {
      ASSERT_TRUE(same(w[i], fixture.weights[i]))
          << type.name << " weight " << i << ": " << w[i] << " for " << fixture.weights[i];
    }
  }
}

TEST(GgufType, FixturesHoldEveryCode) {
  for (const Type& type : types()) {
    if (!has_fixture(type) || type.kind != TypeKind::kQuant) continue;
    const Fixture fixture = read_fixture(type);
    OwnedFields owned(type, fixture.n_blocks);
    type.unpack(fixture.blocks.data(), fixture.n_blocks, owned.fields());
    owned.code.pop_back();
    std::set<int> missing;
    for (int code = 0; code < 1 << type.form.code_bits(); ++code) missing.insert(code);
    for (const uint8_t code : owned.code) missing.erase(code);
    // Grids and trits have three magnitudes where two bits could say four.
    std::set<int> unused;
    if (type.id == TypeId::kTQ1_0 || type.id == TypeId::kIQ1_S) unused = {3};
    if (type.form.code_bits() == 3 && type.form.table) unused = {3, 7};
    EXPECT_EQ(missing, unused) << type.name;
  }
}

TEST(GgufType, FieldsAndFormulaGiveTheDequantisedBits) {
  constexpr size_t kBlocks = 37;
  for (const Type& type : types()) {
    if (type.kind != TypeKind::kQuant) continue;
    const std::vector<std::byte> blocks = random_blocks(type, kBlocks);
    std::vector<float> w(kBlocks * type.block);
    dequantize(type, blocks.data(), w.size(), w.data());
    OwnedFields owned(type, kBlocks);
    const Fields fields = owned.fields();
    type.unpack(blocks.data(), kBlocks, fields);
    EXPECT_TRUE(owned.guards_stand()) << type.name;
    for (size_t i = 0; i < w.size(); ++i) {
      ASSERT_LT(fields.code[i], 1 << type.form.code_bits()) << type.name;
      ASSERT_TRUE(same(w[i], weight_at(type, fields, i))) << type.name << " weight " << i;
    }
  }
}

TEST(GgufType, StoredScalesAndMinsKeepTheirRanges) {
  constexpr size_t kBlocks = 200;
  for (const Type& type : types()) {
    if (type.kind != TypeKind::kQuant) continue;
    OwnedFields owned(type, kBlocks);
    type.unpack(random_blocks(type, kBlocks).data(), kBlocks, owned.fields());
    if (!owned.scale.empty()) owned.scale.pop_back();
    if (!owned.min.empty()) owned.min.pop_back();
    const bool nibble = type.form.scale != ScaleKind::kInt8;
    for (const int8_t scale : owned.scale) ASSERT_TRUE(!nibble || (scale >= 0 && scale <= 15)) << type.name;
    for (const uint8_t min : owned.min) ASSERT_LE(min, type.form.min == MinKind::kNibble ? 15 : 63) << type.name;
    for (const uint16_t d : owned.d) ASSERT_LE(d, type.form.d_kind == DKind::kF16 ? 0xFFFF : 0xFF) << type.name;
  }
}

TEST(GgufType, Q1_0IsOneBitAWeight) {
  const Type& type = *find_type("Q1_0");
  const std::vector<std::byte> blocks = random_blocks(type, 50);
  std::vector<float> w(50 * 128);
  dequantize(type, blocks.data(), w.size(), w.data());
  for (size_t i = 0; i < w.size(); ++i) {
    const std::byte* block = blocks.data() + i / 128 * 18;
    const float d = f16_value(uint16_t(int(block[0]) | int(block[1]) << 8));
    const bool bit = int(block[2 + i % 128 / 8]) & 1 << i % 8;
    ASSERT_TRUE(same(w[i], bit ? d : -d)) << i;
  }
}

TEST(GgufType, Q2_0IsTwoBitsAWeight) {
  const Type& type = *find_type("Q2_0");
  const std::vector<std::byte> blocks = random_blocks(type, 50);
  std::vector<float> w(50 * 64);
  dequantize(type, blocks.data(), w.size(), w.data());
  for (size_t i = 0; i < w.size(); ++i) {
    const std::byte* block = blocks.data() + i / 64 * 18;
    const float d = f16_value(uint16_t(int(block[0]) | int(block[1]) << 8));
    const int q = (int(block[2 + i % 64 / 4]) >> 2 * (i % 4)) % 4;
    ASSERT_TRUE(same(w[i], d * float(q - 1))) << i;
  }
}

TEST(GgufType, OffsetMakesValuesUnsigned) {
  for (const Type& type : types()) {
    if (type.kind != TypeKind::kQuant || type.form.scale == ScaleKind::kOddDelta) continue;
    int least = 1000;
    for (int code = 0; code < 1 << type.form.code_bits(); ++code) {
      least = std::min(least, value_of(type, uint8_t(code), 0));
    }
    EXPECT_EQ(std::max(0, -least), type.offset) << type.name;
    EXPECT_EQ(type.form.has_offset, type.offset != 0) << type.name;
  }
}

TEST(GgufType, EqualShapesShareAForm) {
  const auto form = [](const char* name) { return find_type(name)->form; };
  EXPECT_EQ(form("TQ1_0"), form("TQ2_0"));
  EXPECT_EQ(form("IQ2_XS"), form("IQ2_S"));
  EXPECT_EQ(form("IQ4_NL").code_bits(), form("Q4_0").code_bits());
  EXPECT_NE(form("IQ2_XS"), form("IQ1_M"));  // values to 43 and to 9: sums of products fit 16 bits once or four times
  EXPECT_NE(form("IQ3_XXS"), form("IQ3_S"));
  EXPECT_NE(form("Q4_0"), form("IQ4_NL"));
  EXPECT_NE(form("Q4_0"), form("Q4_1"));
}

TEST(GgufType, NoCodeIsAboveItsLimit) {
  for (const Type& type : types()) {
    if (type.kind != TypeKind::kQuant) continue;
    const int limit = type.form.max_code, products = limit == 32 ? 4 : limit == 64 ? 2 : limit == 129 ? 1 : 0;
    for (int code = 0; code < 1 << type.form.code_bits(); code++) {
      const int entry = type.form.table ? type.values[static_cast<size_t>(code)] + type.offset : code;
      EXPECT_LE(entry, limit) << type.name;
      EXPECT_GE(entry, 0) << type.name;
    }
    EXPECT_LE(products * 2 * limit * 127, INT16_MAX) << type.name;  // what the AVX2 kernels add in 16 bits
  }
}

TEST(GgufType, FindsTypesByNumberAndName) {
  for (const Type& type : types()) {
    EXPECT_EQ(find_type(uint32_t(type.id)), &type);
    EXPECT_EQ(find_type(type.name), &type);
  }
  EXPECT_EQ(types().size(), 33u);
  EXPECT_EQ(find_type(12u), find_type("q4_k"));
  EXPECT_EQ(find_type("iq2_xxs"), find_type("IQ2_XXS"));
  EXPECT_EQ(find_type("bf16")->id, TypeId::kBF16);
  EXPECT_EQ(find_type("Q4"), nullptr);
  EXPECT_EQ(find_type(""), nullptr);
  EXPECT_EQ(find_type("Q4_K_M"), nullptr);
}

TEST(GgufType, SaysWhyANumberIsUnknown) {
  for (const uint32_t id : {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u}) {
    EXPECT_EQ(find_type(id), nullptr) << id;
    EXPECT_NE(std::string(unknown_type_reason(id)).find("removed from GGML"), std::string::npos) << id;
  }
  for (const uint32_t id : {133u, 139u, 158u, 202u, 399u}) {
    EXPECT_EQ(find_type(id), nullptr) << id;
    EXPECT_NE(std::string(unknown_type_reason(id)).find("ik_llama.cpp"), std::string::npos) << id;
  }
  for (const uint32_t id : {9u, 15u})
    EXPECT_NE(std::string(unknown_type_reason(id)).find("not in files"), std::string::npos);
  for (const uint32_t id : {43u, 132u, 400u, 0xFFFFFFFFu}) EXPECT_STREQ(unknown_type_reason(id), "unknown");
}

TEST(GgufType, F16IsExactForAllBits) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float x = f16_to_f32(uint16_t(bits));
    ASSERT_TRUE(same(x, f16_value(uint16_t(bits)))) << bits;
    if (std::isnan(x)) ASSERT_TRUE(std::isnan(f16_to_f32(f32_to_f16(x)))) << bits;
    else ASSERT_EQ(f32_to_f16(x), bits);
  }
}

TEST(GgufType, Bf16IsExactForAllBits) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float x = bf16_to_f32(uint16_t(bits));
    ASSERT_EQ(std::bit_cast<uint32_t>(x), bits << 16);
    if (std::isnan(x)) ASSERT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(x)))) << bits;
    else ASSERT_EQ(f32_to_bf16(x), bits);
  }
}

/// Between each finite number and the next: the middle goes to the even one, its neighbours to the nearer one.
template <class Narrow, class Widen>
void expect_nearest_even(uint32_t infinity, Narrow narrow, Widen widen) {
  for (uint32_t low = 0; low < infinity; ++low) {
    const double below = widen(uint16_t(low));
    const double above = low + 1 < infinity ? widen(uint16_t(low + 1)) : 2 * below - widen(uint16_t(low - 1));
    const float middle = float((below + above) / 2);
    for (const uint32_t sign : {0u, 0x8000u}) {
      const float s = sign ? -1.f : 1.f;
      ASSERT_EQ(narrow(s * middle), sign | (low + (low & 1))) << low;
      ASSERT_EQ(narrow(s * std::nextafterf(middle, 0)), sign | low) << low;
      ASSERT_EQ(narrow(s * std::nextafterf(middle, INFINITY)), sign | (low + 1)) << low;
    }
  }
  ASSERT_EQ(narrow(INFINITY), infinity);
  ASSERT_EQ(narrow(-INFINITY), infinity | 0x8000);
}

TEST(GgufType, RoundsToNearestEven) {
  expect_nearest_even(0x7C00, f32_to_f16, [](uint16_t b) { return f16_to_f32(b); });
  expect_nearest_even(0x7F80, f32_to_bf16, [](uint16_t b) { return bf16_to_f32(b); });
  EXPECT_EQ(f32_to_f16(3e38f), 0x7C00);
  EXPECT_EQ(f32_to_f16(1e-40f), 0);
}

TEST(GgufType, ScaleBytesMeanPowersOfTwoAndUnsignedFp8) {
  for (int b = 0; b < 256; ++b) EXPECT_EQ(d_to_f32(DKind::kE8M0, uint16_t(b)), std::ldexp(1.0, b - 128)) << b;
  EXPECT_EQ(d_to_f32(DKind::kUE4M3, 0), 0);
  EXPECT_EQ(d_to_f32(DKind::kUE4M3, 0x01), std::ldexp(1.0, -10));
  EXPECT_EQ(d_to_f32(DKind::kUE4M3, 0x38), 0.5f);
  EXPECT_EQ(d_to_f32(DKind::kUE4M3, 0x7F), 240);
}

}  // namespace
}  // namespace lamina::gguf

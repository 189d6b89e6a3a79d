// LinearOp on every device against the reference, bit by bit: each type of weights at sizes around tiles, awkward
// activations and scales, and every part of inputs and epilogues.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/kernels/device_cases.h"

namespace lamina {
namespace {

constexpr int32_t kVocab = 25;

/// Embeddings with rows that products could get wrong: zero, too small for a scale, denormal, outliers, a block of
/// ties.
std::vector<float> awkward_rows(TinyModel& model, uint32_t n_cols) {
  std::vector<float> x = model.uniform(size_t{n_cols} * kVocab, 3);
  const auto row = [&](size_t r) { return std::span(x).subspan(r * n_cols, n_cols); };
  std::ranges::fill(row(0), 0.0f);
  std::ranges::fill(row(1), -0.0f);
  for (float& value : row(2)) value *= 0x1p-102f;
  for (float& value : row(3)) value *= 0x1p-130f;
  for (size_t c = 0; c < n_cols; c += 37) row(4)[c] = -1e6f;
  for (size_t c = 0; c < n_cols; ++c) row(5)[c] = c % 32 == 0 ? 127.0f : static_cast<float>(c % 32) - 15.5f;
  for (size_t c = 0; c < n_cols; ++c) row(6)[c] = c / 32 % 2 ? 0.0f : row(6)[c];
  return x;
}

/// embed -> the rows [first, first + n) of w.
Program product_of_rows(const TinyModel& model, uint32_t first, uint32_t n) {
  Program program;
  Weight rows = model.weight("w");
  rows.first_row = first, rows.n_rows = n;
  finish(program, add_product(program, add_embed(program, model.weight("embd")), rows));
  return program;
}

std::vector<const gguf::Type*> weight_types() {
  std::vector<const gguf::Type*> found;
  for (const gguf::Type& type : gguf::types())
    if (type.kind != gguf::TypeKind::kData) found.push_back(&type);
  return found;
}

/// Multiples of the block, with whole and broken numbers of 256 columns; any number for float weights.
std::vector<uint32_t> column_counts(const gguf::Type& type) {
  if (type.kind == gguf::TypeKind::kFloat) return {1, 2, 15, 33, 64, 257};
  std::vector<uint32_t> counts = {32, 64, 128, 256, 288, 512, 576, 640, 768};
  std::erase_if(counts, [&](uint32_t n) { return n % type.block != 0; });
  return counts;
}

class LinearOfType : public testing::TestWithParam<std::tuple<DeviceCase, const gguf::Type*>> {};

TEST_P(LinearOfType, HasTheReferencesBits) {
  const auto& [device, type] = GetParam();
  for (uint32_t n_cols : column_counts(*type)) {
    TinyModel model(n_cols);
    model.add("embd", {n_cols, kVocab}, awkward_rows(model, n_cols));
    model.add("w", type->name, {n_cols, 40});
    model.open();
    for (const auto& [first, n] : {std::pair{39u, 1u}, {0u, 15u}, {16u, 16u}, {5u, 17u}, {7u, 33u}}) {
      SCOPED_TRACE(testing::Message() << n_cols << " columns, rows " << first << " + " << n);
      expect_reference_bits(device, product_of_rows(model, first, n), model, steps_of_all_sizes(kVocab));
      if (HasFatalFailure()) return;
    }
  }
}

/// Each device with each type; OpenCL with a row a work-item, whose kernels take seconds to compile, with one type for
/// each kind of codes, scale, minimum and d.
std::vector<std::tuple<DeviceCase, const gguf::Type*>> devices_and_types() {
  const std::vector<std::string> some = {"F16",  "BF16",  "Q5_1",   "Q8_0",   "Q2_K",  "Q5_K",
                                         "Q6_K", "IQ1_S", "IQ2_XS", "IQ4_XS", "MXFP4", "NVFP4"};
  std::vector<std::tuple<DeviceCase, const gguf::Type*>> found;
  for (const DeviceCase& device : devices())
    for (const gguf::Type* type : weight_types())
      if (device.name != "opencl_w1" || std::ranges::find(some, type->name) != some.end())
        found.emplace_back(device, type);
  return found;
}

INSTANTIATE_TEST_SUITE_P(Devices, LinearOfType, testing::ValuesIn(devices_and_types()), [](const auto& test) {
  return std::get<0>(test.param).name + "_" + std::get<1>(test.param)->name;
});

class Linear : public testing::TestWithParam<DeviceCase> {};

INSTANTIATE_TEST_SUITE_P(Devices, Linear, testing::ValuesIn(devices()),
                         [](const auto& test) { return test.param.name; });

/// `n` blocks of random bytes whose first bytes are `scale`.
std::string blocks_with(TinyModel& model, std::string_view type, size_t n, const std::string& scale) {
  std::string bytes;
  for (size_t i = 0; i < n; ++i) {
    std::string block(gguf::find_type(type)->bytes, '\0');
    for (char& byte : block) byte = static_cast<char>(model.below(256));
    bytes += block.replace(0, scale.size(), scale);
  }
  return bytes;
}

TEST_P(Linear, ScalesAtTheEdgeOfTheirRange) {
  struct Edge {
    const char* type;
    std::string scale;
  };
  const Edge edges[] = {{"MXFP4", std::string("\x00", 1)},  // 2^-128: a denormal float32, and so are the results
                        {"MXFP4", "\x01"},
                        {"MXFP4", "\x7f"},
                        {"NVFP4", std::string("\x00\x01\x7f\xff", 4)},  // 0, a denormal, the zero, 240
                        {"NVFP4", "\x7e\x08\x07\x80"},
                        {"Q8_0", std::string("\x01\x00", 2)},   // the smallest f16
                        {"Q4_0", std::string("\xff\x7b", 2)},   // the greatest f16
                        {"Q4_0", std::string("\x00\x80", 2)}};  // -0
  for (const Edge& edge : edges) {
    SCOPED_TRACE(edge.type);
    TinyModel model(1);
    model.add("embd", {64, kVocab}, awkward_rows(model, 64));
    const size_t n_blocks = 64 * 17 / gguf::find_type(edge.type)->block;
    model.add_bytes("w", edge.type, {64, 17}, blocks_with(model, edge.type, n_blocks, edge.scale));
    model.open();
    expect_reference_bits(GetParam(), product_of_rows(model, 0, 17), model, steps_of_all_sizes(kVocab));
  }
}

TEST_P(Linear, DenormalsCountAsZeroForBf16AndNowhereElse) {
  for (const char* type : {"BF16", "F16", "F32"}) {
    for (float size : {0x1p-130f, 0x1p-64f}) {  // denormal weights; denormal products with activations near 2^-63
      SCOPED_TRACE(testing::Message() << type << " weights near " << size);
      TinyModel model(2);
      model.add("embd", {33, kVocab}, model.uniform(33 * kVocab, size < 0x1p-100f ? 1.0f : 0x1p-62f));
      std::string bytes;
      for (float w : model.uniform(33 * 17, size)) {
        const uint16_t half = type[0] == 'B' ? gguf::f32_to_bf16(w) : gguf::f32_to_f16(w * 0x1p+112f);
        bytes += type[1] == '3' ? gguf::raw(w) : gguf::raw(half);
      }
      model.add_bytes("w", type, {33, 17}, bytes);
      model.open();
      expect_reference_bits(GetParam(), product_of_rows(model, 0, 17), model, steps_of_all_sizes(kVocab));
    }
  }
}

TEST_P(Linear, ProductsOfSeveralTypesShareAnInput) {
  TinyModel model(3);
  model.add("embd", {256, kVocab}, awkward_rows(model, 256));
  const std::vector<std::pair<std::string, uint32_t>> parts = {
      {"Q4_K", 33}, {"Q6_K", 17}, {"BF16", 1}, {"F16", 16}, {"IQ1_M", 50}};
  for (const auto& [type, n_rows] : parts) model.add(type, type, {256, n_rows});
  model.open();
  for (size_t shown = 0; shown < parts.size(); ++shown) {
    SCOPED_TRACE(parts[shown].first);
    Program program;
    LinearOp op;
    op.in = add_embed(program, model.weight("embd"));
    for (const auto& [type, n_rows] : parts)
      op.products.push_back(
          {.weight = model.weight(type), .scale = {}, .bias = {}, .out = add_buffer(program, type, n_rows)});
    program.ops.push_back(op);
    finish(program, op.products[shown].out);
    expect_reference_bits(GetParam(), program, model, steps_of_all_sizes(kVocab));
  }
}

TEST_P(Linear, Epilogues) {
  TinyModel model(4);
  model.add("embd", "F32", {64, kVocab});
  model.add("all.scale", "F32", {1});
  model.add("all.bias", "F32", {40});
  for (const char* type : {"F32", "BF16", "Q4_0", "Q5_1"}) model.add(type, type, {64, 33});
  model.open();
  for (const char* type : {"F32", "BF16", "Q4_0", "Q5_1"}) {
    for (unsigned parts = 0; parts < 32; ++parts) {
      SCOPED_TRACE(testing::Message() << type << " parts " << parts);
      Program program;
      const Buf x = add_embed(program, model.weight("embd"));
      const Buf residual = add_product(program, x, model.weight("F32"));
      const Buf y = add_product(program, x, model.weight(type));
      Product& product = std::get<LinearOp>(program.ops.back()).products[0];
      if (parts & 1) product.scale = model.vector("all.scale");
      if (parts & 2) product.bias = Vector{.tensor = &model.tensor("all.bias"), .first = 7, .n = 33};
      if (parts & 4) product.multiply = 0.37f;
      if (parts & 8) product.residual = residual;
      if (parts & 16) product.softcap = 1.5f;
      finish(program, y);
      expect_reference_bits(GetParam(), program, model, steps_of_all_sizes(kVocab));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(Linear, ResidualIsAddedInPlace) {
  TinyModel model(5);
  model.add("embd", "F32", {32, kVocab});
  model.add("w", "Q8_0", {32, 32});
  model.open();
  Program program;
  const Buf x = add_embed(program, model.weight("embd")), y = add_embed(program, model.weight("embd"));
  LinearOp op;
  op.in = y;  // never x: threads read it while others write x
  op.products = {{.weight = model.weight("w"), .scale = {}, .bias = {}, .residual = x, .out = x}};
  program.ops.push_back(op);
  program.ops.push_back(op);
  finish(program, x);
  expect_reference_bits(GetParam(), program, model, steps_of_all_sizes(kVocab));
}

TEST_P(Linear, NormalisedAndGatedInputs) {
  for (const auto& [type, width] :
       {std::pair{"F32", 1u}, {"F16", 17u}, {"BF16", 33u}, {"Q4_0", 32u}, {"Q8_0", 288u}, {"Q2_K", 256u}}) {
    TinyModel model(width);
    model.add("embd", "F32", {width, kVocab});
    model.add("norm", "F32", {width});
    model.add("bias", "F32", {width});
    model.add("up", "F32", {width, width});
    model.add("w", type, {width, 17});
    model.open();
    for (int kind = 0; kind < 12; ++kind) {
      SCOPED_TRACE(testing::Message() << type << " kind " << kind);
      Program program;
      const Buf x = add_embed(program, model.weight("embd"));
      const Buf up = add_product(program, x, model.weight("up"));
      finish(program, add_product(program, up, model.weight("w")));
      LinearOp& op = std::get<LinearOp>(program.ops[2]);
      if (kind < 4) {
        op.norm = Norm{kind % 2 ? NormKind::kLayer : NormKind::kRms, 1e-5f, kind < 2 ? Vector{} : model.vector("norm"),
                       kind < 3 ? Vector{} : model.vector("bias")};
      } else {
        op.activation = static_cast<Activation>((kind - 4) % 4);
        if (kind >= 8) op.gate = x;
      }
      expect_reference_bits(GetParam(), program, model, steps_of_all_sizes(kVocab));
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace lamina

// Every op but LinearOp (linear_test.cpp) on every device against the reference, bit by bit: sizes 1, odd, around 16
// lanes; attention over pages, splits, windows and several sequences in one step.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/cpu/cpu_device.h"
#include "tests/kernels/device_cases.h"

namespace lamina {
namespace {

constexpr int32_t kVocab = 25;
constexpr uint32_t kWidths[] = {1, 15, 16, 17, 33, 64, 257};

class Ops : public testing::TestWithParam<DeviceCase> {};

INSTANTIATE_TEST_SUITE_P(Devices, Ops, testing::ValuesIn(devices()), [](const auto& test) { return test.param.name; });

TEST_P(Ops, EmbedReadsTablesOfEveryType) {
  for (const gguf::Type& type : gguf::types()) {
    if (type.kind == gguf::TypeKind::kData) continue;
    for (bool positions : {false, true}) {
      SCOPED_TRACE(testing::Message() << type.name << (positions ? " with positions" : ""));
      const uint32_t width = type.kind == gguf::TypeKind::kFloat ? 33 : 3 * type.block;
      TinyModel model(1);
      model.add("embd", type.name, {width, kVocab});
      model.add("positions", "F16", {width, 25});
      model.open();
      Program program;
      const Buf x = add_embed(program, model.weight("embd"));
      EmbedOp& op = std::get<EmbedOp>(program.ops[0]);
      op.scale = positions ? 1.0f : 5.6568542f;
      if (positions) op.positions = model.weight("positions");
      finish(program, x);
      expect_reference_bits(GetParam(), program, model, steps_of_all_sizes(kVocab));
    }
  }
}

TEST_P(Ops, Norms) {
  for (uint32_t width : kWidths) {
    TinyModel model(width);
    model.add("embd", "F32", {width, kVocab});
    model.add("weight", "F32", {width});
    model.add("bias", "F16", {width});
    model.open();
    for (unsigned parts = 0; parts < 16; ++parts) {
      SCOPED_TRACE(testing::Message() << "width " << width << " parts " << parts);
      Program program;
      const Buf x = add_embed(program, model.weight("embd"));
      const Buf out = parts & 8 ? x : add_buffer(program, "normed", width);
      program.ops.push_back(NormOp{
          .in = x,
          .norm = {parts & 1 ? NormKind::kLayer : NormKind::kRms, 1e-5f, parts & 2 ? model.vector("weight") : Vector{},
                   parts & 1 && parts & 2 ? model.vector("bias") : Vector{}},
          .residual = parts & 4 ? x : kNoBuf,
          .out = out});
      finish(program, out);
      expect_reference_bits(GetParam(), program, model, steps_of_all_sizes(kVocab));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(Ops, ArgmaxTakesTheLowestIndexOfEqualLogits) {
  for (uint32_t width : kWidths) {
    SCOPED_TRACE(width);
    TinyModel model(width);
    std::vector<float> rows(size_t{width} * kVocab);
    for (float& x : rows)
      x = -1.0f - static_cast<float>(model.below(3));  // many ties; all negative, so padding would win
    model.add("embd", {width, kVocab}, rows);
    model.open();
    Program program;
    finish(program, add_embed(program, model.weight("embd")));
    expect_reference_bits(GetParam(), program, model, steps_of_all_sizes(kVocab));
  }
}

TEST_P(Ops, SelectTakesOnlyTheRowsThatAreAskedFor) {
  TinyModel model(1);
  model.add("embd", "F32", {33, kVocab});
  model.open();
  Program program;
  finish(program, add_embed(program, model.weight("embd")));
  std::vector<Step> steps = steps_of_all_sizes(kVocab);
  for (Step& step : steps)
    std::erase_if(step.outputs, [&](uint32_t row) { return row % 3 != 0 && row + 1 != step.token.size(); });
  expect_reference_bits(GetParam(), program, model, steps);
}

/// Logits of a product over selected rows, as at the end of a model.
TEST_P(Ops, ProductsOverOutputRows) {
  TinyModel model(2);
  model.add("embd", "F32", {64, kVocab});
  model.add("w", "Q4_0", {64, 33});
  model.open();
  Program program;
  const Buf x = add_embed(program, model.weight("embd"));
  const Buf selected = add_buffer(program, "selected", 64, RowSet::kOutputs);
  program.ops.push_back(SelectOp{.in = x, .out = selected});
  program.logits = add_product(program, selected, model.weight("w"), RowSet::kOutputs);
  program.n_vocab = 33;
  program.ops.push_back(ArgmaxOp{.logits = program.logits});
  std::vector<Step> steps = steps_of_all_sizes(kVocab);
  for (Step& step : steps) step.outputs = {static_cast<uint32_t>(step.token.size() - 1)};
  expect_reference_bits(GetParam(), program, model, steps);
}

/// Small ops behind a product, which a device may run in its tail: norm onto x, selection.
TEST_P(Ops, NormsAndSelectionsBehindProducts) {
  for (const uint32_t width : {1u, 33u, 200u}) {
    TinyModel model(width);
    model.add("embd", "F32", {width, kVocab});
    model.add("norm", "F32", {width});
    model.add("w", "F32", {width, width});
    model.open();
    Program program;
    const Buf x = add_embed(program, model.weight("embd"));
    const Norm norm{NormKind::kRms, 1e-6f, model.vector("norm"), {}};
    for (int layer = 0; layer < 3; ++layer) {
      const Buf y = add_product(program, x, model.weight("w")), z = add_product(program, y, model.weight("w"));
      program.ops.push_back(NormOp{.in = z, .norm = norm, .residual = x, .out = x});
      program.ops.push_back(NormOp{.in = x, .norm = norm, .out = y});
    }
    add_product(program, x, model.weight("w"));
    program.ops.push_back(NormOp{.in = x, .norm = norm, .out = x});  // writes what the product reads
    finish(program, x);
    expect_reference_bits(GetParam(), program, model, steps_of_all_sizes(kVocab));
    if (HasFatalFailure()) return;
  }
}

/// All logits are below 0 but those that are no numbers, and the best are several: neither the padding of the last tile
/// nor a NaN may win, and of equals the lowest does.
TEST_P(Ops, TheBestLogitsAreNumbersOfTheLowestTokens) {
  constexpr uint32_t kWidth = 35;
  TinyModel model(1);
  model.add("embd", {1, kVocab}, std::vector<float>(kVocab, 1.0f));
  std::vector<float> weights(kWidth, -2.0f);
  weights[0] = weights[20] = NAN;
  weights[3] = weights[17] = weights[34] = -1.0f;
  weights[9] = -INFINITY;
  model.add("w", {1, kWidth}, weights);
  model.open();
  Program program;
  const Buf x = add_embed(program, model.weight("embd")), last = add_buffer(program, "last", 1, RowSet::kOutputs);
  program.ops.push_back(SelectOp{.in = x, .out = last});
  program.logits = add_product(program, last, model.weight("w"), RowSet::kOutputs);
  program.n_vocab = kWidth;
  program.ops.push_back(ArgmaxOp{.logits = program.logits});
  if (GetParam().is_opencl()) LAMINA_NEEDS_OPENCL();
  for (const int n_threads : GetParam().n_threads) {
    const auto device = GetParam().make(n_threads);
    const auto executable = compile(*device, program, model);
    Step step = one_sequence({1, 2});
    const auto best_tokens = [&](uint32_t n_best) {
      step.n_best = n_best;
      executable->run(step);
      std::vector<int32_t> tokens;
      for (const TokenLogit& best : executable->best(1)) tokens.push_back(best.token);
      return tokens;
    };
    EXPECT_EQ(best_tokens(1), (std::vector<int32_t>{3}));
    EXPECT_EQ(executable->argmax(1), 3);
    EXPECT_EQ(best_tokens(4), (std::vector<int32_t>{3, 17, 34, 1}));
    const std::vector<int32_t> all = best_tokens(kMaxBest);
    EXPECT_EQ(all.size(), kWidth - 2);
    EXPECT_EQ(all.back(), 9);
    step.n_best = 0;
    executable->run(step);
    EXPECT_EQ(executable->argmax(1), 3);
  }
}

struct Heads {
  uint32_t n_head, n_head_kv, dim_k, dim_v;
};

/// What varies in a layer of attention.
struct AttentionCase {
  Heads heads;
  int rope = -1;  ///< RopePairs, or -1
  uint32_t n_rot = 0;
  int norm = 0;  ///< 1: q and k are normalised; 2: by weights for each head
  float softcap = 0;
  uint32_t window = 0;
  Temperature temperature = {};
};

constexpr AttentionCase kAttentionCases[] = {
    {{1, 1, 2, 1}},
    {{4, 2, 16, 16}, 0, 16},
    {{4, 1, 33, 17}, 1, 20, 1},
    {{2, 2, 64, 65}, 1, 64, 0, 4.0f},
    {{6, 2, 31, 32}, 0, 30, 2, 0.0f, 40},
    {{3, 3, 128, 128}, 1, 128, 1, 0.0f, 1},
    {{8, 2, 80, 64}, 0, 32, 0, 2.5f, 64},
    {{2, 1, 16, 16}, 0, 16, 0, 0.0f, 0, {0.1, 8192}},
    {{4, 2, 16, 16}, 1, 16, 0, 3.0f, 40, {0.5, 7}},
    {{9, 3, 64, 64}, 1, 64},
    {{10, 1, 96, 96}, 1, 96, 0, 0.0f, 70},
    {{5, 1, 256, 16}, 0, 64},
};

TinyModel attention_model(const AttentionCase& one) {
  const auto& [n_head, n_head_kv, dim_k, dim_v] = one.heads;
  TinyModel model(dim_k);
  model.add("embd", "F32", {16, 1000});
  model.add("q", "F32", {16, n_head * dim_k});
  model.add("k", "F32", {16, n_head_kv * dim_k});
  model.add("v", "F32", {16, n_head_kv * dim_v});
  model.add("q_norm", "F32", {one.norm == 2 ? n_head * dim_k : dim_k});
  model.add("k_norm", "F32", {one.norm == 2 ? n_head_kv * dim_k : dim_k});
  model.open();
  return model;
}

Program attention_program(const TinyModel& model, const AttentionCase& one) {
  const auto& [n_head, n_head_kv, dim_k, dim_v] = one.heads;
  Program program;
  program.kv = {{n_head_kv, dim_k, dim_v}};
  Rope rope;
  rope.pairs = one.rope == 1 ? RopePairs::kHalves : RopePairs::kAdjacent;
  for (uint32_t i = 0; i < one.n_rot / 2; ++i) rope.inv_freq.push_back(1.0 / (1 + i * i));
  rope.magnitude = 1.0625;
  program.ropes = {rope};
  const Buf x = add_embed(program, model.weight("embd"));
  const Buf q = add_buffer(program, "q", n_head * dim_k), k = add_buffer(program, "k", n_head_kv * dim_k),
            v = add_buffer(program, "v", n_head_kv * dim_v);
  LinearOp qkv{.in = x};
  qkv.products = {{.weight = model.weight("q"), .out = q},
                  {.weight = model.weight("k"), .out = k},
                  {.weight = model.weight("v"), .out = v}};
  program.ops.push_back(qkv);
  AppendOp append{.q = q, .k = k, .v = v, .n_head = n_head, .q_norm = {}, .k_norm = {}, .rope = one.rope < 0 ? -1 : 0};
  if (one.norm != 0) {
    append.q_norm = Norm{NormKind::kRms, 1e-6f, model.vector("q_norm"), {}};
    append.k_norm = Norm{NormKind::kRms, 1e-6f, model.vector("k_norm"), {}};
  }
  program.ops.push_back(append);
  const Buf out = add_buffer(program, "attended", n_head * dim_v);
  program.ops.push_back(AttendOp{.q = q,
                                 .out = out,
                                 .n_head = n_head,
                                 .scale = 0.3f,
                                 .softcap = one.softcap,
                                 .window = one.window,
                                 .temperature = one.temperature});
  finish(program, out);
  return program;
}

/// One sequence in steps of varied sizes until `n` positions, all rows asked for; its pages descend from n_pages - 1.
std::vector<Step> one_sequence_in_chunks(uint32_t n, uint32_t n_pages, std::span<const size_t> sizes) {
  std::vector<uint32_t> pages(n_pages);
  std::iota(pages.rbegin(), pages.rend(), 0u);
  std::vector<Step> steps;
  for (uint32_t first = 0, i = 0; first < n; ++i) {
    Step step = one_sequence(std::vector<int32_t>(std::min<size_t>(sizes[i % sizes.size()], n - first)));
    for (uint32_t& position : step.position) position += first;
    for (size_t t = 0; t < step.token.size(); ++t) step.token[t] = static_cast<int32_t>((first + t) * 13 % 1000);
    step.pages = {pages};
    first += static_cast<uint32_t>(step.token.size());
    steps.push_back(step);
  }
  return steps;
}

TEST_P(Ops, AttentionOfAllShapes) {
  for (const AttentionCase& one : kAttentionCases) {
    SCOPED_TRACE(testing::Message() << "head_dim " << one.heads.dim_k << ", " << one.heads.dim_v);
    const TinyModel model = attention_model(one);
    for (const KvType type : {KvType::kF16, KvType::kQ8_0}) {
      expect_reference_bits(GetParam(), attention_program(model, one), model,
                            one_sequence_in_chunks(150, 3, kTokenCounts), 3, type);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(Ops, AttentionOverSplits) {
  for (uint32_t window : {0u, 64u, 500u, 512u, 513u}) {
    SCOPED_TRACE(window);
    const AttentionCase one{{2, 1, 16, 16}, 0, 16, 0, 0.0f, window};
    const TinyModel model = attention_model(one);
    const size_t sizes[] = {32, 25, 32, 1};
    expect_reference_bits(GetParam(), attention_program(model, one), model, one_sequence_in_chunks(1090, 18, sizes), 18,
                          window == 500 ? KvType::kQ8_0 : KvType::kF16);
    if (HasFatalFailure()) return;
  }
}

/// Values in [-1, 1] lose at most half a step of amax / 127, and what float16 leaves of the scale.
TEST(KvTypes, Q8KeysAndValuesAreNear) {
  const AttentionCase one{{4, 2, 48, 40}};
  const TinyModel model = attention_model(one);
  const Program program = attention_program(model, one);
  const auto device = make_cpu_device({.n_threads = 1, .isa = {}});
  std::vector<float> values[2];
  for (const KvType type : {KvType::kF16, KvType::kQ8_0}) {
    const auto executable = compile(*device, program, model, 1, type);
    const Step step = one_sequence(std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7});
    executable->trace(step, [&](size_t op) {
      if (!std::holds_alternative<AppendOp>(program.ops[op])) return true;
      values[static_cast<size_t>(type)] = executable->read({.kind = Place::Kind::kValues, .index = 0});
      return false;
    });
  }
  ASSERT_EQ(values[0].size(), values[1].size());
  const float amax = std::abs(*std::max_element(values[0].begin(), values[0].end(),
                                                [](float a, float b) { return std::abs(a) < std::abs(b); }));
  EXPECT_NE(values[0], values[1]);
  for (size_t i = 0; i < values[0].size(); ++i) EXPECT_NEAR(values[0][i], values[1][i], 0.505f * amax / 127) << i;
}

TEST_P(Ops, AttentionOfSeveralSequencesInOneStep) {
  const AttentionCase one{{4, 2, 16, 16}, 1, 16};
  const TinyModel model = attention_model(one);
  const Program program = attention_program(model, one);
  // Sequences 0 and 1 share their first page, 2 starts from nothing; every third step is of sequence 1 alone.
  std::vector<Step> steps = one_sequence_in_chunks(64, 1, std::vector<size_t>{32});
  for (Step& step : steps) step.pages[0][0] = 5;
  uint32_t next[3] = {64, 64, 0};
  for (uint32_t round = 0; round < 12; ++round) {
    Step step;
    step.pages = {{5, 1, 6}, {5, 3, 0}, {4, 2}};
    for (uint32_t i = 0; i < 6; ++i)
      for (uint32_t s : {2u, 0u, 1u}) {
        if (round % 3 == 2 && s != 1) continue;
        step.token.push_back(static_cast<int32_t>((round * 101 + i * 17 + s * 7) % 1000));
        step.position.push_back(next[s]++);
        step.sequence.push_back(s);
        step.outputs.push_back(static_cast<uint32_t>(step.outputs.size()));
      }
    steps.push_back(step);
  }
  expect_reference_bits(GetParam(), program, model, steps, 7);
}

/// A step whose first sequence has one row and whose second has many: the jobs of the splits differ in size.
TEST_P(Ops, AttentionOfUnevenSequencesOverSplits) {
  const AttentionCase one{{3, 1, 16, 16}, 0, 16};
  const TinyModel model = attention_model(one);
  const std::vector<std::vector<uint32_t>> pages = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {0, 11}};
  std::vector<Step> steps = one_sequence_in_chunks(640, 10, std::vector<size_t>{32});
  for (Step& step : steps) step.pages = pages;
  for (uint32_t n = 2; n <= 12; n += 5) {
    Step step;
    step.pages = pages;
    for (uint32_t i = 0; i <= n; ++i) {
      step.token.push_back(static_cast<int32_t>((n * 101 + i * 17) % 1000));
      step.sequence.push_back(i == 0 ? 1 : 0);
      step.position.push_back(i == 0 ? 64 + n : 639 + i);
      step.outputs.push_back(i);
    }
    steps.push_back(step);
  }
  expect_reference_bits(GetParam(), attention_program(model, one), model, steps, 64);  // a pool for far more splits
}

struct ExpertCase {
  uint32_t n_expert, n_used;
  const char* type;
  uint32_t n_embd, n_ff;
};

TEST_P(Ops, Experts) {
  for (const ExpertCase& one : {ExpertCase{2, 1, "F32", 1, 1},
                                {5, 2, "Q4_0", 32, 64},
                                {8, 8, "BF16", 17, 33},
                                {17, 3, "Q8_0", 64, 32},
                                {4, 2, "Q6_K", 256, 256},
                                {130, 9, "F16", 15, 16}}) {
    TinyModel model(one.n_expert);
    model.add("embd", "F32", {one.n_embd, kVocab});
    model.add("norm", "F32", {one.n_embd});
    model.add("router", "F32", {one.n_embd, one.n_expert});
    model.add("gate_up", one.type, {one.n_embd, 2 * one.n_ff, one.n_expert});
    model.add("gate_up_bias", "F32", {2 * one.n_ff, one.n_expert});
    model.add("down", one.type, {one.n_ff, one.n_embd, one.n_expert});
    model.add("down.scale", "F32", {one.n_expert});
    model.open();
    for (int kind = 0; kind < 6; ++kind) {
      SCOPED_TRACE(testing::Message() << one.type << " experts " << one.n_used << " of " << one.n_expert << " kind "
                                      << kind);
      Program program;
      program.n_expert_used = one.n_used;
      const Buf x = add_embed(program, model.weight("embd"));
      const Buf router = add_product(program, x, model.weight("router"));
      program.ops.push_back(RouteOp{.logits = router,
                                    .n_expert = one.n_expert,
                                    .n_used = one.n_used,
                                    .gating = static_cast<Gating>(kind % 3),
                                    .normalize = kind < 3,
                                    .scale = kind % 2 ? 2.5f : 1.0f});
      LinearOp in;
      in.in = x, in.norm = Norm{NormKind::kRms, 1e-5f, model.vector("norm"), {}};
      for (uint32_t part : {0u, 1u}) {
        Weight half = model.experts("gate_up");
        half.first_row = part * one.n_ff, half.n_rows = one.n_ff;
        const Vector bias{.tensor = &model.tensor("gate_up_bias"), .first = part * one.n_ff, .n = one.n_ff};
        const Buf out = add_buffer(program, part ? "up" : "gate", one.n_ff, RowSet::kPairs);
        in.products.push_back({.weight = half, .scale = {}, .bias = bias, .out = out});
      }
      program.ops.push_back(in);
      const Buf down = add_product(program, in.products[1].out, model.experts("down"), RowSet::kPairs);
      LinearOp& last = std::get<LinearOp>(program.ops.back());
      last.activation = Activation::kSilu, last.gate = in.products[0].out;
      last.products[0].scale = model.vector("down.scale");
      const Buf out = add_buffer(program, "combined", one.n_embd);
      program.ops.push_back(CombineOp{.in = down, .n_used = one.n_used, .residual = kind % 2 ? x : kNoBuf, .out = out});
      finish(program, out);
      expect_reference_bits(GetParam(), program, model, steps_of_all_sizes(kVocab));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(Ops, RoutingPrefersTheLowestIndexOfEqualLogits) {
  TinyModel model(1);
  std::vector<float> logits(size_t{20} * kVocab);
  for (float& x : logits) x = static_cast<float>(model.below(3));
  model.add("embd", {20, kVocab}, logits);
  model.add("w", "F32", {20, 7, 20});
  model.open();
  for (Gating gating : {Gating::kSoftmax, Gating::kSigmoid, Gating::kSoftmaxOfChosen}) {
    Program program;
    program.n_expert_used = 4;
    const Buf x = add_embed(program, model.weight("embd"));
    program.ops.push_back(RouteOp{.logits = x, .n_expert = 20, .n_used = 4, .gating = gating});
    const Buf pairs = add_product(program, x, model.experts("w"), RowSet::kPairs);
    const Buf out = add_buffer(program, "combined", 7);
    program.ops.push_back(CombineOp{.in = pairs, .n_used = 4, .out = out});
    finish(program, out);
    expect_reference_bits(GetParam(), program, model, steps_of_all_sizes(kVocab));
  }
}

TEST_P(Ops, SmallExpertWeightsAreNotBlownUpByNormalising) {
  TinyModel model(2);
  std::vector<float> logits = model.uniform(size_t{20} * kVocab, 8);
  for (float& x : logits) x = x - 16.0f;  // sigmoids between 4e-11 and 3e-4: sums on both sides of 2^-14
  logits[0] = -100.0f;
  model.add("embd", {20, kVocab}, logits);
  model.add("w", "F32", {20, 7, 20});
  model.open();
  Program program;
  program.n_expert_used = 4;
  const Buf x = add_embed(program, model.weight("embd"));
  program.ops.push_back(RouteOp{.logits = x, .n_expert = 20, .n_used = 4, .gating = Gating::kSigmoid});
  const Buf pairs = add_product(program, x, model.experts("w"), RowSet::kPairs);
  const Buf out = add_buffer(program, "combined", 7);
  program.ops.push_back(CombineOp{.in = pairs, .n_used = 4, .out = out});
  finish(program, out);
  expect_reference_bits(GetParam(), program, model, steps_of_all_sizes(kVocab));
}

}  // namespace
}  // namespace lamina

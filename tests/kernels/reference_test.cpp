// The reference against naive formulas in double: products of every type, norms, rotation, attention over pages, splits
// and windows, routing; and the scalar functions against libm's doubles. In: tiny models with random weights. Out:
// tolerances a few times what float32 rounding explains; bit-equality is between devices, not here.
#include "kernels/reference/reference_device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/reference/math.h"
#include "tests/tiny_model.h"

namespace lamina {
namespace {

using Doubles = std::vector<double>;

/// |got - want| in units of the last place of want as float32.
double ulps(float got, double want) {
  int exponent = 0;
  std::frexp(want, &exponent);
  return std::fabs(got - want) / std::ldexp(1.0, std::max(exponent - 24, -149));
}

/// The greatest error of f over floats in [lo, hi], densely sampled by bits.
template <class F, class G>
double max_ulps(F f, G exact, float lo, float hi) {
  double worst = 0;
  const uint32_t last = std::bit_cast<uint32_t>(std::max(hi, -lo));
  for (uint32_t bits = std::bit_cast<uint32_t>(1e-20f); bits <= last; bits += 1009) {
    for (float x : {std::bit_cast<float>(bits), -std::bit_cast<float>(bits)})
      if (x >= lo && x <= hi) worst = std::max(worst, ulps(f(x), exact(static_cast<double>(x))));
  }
  return worst;
}

TEST(ReferenceMath, ExpIsCloseAndExactWhereItMustBe) {
  EXPECT_LE(max_ulps(
                reference::exp, [](double x) { return std::exp(x); }, -87, 88),
            0.87);
  EXPECT_EQ(reference::exp(0.0f), 1.0f);
  EXPECT_EQ(reference::exp(-0.0f), 1.0f);
  EXPECT_GT(reference::exp(-87.0f), 0.0f);
  for (float x : {std::nextafter(-87.0f, -88.0f), -1e30f, -reference::kInfinity}) EXPECT_EQ(reference::exp(x), 0.0f);
  EXPECT_EQ(reference::exp(1e30f), reference::exp(88.0f));
}

TEST(ReferenceMath, TanhIsClose) {
  EXPECT_LE(max_ulps(
                reference::tanh, [](double x) { return std::tanh(x); }, -20, 20),
            1.4);
  EXPECT_EQ(reference::tanh(1e30f), 1.0f);
  EXPECT_EQ(reference::tanh(-reference::kInfinity), -1.0f);
  EXPECT_TRUE(std::signbit(reference::tanh(-0.0f)));
}

TEST(ReferenceMath, GatesAreClose) {
  const auto silu = [](double x) { return x / (1 + std::exp(-x)); };
  const auto gelu = [](double x) {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  };
  EXPECT_LE(max_ulps(reference::silu, silu, -80, 80), 2.5);
  EXPECT_LE(max_ulps(
                reference::sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, -80, 80),
            2.5);
  EXPECT_LE(max_ulps(reference::gelu, gelu, -1, 20), 4.0);
  for (float x = -12; x < -1; x += 0x1p-7f) EXPECT_NEAR(reference::gelu(x), gelu(x), 3e-7);  // 1 + tanh cancels there
  EXPECT_EQ(reference::relu(-2.0f), 0.0f);
  EXPECT_EQ(reference::relu(2.0f), 2.0f);
}

TEST(ReferenceMath, SumsGoThroughSixteenLanesAndATree) {
  std::vector<float> x(19, 0.0f);
  x[0] = 1.0f, x[16] = 0x1p-24f, x[8] = 0x1p-24f;  // 1 + 2^-24 rounds to 1, twice
  EXPECT_EQ(reference::sum(x), 1.0f);
  x[16] = 0, x[9] = 0x1p-24f;  // lanes 8 and 9 meet lanes 0 and 1 first
  EXPECT_EQ(reference::sum(x), 1.0f);
  x[8] = 0, x[1] = 0x1p-24f;  // lanes 1 and 9 become 2^-23 before they meet lane 0
  EXPECT_EQ(reference::sum(x), 1.0f + 0x1p-23f);
}

std::vector<float> result(const Program& program, const TinyModel& model, const Step& step, uint32_t n_pages = 1) {
  return run(*compile(*make_reference_device(), program, model, n_pages), step);
}

/// Normalised mean square error.
double nmse(const std::vector<float>& got, const Doubles& want) {
  EXPECT_EQ(got.size(), want.size());
  double error = 0, power = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    power += want[i] * want[i];
  }
  return error / power;
}

Doubles slice(const std::vector<float>& x, size_t first, size_t n) {
  return {x.begin() + static_cast<ptrdiff_t>(first), x.begin() + static_cast<ptrdiff_t>(first + n)};
}

/// y[r] = sum of w[r][c] x[c].
Doubles times(const std::vector<float>& w, const Doubles& x) {
  Doubles y(w.size() / x.size());
  for (size_t i = 0; i < w.size(); ++i) y[i / x.size()] += w[i] * x[i % x.size()];
  return y;
}

/// x as a type's products see it: rounded to a / 127 of 32 columns' greatest value, to bf16, or not at all.
Doubles as_seen(const gguf::Type& type, Doubles x) {
  if (type.id == gguf::TypeId::kBF16)
    for (double& value : x) value = gguf::bf16_to_f32(gguf::f32_to_bf16(static_cast<float>(value)));
  if (type.kind != gguf::TypeKind::kQuant) return x;
  for (size_t first = 0; first < x.size(); first += 32) {
    double amax = 0;
    for (size_t i = first; i < first + 32; ++i) amax = std::max(amax, std::fabs(x[i]));
    const float a = static_cast<float>(amax) / 127.0f, inverse = 127.0f / static_cast<float>(amax);
    for (size_t i = first; i < first + 32; ++i) x[i] = a * std::nearbyint(static_cast<float>(x[i]) * inverse);
  }
  return x;
}

void normalise(Doubles& x, NormKind kind, double eps, const Doubles& weight, const Doubles& bias) {
  const double n = static_cast<double>(x.size());
  const double mean = kind == NormKind::kLayer ? std::accumulate(x.begin(), x.end(), 0.0) / n : 0.0;
  double squares = 0;
  for (double value : x) squares += (value - mean) * (value - mean);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = (x[i] - mean) / std::sqrt(squares / n + eps) * weight[i] + (bias.empty() ? 0.0 : bias[i]);
}

TEST(Reference, ProductsOfEveryType) {
  for (const gguf::Type& type : gguf::types()) {
    if (type.kind == gguf::TypeKind::kData) continue;
    SCOPED_TRACE(type.name);
    const uint32_t n_cols = type.kind == gguf::TypeKind::kFloat ? 77 : 3 * std::max(64u, type.block);
    TinyModel model(1);
    model.add("embd", "F32", {n_cols, 5});
    model.add("w", type.name, {n_cols, 20});
    model.open();
    Program program;
    Weight some = model.weight("w");
    some.first_row = 3, some.n_rows = 17;
    finish(program, add_product(program, add_embed(program, model.weight("embd")), some));
    const std::vector<float> w = model.values("w"), embd = model.values("embd");
    Doubles want;
    for (int32_t token : {4, 1}) {
      const Doubles y = times(w, as_seen(type, slice(embd, static_cast<size_t>(token) * n_cols, n_cols)));
      want.insert(want.end(), y.begin() + 3, y.end());
    }
    EXPECT_LE(nmse(result(program, model, one_sequence({4, 1})), want), 1e-12);
  }
}

TEST(Reference, EmbeddingsNormsGatesAndEpilogues) {
  constexpr uint32_t kWidth = 35;
  TinyModel model(2);
  model.add("embd", "F16", {kWidth, 5});
  model.add("positions", "F32", {kWidth, 4});
  model.add("norm", "F32", {kWidth});
  model.add("norm_bias", "F32", {kWidth});
  model.add("gate", "F32", {kWidth, 9});
  model.add("up", "F32", {kWidth, 9});
  model.add("down", "F32", {9, kWidth});
  model.add("down.scale", "F32", {1});
  model.add("down_bias", "F32", {kWidth});
  model.open();
  for (Activation activation : {Activation::kSilu, Activation::kGelu, Activation::kRelu, Activation::kReluSquared}) {
    for (NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
      const Norm norm{kind, 1e-5f, model.vector("norm"),
                      kind == NormKind::kLayer ? model.vector("norm_bias") : Vector{}};
      Program program;
      const Buf x = add_embed(program, model.weight("embd"));
      EmbedOp& embed = std::get<EmbedOp>(program.ops[0]);
      embed.scale = 3, embed.positions = model.weight("positions");
      const Buf gate = add_product(program, x, model.weight("gate"));
      std::get<LinearOp>(program.ops.back()).norm = norm;
      const Buf up = add_product(program, x, model.weight("up"));
      const Buf down = add_product(program, up, model.weight("down"));
      LinearOp& last = std::get<LinearOp>(program.ops.back());
      last.activation = activation, last.gate = gate;
      Product& product = last.products[0];
      product.scale = model.vector("down.scale"), product.bias = model.vector("down_bias");
      product.multiply = 0.5f, product.residual = x, product.softcap = 3;
      const Buf normed = add_buffer(program, "normed", kWidth);
      program.ops.push_back(NormOp{.in = down, .norm = norm, .residual = x, .out = normed});
      finish(program, normed);

      const Doubles weight = slice(model.values("norm"), 0, kWidth);
      const Doubles bias = kind == NormKind::kLayer ? slice(model.values("norm_bias"), 0, kWidth) : Doubles{};
      Doubles want;
      for (size_t t : {0, 1, 2}) {
        const Step step = one_sequence({2, 0, 4});
        Doubles embedded = slice(model.values("embd"), static_cast<size_t>(step.token[t]) * kWidth, kWidth);
        for (size_t i = 0; i < kWidth; ++i) embedded[i] = 3 * embedded[i] + model.values("positions")[t * kWidth + i];
        Doubles inner = embedded;
        normalise(inner, kind, 1e-5, weight, bias);
        Doubles z = times(model.values("gate"), inner);
        const Doubles u = times(model.values("up"), embedded);
        for (size_t i = 0; i < z.size(); ++i) {
          const double g = z[i];
          if (activation == Activation::kSilu) z[i] = g / (1 + std::exp(-g)) * u[i];
          if (activation == Activation::kRelu) z[i] = std::max(g, 0.0) * u[i];
          if (activation == Activation::kReluSquared) z[i] = g > 0 ? g * g * u[i] : 0;
          if (activation == Activation::kGelu)
            z[i] = 0.5 * g * (1 + std::tanh(std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g))) * u[i];
        }
        Doubles y = times(model.values("down"), z);
        for (size_t i = 0; i < y.size(); ++i) {
          y[i] = (y[i] * model.values("down.scale")[0] + model.values("down_bias")[i]) * 0.5 + embedded[i];
          y[i] = 3 * std::tanh(y[i] / 3);
        }
        normalise(y, kind, 1e-5, weight, bias);
        for (size_t i = 0; i < y.size(); ++i) want.push_back(y[i] + embedded[i]);
      }
      EXPECT_LE(nmse(result(program, model, one_sequence({2, 0, 4})), want), 1e-12);
    }
  }
}

/// A layer of attention in double: q, k, v are products of the embeddings of all tokens, at positions 0, 1, ...
struct NaiveAttention {
  uint32_t n_head, n_head_kv, dim_k, dim_v;
  const Rope& rope;
  double scale, cap;
  uint32_t window;
  Temperature temperature;

  void rotate(double* head, uint32_t position) const {
    const size_t n_pairs = rope.inv_freq.size();
    for (size_t i = 0; i < n_pairs; ++i) {
      const bool halves = rope.pairs == RopePairs::kHalves;
      double &a = head[halves ? i : 2 * i], &b = head[halves ? i + n_pairs : 2 * i + 1];
      const double c = std::cos(position * rope.inv_freq[i]) * rope.magnitude;
      const double s = std::sin(position * rope.inv_freq[i]) * rope.magnitude;
      const double x0 = a, x1 = b;
      a = x0 * c - x1 * s, b = x0 * s + x1 * c;
    }
  }

  Doubles row(const std::vector<Doubles>& q, const std::vector<Doubles>& k, const std::vector<Doubles>& v,
              uint32_t position) const {
    Doubles out(n_head * dim_v);
    double growth = 1;
    for (uint32_t at = temperature.length, n = 1; at <= position; at += temperature.length, ++n)
      growth += temperature.scale * std::log((n + 1.0) / n);  // ln(1 + n), step by step
    for (uint32_t h = 0; h < n_head; ++h) {
      const uint32_t h_kv = h / (n_head / n_head_kv);
      Doubles p(position + 1);
      double total = 0;
      for (uint32_t at = 0; at <= position; ++at) {
        if (window != 0 && position - at >= window) continue;
        for (uint32_t d = 0; d < dim_k; ++d) p[at] += q[position][h * dim_k + d] * k[at][h_kv * dim_k + d];
        p[at] = std::exp(cap * std::tanh(p[at] * scale * growth / cap));
        total += p[at];
      }
      for (uint32_t at = 0; at <= position; ++at)
        for (uint32_t d = 0; d < dim_v; ++d) out[h * dim_v + d] += p[at] / total * v[at][h_kv * dim_v + d];
    }
    return out;
  }
};

TEST(Reference, AttentionOverPagesSplitsAndWindows) {
  constexpr uint32_t kDimK = 12, kDimV = 7, kHead = 4, kHeadKv = 2, kTokens = 540;
  TinyModel model(3);
  model.add("embd", "F32", {20, 40});
  model.add("q", "F32", {20, kHead * kDimK});
  model.add("k", "F32", {20, kHeadKv * kDimK});
  model.add("v", "F32", {20, kHeadKv * kDimV});
  model.add("q_norm", "F32", {kDimK});
  model.open();
  for (uint32_t window : {0u, 100u}) {
    const Temperature temperature = window != 0 ? Temperature{0.3, 50} : Temperature{};
    Program program;
    program.ropes = {{.pairs = window != 0 ? RopePairs::kHalves : RopePairs::kAdjacent,
                      .inv_freq = {1, 0.1, 0.01},
                      .magnitude = 1.1}};
    program.kv = {{kHeadKv, kDimK, kDimV}};
    const Buf x = add_embed(program, model.weight("embd"));
    const Buf q = add_product(program, x, model.weight("q"));
    const Buf k = add_product(program, x, model.weight("k"));
    const Buf v = add_product(program, x, model.weight("v"));
    const Norm norm{NormKind::kRms, 1e-6f, model.vector("q_norm"), {}};
    program.ops.push_back(AppendOp{.q = q, .k = k, .v = v, .n_head = kHead, .q_norm = norm, .k_norm = {}, .rope = 0});
    const Buf out = add_buffer(program, "attended", kHead * kDimV);
    program.ops.push_back(AttendOp{.q = q,
                                   .out = out,
                                   .n_head = kHead,
                                   .scale = 0.7f,
                                   .softcap = 5,
                                   .window = window,
                                   .temperature = temperature});
    finish(program, out);

    const NaiveAttention naive{kHead, kHeadKv, kDimK, kDimV, program.ropes[0], 0.7, 5, window, temperature};
    const std::vector<int32_t> tokens = some_tokens(kTokens, 40);
    const auto exact_f16 = [](double value) {
      return double{gguf::f16_to_f32(gguf::f32_to_f16(static_cast<float>(value)))};
    };
    std::vector<Doubles> qs, ks, vs;
    for (uint32_t t = 0; t < kTokens; ++t) {
      const Doubles e = slice(model.values("embd"), static_cast<size_t>(tokens[t]) * 20, 20);
      qs.push_back(times(model.values("q"), e)), ks.push_back(times(model.values("k"), e)),
          vs.push_back(times(model.values("v"), e));
      for (uint32_t h = 0; h < kHead; ++h) {
        Doubles head(qs[t].begin() + h * kDimK, qs[t].begin() + (h + 1) * kDimK);
        normalise(head, NormKind::kRms, 1e-6, slice(model.values("q_norm"), 0, kDimK), {});
        naive.rotate(head.data(), t);
        std::ranges::copy(head, qs[t].begin() + h * kDimK);
      }
      for (uint32_t h = 0; h < kHeadKv; ++h) naive.rotate(&ks[t][h * kDimK], t);
      std::ranges::transform(ks[t], ks[t].begin(), exact_f16);
      std::ranges::transform(vs[t], vs[t].begin(), exact_f16);
    }

    // Two sequences side by side, in chunks of 15; the pages of the first lie in descending order.
    const std::unique_ptr<Executable> executable = compile(*make_reference_device(), program, model, 18);
    std::vector<float> got;
    Doubles want;
    for (uint32_t first = 0; first < kTokens; first += 15) {
      Step step;
      step.pages = {{8, 7, 6, 5, 4, 3, 2, 1, 0}, {9, 10, 11, 12, 13, 14, 15, 16, 17}};
      for (uint32_t s : {0u, 1u})
        for (uint32_t t = first; t < first + 15; ++t) {
          step.token.push_back(tokens[t]), step.position.push_back(t), step.sequence.push_back(s);
          step.outputs.push_back(static_cast<uint32_t>(step.outputs.size()));
        }
      const std::vector<float> rows = run(*executable, step);
      if (first % 45 != 0) continue;
      got.insert(got.end(), rows.begin(), rows.end());
      for (uint32_t t : step.position) {
        const Doubles row = naive.row(qs, ks, vs, t);
        want.insert(want.end(), row.begin(), row.end());
      }
    }
    EXPECT_LE(nmse(got, want), 1e-7);  // k in float32 may round to another f16 than k in double
  }
}

TEST(Reference, ExpertsAreChosenWeightedAndCombined) {
  constexpr uint32_t kExpert = 6, kUsed = 3, kWidth = 32;
  TinyModel model(4);
  model.add("embd", "F32", {kWidth, 8});
  model.add("router", "F32", {kWidth, kExpert});
  model.add("w", "Q8_0", {kWidth, kWidth, kExpert});
  model.add("w.scale", "F32", {kExpert});
  model.add("w_bias", "F32", {kWidth, kExpert});
  model.open();
  const std::vector<float> w = model.values("w");
  for (Gating gating : {Gating::kSoftmax, Gating::kSigmoid, Gating::kSoftmaxOfChosen}) {
    for (bool normalise_weights : {false, true}) {
      Program program;
      program.n_expert_used = kUsed;
      const Buf x = add_embed(program, model.weight("embd"));
      const Buf logits = add_product(program, x, model.weight("router"));
      program.ops.push_back(RouteOp{.logits = logits,
                                    .n_expert = kExpert,
                                    .n_used = kUsed,
                                    .gating = gating,
                                    .normalize = normalise_weights,
                                    .scale = 2});
      const Buf pairs = add_product(program, x, model.experts("w"), RowSet::kPairs);
      Product& product = std::get<LinearOp>(program.ops.back()).products[0];
      product.scale = model.vector("w.scale"), product.bias = model.vector("w_bias");
      const Buf out = add_buffer(program, "combined", kWidth);
      program.ops.push_back(CombineOp{.in = pairs, .n_used = kUsed, .residual = x, .out = out});
      finish(program, out);

      Doubles want;
      for (size_t token : {3u, 5u}) {
        const Doubles e = slice(model.values("embd"), token * kWidth, kWidth);
        Doubles p = times(model.values("router"), e);
        for (double& value : p) value = gating == Gating::kSigmoid ? 1 / (1 + std::exp(-value)) : std::exp(value);
        if (gating == Gating::kSoftmax) {
          const double total = std::accumulate(p.begin(), p.end(), 0.0);
          for (double& value : p) value /= total;
        }
        Doubles sorted = p;
        std::ranges::sort(sorted, std::greater<>());
        const double chosen = sorted[0] + sorted[1] + sorted[2];
        const bool divide = normalise_weights || gating == Gating::kSoftmaxOfChosen;
        Doubles y = e;
        for (uint32_t expert = 0; expert < kExpert; ++expert) {
          if (p[expert] < sorted[2]) continue;
          const std::vector<float> matrix(w.begin() + expert * kWidth * kWidth,
                                          w.begin() + (expert + 1) * kWidth * kWidth);
          const Doubles part = times(matrix, as_seen(*product.weight.tensor->type, e));
          for (uint32_t i = 0; i < kWidth; ++i)
            y[i] += 2 * p[expert] / (divide ? chosen : 1.0) *
                    (part[i] * model.values("w.scale")[expert] + model.values("w_bias")[expert * kWidth + i]);
        }
        want.insert(want.end(), y.begin(), y.end());
      }
      EXPECT_LE(nmse(result(program, model, one_sequence({3, 5})), want), 1e-12);
    }
  }
}

TEST(Reference, ArgmaxAndRoutingPreferTheLowestIndexOfEqualValues) {
  TinyModel model(5);
  model.add("embd", {4, 1}, {-1, -0.5f, -0.5f, -0.5f});
  model.add("w", {4, 1, 4}, {1, 0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 8, 0, 0, 0});
  model.open();
  Program program;
  program.n_expert_used = 2;
  const Buf x = add_embed(program, model.weight("embd"));
  program.ops.push_back(RouteOp{.logits = x, .n_expert = 4, .n_used = 2});
  const Buf pairs = add_product(program, x, model.experts("w"), RowSet::kPairs);
  const Buf out = add_buffer(program, "combined", 1);
  program.ops.push_back(CombineOp{.in = pairs, .n_used = 2, .out = out});
  finish(program, out);
  EXPECT_EQ(result(program, model, one_sequence({0}))[0], 0.5f * -2 + 0.5f * -4);  // experts 1 and 2

  Program plain;
  finish(plain, add_embed(plain, model.weight("embd")));
  const std::unique_ptr<Executable> executable = compile(*make_reference_device(), plain, model);
  executable->run(one_sequence({0}));
  EXPECT_EQ(executable->argmax(0), 1);
}

TEST(Reference, ExpertWeightsAreDividedByNoLessThanTheSmallestNormalHalf) {
  TinyModel model(6);
  model.add("embd", {2, 1}, {-20, -20});
  model.add("w", {2, 1, 2}, {-1, 0, -1, 0});
  model.open();
  Program program;
  program.n_expert_used = 2;
  const Buf x = add_embed(program, model.weight("embd"));
  program.ops.push_back(RouteOp{.logits = x, .n_expert = 2, .n_used = 2, .gating = Gating::kSigmoid});
  const Buf pairs = add_product(program, x, model.experts("w"), RowSet::kPairs);
  const Buf out = add_buffer(program, "combined", 1);
  program.ops.push_back(CombineOp{.in = pairs, .n_used = 2, .out = out});
  finish(program, out);
  const double weight = 1 / (1 + std::exp(20.0)) / 0x1p-14;
  EXPECT_NEAR(result(program, model, one_sequence({0}))[0], 2 * weight * 20, 1e-9);
}

}  // namespace
}  // namespace lamina

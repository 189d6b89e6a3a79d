// Ops to measure: see op_cases.h.
#include "engine/op_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <set>

namespace lamina {
namespace {

/// Replaces the tensors of an op.
struct Replacer {
  const std::function<const gguf::Tensor*(const gguf::Tensor&)>& replace;

  void weight(Weight& w) const { w.tensor = replace(*w.tensor); }
  void vector(Vector& v) const {
    if (v) v.tensor = replace(*v.tensor);
  }
  void norm(Norm& norm) const {
    vector(norm.weight);
    vector(norm.bias);
  }
  void norm(std::optional<Norm>& n) const {
    if (n) norm(*n);
  }

  void operator()(EmbedOp& op) const {
    weight(op.table);
    if (op.positions) weight(*op.positions);
  }
  void operator()(LinearOp& op) const {
    norm(op.norm);
    for (Product& product : op.products) {
      weight(product.weight);
      vector(product.scale);
      vector(product.bias);
    }
  }
  void operator()(NormOp& op) const { norm(op.norm); }
  void operator()(AppendOp& op) const {
    norm(op.q_norm);
    norm(op.k_norm);
  }
  template <class Other>
  void operator()(Other&) const {}
};

/// Builds the program of llama_1b_layer.
class LayerBuilder {
 public:
  LayerBuilder(const gguf::Type& type, SyntheticWeights& weights) : type_(type), weights_(weights) {}

  Program build() {
    const Buf x = buffer("x", kEmbd), q = buffer("q", kEmbd), k = buffer("k", kKv), v = buffer("v", kKv);
    const Buf attended = buffer("attended", kEmbd), gate = buffer("gate", kFf), up = buffer("up", kFf);
    const Buf last = buffer("last", kEmbd, RowSet::kOutputs);
    program_.n_vocab = kVocab;
    program_.logits = buffer("logits", kVocab, RowSet::kOutputs);
    program_.kv = {{kHeadKv, kHeadDim, kHeadDim}};
    Rope rope;
    for (uint32_t i = 0; i < kHeadDim / 2; ++i) rope.inv_freq.push_back(std::pow(1e4, -2.0 * i / kHeadDim));
    program_.ropes = {rope};

    auto& ops = program_.ops;
    ops.push_back(EmbedOp{.table = matrix("token_embd", kEmbd, kVocab), .out = x});
    ops.push_back(
        LinearOp{.in = x,
                 .norm = norm(),
                 .products = {product("attn_q", kEmbd, q), product("attn_k", kEmbd, k), product("attn_v", kEmbd, v)}});
    ops.push_back(AppendOp{.q = q, .k = k, .v = v, .n_head = kHead, .rope = 0});
    ops.push_back(AttendOp{.q = q, .out = attended, .n_head = kHead, .scale = 0.125f});
    ops.push_back(LinearOp{.in = attended, .products = {product("attn_output", kEmbd, x, x)}});
    ops.push_back(LinearOp{
        .in = x, .norm = norm(), .products = {product("ffn_gate", kEmbd, gate), product("ffn_up", kEmbd, up)}});
    ops.push_back(LinearOp{
        .in = up, .activation = Activation::kSilu, .gate = gate, .products = {product("ffn_down", kFf, x, x)}});
    ops.push_back(NormOp{.in = attended, .norm = norm(), .residual = x, .out = x});
    ops.push_back(SelectOp{.in = x, .out = last});
    ops.push_back(LinearOp{.in = last, .norm = norm(), .products = {product("output", kEmbd, program_.logits)}});
    ops.push_back(ArgmaxOp{.logits = program_.logits});
    return std::move(program_);
  }

 private:
  // TinyLlama-1.1B.
  static constexpr uint32_t kEmbd = 2048, kFf = 5632, kHead = 32, kHeadKv = 4, kHeadDim = 64, kVocab = 32000;
  static constexpr uint32_t kKv = kHeadKv * kHeadDim;

  Buf buffer(const char* name, uint32_t width, RowSet rows = RowSet::kTokens) {
    program_.buffers.push_back({name, width, rows});
    return static_cast<Buf>(program_.buffers.size() - 1);
  }
  Weight matrix(const char* name, uint32_t n_cols, uint32_t n_rows) {
    return {&weights_.add(name, type_, {n_cols, n_rows}), 0, n_rows, n_cols};
  }
  Norm norm() {
    const gguf::Tensor& weight = weights_.add("norm", *gguf::find_type("F32"), {kEmbd});
    return {NormKind::kRms, 1e-5f, {&weight, 0, kEmbd}};
  }
  Product product(const char* name, uint32_t n_cols, Buf out, Buf residual = kNoBuf) {
    const uint32_t n_rows = program_.buffers[static_cast<size_t>(out)].width;
    return {.weight = matrix(name, n_cols, n_rows), .residual = residual, .out = out};
  }

  const gguf::Type& type_;
  SyntheticWeights& weights_;
  Program program_;
};

/// "attn_q" for "blk.3.attn_q.weight".
std::string short_name(const gguf::Tensor& tensor) {
  std::string name = tensor.name;
  if (name.starts_with("blk.")) name.erase(0, name.find('.', 4) + 1);
  if (name.ends_with(".weight")) name.erase(name.size() - 7);
  return name;
}

/// Writes an op's name and shape.
struct Labeller {
  const Program& program;

  const Buffer& buffer(Buf buf) const { return program.buffers[static_cast<size_t>(buf)]; }
  std::string width(Buf buf) const { return fmt::to_string(buffer(buf).width); }

  OpLabel operator()(const EmbedOp& op) const { return {"embed", width(op.out), op.table.tensor->type->name}; }
  OpLabel operator()(const LinearOp& op) const {
    OpLabel label{op.norm ? "linear norm" : op.activation ? "linear gate" : "linear", "", ""};
    uint32_t n_rows = 0;
    std::set<std::string> types;
    for (const Product& product : op.products) {
      const std::string name = fmt::format(" {}", short_name(*product.weight.tensor));
      if (!label.name.ends_with(name)) label.name += name;  // parts of a fused tensor share it
      n_rows += product.weight.n_rows;
      types.insert(product.weight.tensor->type->name);
    }
    const uint32_t n_expert = op.products.front().weight.n_expert;
    label.shape = fmt::format("{} x {}{}", buffer(op.in).width, n_rows,
                              n_expert > 1 ? fmt::format(", {} experts", n_expert) : "");
    label.types = fmt::format("{}", fmt::join(types, " "));
    return label;
  }
  OpLabel operator()(const NormOp& op) const { return {"norm", width(op.in), ""}; }
  OpLabel operator()(const AppendOp& op) const {
    return {"append", fmt::format("{} + 2 x {} heads", op.n_head, program.kv[op.layer].n_head_kv), ""};
  }
  OpLabel operator()(const AttendOp& op) const {
    return {"attend", fmt::format("{} heads on {}", op.n_head, program.kv[op.layer].n_head_kv), ""};
  }
  OpLabel operator()(const RouteOp& op) const { return {"route", fmt::format("{} of {}", op.n_used, op.n_expert), ""}; }
  OpLabel operator()(const CombineOp& op) const {
    return {"combine", fmt::format("{} x {}", op.n_used, width(op.out)), ""};
  }
  OpLabel operator()(const SelectOp& op) const { return {"select", width(op.out), ""}; }
  OpLabel operator()(const ArgmaxOp& op) const { return {"argmax", width(op.logits), ""}; }
};

}  // namespace

Program llama_1b_layer(const gguf::Type& type, SyntheticWeights& weights) {
  return LayerBuilder(type, weights).build();
}

Program one_product(const gguf::Type& type, SyntheticWeights& weights) {
  constexpr uint32_t kCols = 2048, kRows = 4096;
  Program program;
  program.buffers = {{"x", kCols, RowSet::kTokens}, {"y", kRows, RowSet::kTokens}};
  const gguf::Tensor& w = weights.add("w", type, {kCols, kRows});
  program.ops.push_back(LinearOp{.in = 0, .products = {{.weight = {&w, 0, kRows, kCols}, .out = 1}}});
  return program;
}

Program with_separate_norms(const Program& program) {
  Program separate = program;
  separate.ops.clear();
  for (const Op& op : program.ops) {
    const auto* fused = std::get_if<LinearOp>(&op);
    if (fused == nullptr || !fused->norm) {
      separate.ops.push_back(op);
      continue;
    }
    LinearOp linear = *fused;
    const Buffer& in = program.buffers[static_cast<size_t>(fused->in)];
    // One more buffer for each width and kind of rows.
    const auto is_normed = [&](const Buffer& b) {
      return b.name == "normed" && b.width == in.width && b.rows == in.rows;
    };
    auto found = std::ranges::find_if(separate.buffers, is_normed);
    if (found == separate.buffers.end()) found = separate.buffers.insert(found, {"normed", in.width, in.rows});
    linear.in = static_cast<Buf>(found - separate.buffers.begin());
    linear.norm.reset();
    separate.ops.push_back(NormOp{.in = fused->in, .norm = *fused->norm, .out = linear.in});
    separate.ops.push_back(linear);
  }
  return separate;
}

Op with_tensors(Op op, const std::function<const gguf::Tensor*(const gguf::Tensor&)>& replace) {
  std::visit(Replacer{replace}, op);
  return op;
}

std::vector<size_t> distinct_ops(const Program& program) {
  std::vector<size_t> distinct;
  std::set<std::string> seen;
  for (size_t i = 0; i < program.ops.size(); ++i) {
    std::deque<gguf::Tensor> nameless;
    Op op = with_tensors(program.ops[i], [&](const gguf::Tensor& tensor) {
      nameless.push_back(tensor);
      nameless.back().name.clear();
      return &nameless.back();
    });
    std::string layer;  // its shape may differ
    if (auto* append = std::get_if<AppendOp>(&op)) {
      layer = label_of(program, op).shape;
      append->layer = 0;
    } else if (auto* attend = std::get_if<AttendOp>(&op)) {
      layer = label_of(program, op).shape;
      attend->layer = 0;
    }
    if (seen.insert(to_text(program, op) + layer).second) distinct.push_back(i);
  }
  return distinct;
}

OpLabel label_of(const Program& program, const Op& op) { return std::visit(Labeller{program}, op); }

}  // namespace lamina

// The forward pass, top to bottom: embed, then per layer attention and feed-forward (or experts), then the head. Every
// choice is a trait of the architecture's row, consulted in one place, or the presence of a tensor.
#include "model/builder.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "model/refuse.h"
#include "model/rope.h"
#include "model/weights.h"

namespace lamina {
namespace {

class Builder {
 public:
  Builder(const gguf::File& file, const Config& config, const BuildOptions& options)
      : file_(file), c_(config), row_(*config.architecture), weights_(file), n_ctx_(options.n_ctx) {
    program_.n_vocab = c_.n_vocab;
    program_.n_expert_used = std::max(1U, c_.n_expert_used);
    x_ = buffer("x", c_.n_embd);
    add_ropes();
  }

  Program build() {
    embed();
    for (layer_ = 0; layer_ < c_.n_layer; ++layer_) {
      attention_in();
      if (parallel()) feed_forward_in();  // before attention has changed x
      attention_out();
      if (!parallel()) feed_forward_in();
      feed_forward_out();
    }
    head();
    return std::move(program_);
  }

 private:
  // The pass.

  void embed() {
    EmbedOp op{.table = weights_.matrix("token_embd.weight", c_.n_embd, Rows::all(c_.n_vocab)), .out = x_};
    op.scale = static_cast<float>(c_.embedding_scale);
    if (row_.learned_positions) op.positions = weights_.leading_rows("position_embd.weight", c_.n_embd, n_ctx_);
    emit(std::move(op));
  }

  /// q, k, v from norm(x)
  void attention_in() {
    const LayerConfig& layer = c_.layers[layer_];
    q_ = buffer("q", layer.n_head * c_.head_dim_k);
    k_ = buffer("k", layer.n_head_kv * c_.head_dim_k);
    v_ = buffer("v", layer.n_head_kv * c_.head_dim_v);
    emit_products(input_norm("attn_norm"), qkv());
  }

  /// x += attn_output(attend(q, k, v))
  void attention_out() {
    const LayerConfig& layer = c_.layers[layer_];
    const Buf attended = buffer("attended", layer.n_head * c_.head_dim_v);
    program_.kv.push_back({layer.n_head_kv, c_.head_dim_k, c_.head_dim_v});
    emit(AppendOp{.layer = layer_,
                  .q = q_,
                  .k = k_,
                  .v = v_,
                  .n_head = layer.n_head,
                  .q_norm = qk_norm("attn_q_norm", q_),
                  .k_norm = qk_norm("attn_k_norm", k_),
                  .rope = !layer.rotated   ? -1
                          : layer.windowed ? window_rope_
                                           : rope_});
    emit(AttendOp{.layer = layer_,
                  .q = q_,
                  .out = attended,
                  .n_head = layer.n_head,
                  .scale = static_cast<float>(c_.attention_scale),
                  .softcap = static_cast<float>(c_.attention_softcap),
                  .window = layer.windowed ? c_.window : 0,
                  .temperature = {c_.temperature_scale, c_.rope_ctx_original}});
    emit(LinearOp{.in = attended, .products = {onto_x("attn_output", attended)}});
    norm_onto_x("post_attention_norm");
  }

  void feed_forward_in() { c_.n_expert > 0 ? experts_in() : dense_in(); }

  void feed_forward_out() {
    c_.n_expert > 0 ? experts_out() : dense_out();
    norm_onto_x("post_ffw_norm");
  }

  /// gate, up from norm(x); up alone where nothing is gated
  void dense_in() {
    const uint32_t n_ff = c_.layers[layer_].n_ff;
    gate_ = row_.gated ? buffer("gate", n_ff) : kNoBuf;
    up_ = buffer("up", n_ff);
    emit_products(ffn_norm(), gate_up("ffn_up", "ffn_gate", "ffn_up", gate_, up_));
  }

  /// x += ffn_down(act(gate) * up), or without a gate ffn_down(act(up))
  void dense_out() { emit(activated(gate_, up_, onto_x("ffn_down", up_))); }

  /// The choice of experts, and gate_e, up_e from norm(x) for each expert e of the choice, or for all tokens
  void experts_in() {
    refuse_separate_experts();
    const Buf router = buffer("router", c_.n_expert);
    emit_products(ffn_norm(), {product("ffn_gate_inp", x_, router)});
    if (c_.n_ff_shared > 0) {
      gate_ = row_.gated ? buffer("shared_gate", c_.n_ff_shared) : kNoBuf;
      up_ = buffer("shared_up", c_.n_ff_shared);
      emit_products(ffn_norm(), gate_up("ffn_up_shexp", "ffn_gate_shexp", "ffn_up_shexp", gate_, up_));
    }
    emit(RouteOp{.logits = router,
                 .n_expert = c_.n_expert,
                 .n_used = c_.n_expert_used,
                 .scale = static_cast<float>(c_.residual_scale)});
    expert_gate_ = row_.gated ? buffer("expert_gate", c_.n_ff_expert, RowSet::kPairs) : kNoBuf;
    expert_up_ = buffer("expert_up", c_.n_ff_expert, RowSet::kPairs);
    emit_products(ffn_norm(), gate_up("ffn_gate_up_exps", "ffn_gate_exps", "ffn_up_exps", expert_gate_, expert_up_));
  }

  /// x += sum over the chosen experts e of weight_e * down_e(act(gate_e) * up_e), + the same of the shared one
  void experts_out() {
    const Buf down = buffer("expert_down", c_.n_embd, RowSet::kPairs);
    emit(activated(expert_gate_, expert_up_, product("ffn_down_exps", expert_up_, down)));
    emit(CombineOp{.in = down, .n_used = c_.n_expert_used, .residual = residual(), .out = sublayer_out()});
    if (c_.n_ff_shared == 0) return;
    Product shared = onto_x("ffn_down_shexp", up_);
    shared.residual = sublayer_out();
    emit(activated(gate_, up_, std::move(shared)));
  }

  /// logits = softcap(output(norm(x)) * scale), for the rows that ask for logits
  void head() {
    const Buf last = buffer("last", c_.n_embd, RowSet::kOutputs);
    const Buf logits = buffer("logits", c_.n_vocab, RowSet::kOutputs);
    const char* matrix = weights_.has("output.weight") ? "output" : "token_embd";  // absent: tied to the embeddings
    Product output = weights_.product(matrix, c_.n_embd, Rows::all(c_.n_vocab), logits);
    output.multiply = static_cast<float>(c_.logit_scale);
    output.softcap = static_cast<float>(c_.final_softcap);
    emit(SelectOp{.in = x_, .out = last});
    emit(LinearOp{.in = last,
                  .norm = weights_.norm("output_norm", row_.norm, c_.norm_eps, c_.n_embd),
                  .products = {std::move(output)}});
    emit(ArgmaxOp{.logits = logits});
    program_.logits = logits;
  }

  // Products of a layer.

  /// Three matrices, or attn_qkv with the rows of q, then k, then v.
  std::vector<Product> qkv() const {
    if (!weights_.has(name("attn_qkv") + ".weight")) {
      return {product("attn_q", x_, q_), product("attn_k", x_, k_), product("attn_v", x_, v_)};
    }
    const uint32_t n_q = width(q_), n_k = width(k_), n_v = width(v_), total = n_q + n_k + n_v;
    return {weights_.product(name("attn_qkv"), c_.n_embd, {0, n_q, total}, q_),
            weights_.product(name("attn_qkv"), c_.n_embd, {n_q, n_k, total}, k_),
            weights_.product(name("attn_qkv"), c_.n_embd, {n_q + n_k, n_v, total}, v_)};
  }

  /// Gate and up from two matrices, or from `fused` with the rows of the gate first; up alone where nothing is gated.
  std::vector<Product> gate_up(const char* fused, const char* gate_name, const char* up_name, Buf gate, Buf up) const {
    if (gate == kNoBuf) return {product(up_name, x_, up)};
    const uint32_t n = width(up), n_expert = n_expert_of(up);
    const bool is_fused = weights_.n_rows(name(fused) + ".weight") == uint64_t{2} * n * n_expert;
    if (!is_fused) return {product(gate_name, x_, gate), product(up_name, x_, up)};
    return {weights_.product(name(fused), c_.n_embd, {0, n, 2 * n}, gate, n_expert),
            weights_.product(name(fused), c_.n_embd, {n, n, 2 * n}, up, n_expert)};
  }

  /// All rows of this layer's matrix `base`, from `in` to `out`.
  Product product(const char* base, Buf in, Buf out) const {
    return weights_.product(name(base), width(in), Rows::all(width(out)), out, n_expert_of(out));
  }

  /// The last product of a sub-layer.
  Product onto_x(const char* base, Buf in) {
    Product result = product(base, in, sublayer_out());
    result.multiply = static_cast<float>(c_.residual_scale);
    result.residual = residual();
    return result;
  }

  // Where a sub-layer's result goes: onto x at once, or first through a norm of its own.

  bool normed_after() const { return row_.norm_place != NormPlace::kBefore; }
  Buf sublayer_out() { return normed_after() ? buffer("sublayer", c_.n_embd) : x_; }
  Buf residual() const { return normed_after() ? kNoBuf : x_; }
  void norm_onto_x(const char* base) {
    if (normed_after()) emit(NormOp{.in = sublayer_out(), .norm = norm(base, c_.n_embd), .residual = x_, .out = x_});
  }

  // Parts.

  Norm norm(const char* base, uint32_t n) const { return weights_.norm(name(base), row_.norm, c_.norm_eps, n); }

  std::optional<Norm> input_norm(const char* base) const {
    return row_.norm_place == NormPlace::kAfter ? std::nullopt : std::optional(norm(base, c_.n_embd));
  }

  std::optional<Norm> ffn_norm() const { return input_norm(parallel() && !has("ffn_norm") ? "attn_norm" : "ffn_norm"); }

  /// What the append applies to each head of q or k. A norm over all of them is an op of its own, emitted here.
  std::optional<Norm> qk_norm(const char* base, Buf buf) {
    switch (row_.qk_norm) {
      case QkNorm::kNone: return std::nullopt;
      case QkNorm::kHeads: return head_norm(base, buf);
      case QkNorm::kOptionalHeads: return has(base) ? std::optional(head_norm(base, buf)) : std::nullopt;
      case QkNorm::kRow: emit(NormOp{.in = buf, .norm = norm(base, width(buf)), .out = buf}); return std::nullopt;
    }
    return std::nullopt;
  }

  /// One weight for all heads, or one for each.
  Norm head_norm(const char* base, Buf buf) const {
    const bool one = weights_.n_rows(name(base) + ".weight") == 1;
    return norm(base, one ? c_.head_dim_k : width(buf));
  }

  /// Whether this layer's feed-forward reads the x that attention read.
  bool parallel() const {
    switch (row_.parallel) {
      case Parallel::kNever: return false;
      case Parallel::kAlways: return true;
      case Parallel::kByKey: return c_.parallel;
      case Parallel::kWithoutFfnNorm: return !has("ffn_norm");
    }
    return false;
  }

  /// One rope for layers that see all positions and one for windowed layers, where such layers rotate.
  void add_ropes() {
    const auto any = [&](bool windowed) {
      return std::ranges::any_of(c_.layers, [&](const auto& l) { return l.rotated && l.windowed == windowed; });
    };
    if (any(false)) rope_ = add(make_rope(c_, rope_factors(file_, c_, n_ctx_)));
    if (any(true)) window_rope_ = add(make_window_rope(c_, rope_factors(file_, c_, n_ctx_)));
  }

  int32_t add(Rope rope) {
    program_.ropes.push_back(std::move(rope));
    return static_cast<int32_t>(program_.ropes.size() - 1);
  }

  /// The buffer of that name and shape, shared by all layers.
  Buf buffer(const char* base, uint32_t n_cols, RowSet rows = RowSet::kTokens) {
    auto& buffers = program_.buffers;
    const auto same = [&](const Buffer& b) { return b.name == base && b.width == n_cols; };
    const auto found = std::ranges::find_if(buffers, same);
    if (found != buffers.end()) return static_cast<Buf>(found - buffers.begin());
    buffers.push_back({base, n_cols, rows});
    return static_cast<Buf>(buffers.size() - 1);
  }

  uint32_t width(Buf buf) const { return program_.buffers[static_cast<size_t>(buf)].width; }
  bool pairs(Buf buf) const { return program_.buffers[static_cast<size_t>(buf)].rows == RowSet::kPairs; }
  uint32_t n_expert_of(Buf out) const { return pairs(out) ? c_.n_expert : 1; }
  std::string name(const char* base) const { return fmt::format("blk.{}.{}", layer_, base); }
  bool has(const char* base) const { return weights_.has(name(base) + ".weight"); }
  void emit(Op op) { program_.ops.push_back(std::move(op)); }

  /// Products of norm(x). They join the op before when that makes products of the same norm(x).
  void emit_products(std::optional<Norm> norm, std::vector<Product> products) {
    auto* last = std::get_if<LinearOp>(&program_.ops.back());
    const bool same = last != nullptr && last->in == x_ && last->norm.has_value() == norm.has_value() &&
                      (!norm || last->norm->weight.tensor == norm->weight.tensor);
    if (same) std::ranges::move(products, std::back_inserter(last->products));
    else emit(LinearOp{.in = x_, .norm = std::move(norm), .products = std::move(products)});
  }

  LinearOp activated(Buf gate, Buf up, Product product) const {
    return {.in = up, .activation = row_.activation, .gate = gate, .products = {std::move(product)}};
  }

  /// Files from before 2024 hold each expert in a tensor of its own.
  void refuse_separate_experts() const {
    const std::string old = name("ffn_up.0.weight");
    if (!weights_.has(old)) return;
    refuse(file_, "tensor {} holds one expert; lamina needs all experts of a layer in one tensor {}", old,
           name("ffn_up_exps.weight"));
  }

  const gguf::File& file_;
  const Config& c_;
  const Architecture& row_;
  const Weights weights_;
  const uint32_t n_ctx_;
  Program program_;
  uint32_t layer_ = 0;
  Buf x_ = kNoBuf;
  Buf q_ = kNoBuf, k_ = kNoBuf, v_ = kNoBuf;       // of the layer's attention
  Buf gate_ = kNoBuf, up_ = kNoBuf;                // of its dense feed-forward, or of its shared expert
  Buf expert_gate_ = kNoBuf, expert_up_ = kNoBuf;  // of its chosen experts
  int32_t rope_ = -1, window_rope_ = -1;
};

}  // namespace

Program build_program(const gguf::File& file, const Config& config, const BuildOptions& options) {
  return Builder(file, config, options).build();
}

}  // namespace lamina

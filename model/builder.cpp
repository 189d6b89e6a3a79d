// The forward pass, top to bottom: embed, then per layer attention and feed-forward (or experts), then the head. Every
// choice is a trait of the architecture's row, consulted in one place, or the presence of a tensor.
#include "model/builder.h"

#include <algorithm>
#include <cmath>
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
      attention();
      if (c_.n_expert > 0) experts();
      else feed_forward();
    }
    head();
    return std::move(program_);
  }

 private:
  // The pass.

  void embed() {
    EmbedOp op{.table = weights_.matrix("token_embd.weight", c_.n_embd, Rows::all(c_.n_vocab)), .out = x_};
    if (row_.scaled_embeddings) op.scale = static_cast<float>(std::sqrt(1.0 * c_.n_embd));
    if (row_.learned_positions) op.positions = weights_.leading_rows("position_embd.weight", c_.n_embd, n_ctx_);
    emit(std::move(op));
  }

  /// x += attn_output(attend(norm(x)))
  void attention() {
    const LayerConfig& layer = c_.layers[layer_];
    const Buf q = buffer("q", layer.n_head * c_.head_dim_k);
    const Buf k = buffer("k", layer.n_head_kv * c_.head_dim_k);
    const Buf v = buffer("v", layer.n_head_kv * c_.head_dim_v);
    const Buf attended = buffer("attended", layer.n_head * c_.head_dim_v);
    program_.kv.push_back({layer.n_head_kv, c_.head_dim_k, c_.head_dim_v});

    emit(LinearOp{.in = x_, .norm = norm("attn_norm"), .products = qkv(q, k, v)});
    AppendOp append{.layer = layer_, .q = q, .k = k, .v = v, .n_head = layer.n_head};
    if (row_.qk_norm) append.q_norm = head_norm("attn_q_norm"), append.k_norm = head_norm("attn_k_norm");
    append.rope = layer.windowed ? window_rope_ : rope_;
    emit(std::move(append));
    emit(AttendOp{.layer = layer_,
                  .q = q,
                  .out = attended,
                  .n_head = layer.n_head,
                  .scale = static_cast<float>(c_.attention_scale),
                  .softcap = static_cast<float>(c_.attention_softcap),
                  .window = layer.windowed ? c_.window : 0});
    emit(LinearOp{.in = attended, .products = {onto_x("attn_output", attended)}});
    norm_onto_x("post_attention_norm");
  }

  /// x += ffn_down(act(gate(norm(x))) * up(norm(x))), or without a gate ffn_down(act(up(norm(x))))
  void feed_forward() {
    const uint32_t n_ff = c_.layers[layer_].n_ff;
    const Buf gate = row_.gated ? buffer("gate", n_ff) : kNoBuf;
    const Buf up = buffer("up", n_ff);
    emit(LinearOp{.in = x_, .norm = norm("ffn_norm"), .products = gate_up("ffn_up", "ffn_gate", "ffn_up", gate, up)});
    emit(LinearOp{.in = up, .activation = row_.activation, .gate = gate, .products = {onto_x("ffn_down", up)}});
    norm_onto_x("post_ffw_norm");
  }

  /// x += sum over the chosen experts e of weight_e * down_e(act(gate_e(norm(x))) * up_e(norm(x)))
  void experts() {
    refuse_separate_experts();
    const Buf router = buffer("router", c_.n_expert);
    const Buf gate = row_.gated ? buffer("expert_gate", c_.n_ff_expert, RowSet::kPairs) : kNoBuf;
    const Buf up = buffer("expert_up", c_.n_ff_expert, RowSet::kPairs);
    const Buf down = buffer("expert_down", c_.n_embd, RowSet::kPairs);
    emit(LinearOp{.in = x_, .norm = norm("ffn_norm"), .products = {product("ffn_gate_inp", x_, router)}});
    emit(RouteOp{.logits = router, .n_expert = c_.n_expert, .n_used = c_.n_expert_used});
    emit(LinearOp{.in = x_,
                  .norm = norm("ffn_norm"),
                  .products = gate_up("ffn_gate_up_exps", "ffn_gate_exps", "ffn_up_exps", gate, up)});
    emit(LinearOp{
        .in = up, .activation = row_.activation, .gate = gate, .products = {product("ffn_down_exps", up, down)}});
    emit(CombineOp{.in = down, .n_used = c_.n_expert_used, .residual = residual(), .out = sublayer_out()});
    norm_onto_x("post_ffw_norm");
  }

  /// logits = softcap(output(norm(x))), for the rows that ask for logits
  void head() {
    const Buf last = buffer("last", c_.n_embd, RowSet::kOutputs);
    const Buf logits = buffer("logits", c_.n_vocab, RowSet::kOutputs);
    const char* matrix = weights_.has("output.weight") ? "output" : "token_embd";  // absent: tied to the embeddings
    Product output = weights_.product(matrix, c_.n_embd, Rows::all(c_.n_vocab), logits);
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
  std::vector<Product> qkv(Buf q, Buf k, Buf v) const {
    if (!weights_.has(name("attn_qkv") + ".weight")) {
      return {product("attn_q", x_, q), product("attn_k", x_, k), product("attn_v", x_, v)};
    }
    const uint32_t n_q = width(q), n_k = width(k), n_v = width(v), total = n_q + n_k + n_v;
    return {weights_.product(name("attn_qkv"), c_.n_embd, {0, n_q, total}, q),
            weights_.product(name("attn_qkv"), c_.n_embd, {n_q, n_k, total}, k),
            weights_.product(name("attn_qkv"), c_.n_embd, {n_q + n_k, n_v, total}, v)};
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
    result.residual = residual();
    return result;
  }

  // Where a sub-layer's result goes: onto x at once, or first through a norm of its own.

  bool normed_after() const { return row_.norm_place == NormPlace::kAround; }
  Buf sublayer_out() { return normed_after() ? buffer("sublayer", c_.n_embd) : x_; }
  Buf residual() const { return normed_after() ? kNoBuf : x_; }
  void norm_onto_x(const char* base) {
    if (normed_after()) emit(NormOp{.in = sublayer_out(), .norm = norm(base), .residual = x_, .out = x_});
  }

  // Parts.

  Norm norm(const char* base) const { return weights_.norm(name(base), row_.norm, c_.norm_eps, c_.n_embd); }
  Norm head_norm(const char* base) const { return weights_.norm(name(base), row_.norm, c_.norm_eps, c_.head_dim_k); }

  /// One rope for layers that see all positions and one for windowed layers, where such layers exist.
  void add_ropes() {
    if (row_.rope_layers == RopeLayers::kNone) return;
    const std::vector<float> factors = rope_factors(file_, c_, n_ctx_);
    const auto windowed = [](const LayerConfig& layer) { return layer.windowed; };
    if (!std::ranges::all_of(c_.layers, windowed)) rope_ = add(make_rope(c_, factors));
    if (std::ranges::any_of(c_.layers, windowed)) window_rope_ = add(make_window_rope(c_, factors));
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
  void emit(Op op) { program_.ops.push_back(std::move(op)); }

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
  int32_t rope_ = -1, window_rope_ = -1;
};

}  // namespace

Program build_program(const gguf::File& file, const Config& config, const BuildOptions& options) {
  return Builder(file, config, options).build();
}

}  // namespace lamina

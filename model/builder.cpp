// The forward pass, top to bottom: embed, then per layer attention and feed-forward (or experts), then the head. Every choice
// is a trait of the architecture's row, consulted in one place, or the presence of a tensor.
#include "model/builder.h"

#include <cmath>

#include "gguf/error.h"
#include "model/rope.h"
#include "model/weights.h"

namespace lamina {
namespace {

class Builder {
 public:
  Builder(const gguf::File& file, const Config& config, const BuildOptions& options)
      : c_(config), row_(*config.architecture), weights_(file), n_ctx_(options.n_ctx) {
    program_.n_vocab = c_.n_vocab;
    program_.n_expert_used = std::max(1u, c_.n_expert_used);
    x_ = buffer("x", c_.n_embd);
    add_ropes(rope_factors(file, c_, n_ctx_));
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
  // --- the pass ---

  void embed() {
    EmbedOp op{.table = weights_.matrix("token_embd.weight", c_.n_embd, Rows::all(c_.n_vocab)), .out = x_};
    if (row_.scaled_embeddings) op.scale = std::sqrt(static_cast<float>(c_.n_embd));
    if (row_.learned_positions) op.positions = position_table();
    emit(std::move(op));
  }

  /// x += attend(norm(x))
  void attention() {
    const LayerConfig& layer = c_.layers[layer_];
    const Buf q = buffer("q", layer.n_head * c_.head_dim_k);
    const Buf k = buffer("k", layer.n_head_kv * c_.head_dim_k);
    const Buf v = buffer("v", layer.n_head_kv * c_.head_dim_v);
    const Buf attended = buffer("attended", layer.n_head * c_.head_dim_v);
    program_.kv.push_back({layer.n_head_kv, c_.head_dim_k, c_.head_dim_v});

    emit(LinearOp{.in = x_, .norm = norm("attn_norm"), .products = qkv(q, k, v)});
    AppendOp append{.layer = layer_, .q = q, .k = k, .v = v, .n_head = layer.n_head};
    if (row_.qk_norm) {
      append.q_norm = head_norm("attn_q_norm");
      append.k_norm = head_norm("attn_k_norm");
    }
    append.rope = layer.windowed ? window_rope_ : rope_;
    emit(std::move(append));
    emit(AttendOp{.layer = layer_,
                  .q = q,
                  .out = attended,
                  .n_head = layer.n_head,
                  .scale = static_cast<float>(c_.attention_scale),
                  .softcap = static_cast<float>(c_.attention_softcap),
                  .window = layer.windowed ? c_.window : 0});
    add_to_residual(LinearOp{.in = attended}, "attn_output", "post_attention_norm");
  }

  /// x += down(act(gate(norm(x))) * up(norm(x))), or without a gate down(act(up(norm(x))))
  void feed_forward() {
    const uint32_t n_ff = c_.layers[layer_].n_ff;
    const Buf up = buffer("up", n_ff);
    const Buf gate = row_.gated ? buffer("gate", n_ff) : kNoBuf;
    emit(LinearOp{.in = x_, .norm = norm("ffn_norm"), .products = gate_up("ffn_gate", "ffn_up", n_ff, gate, up)});
    add_to_residual(LinearOp{.in = up, .activation = row_.activation, .gate = gate}, "ffn_down", "post_ffw_norm");
  }

  /// x += sum over the chosen experts of weight * down(act(gate(norm(x))) * up(norm(x)))
  void experts() {
  }

  void head() {
    const Buf last = buffer("last", c_.n_embd, RowSet::kOutputs);
    program_.logits = buffer("logits", c_.n_vocab, RowSet::kOutputs);
    emit(SelectOp{x_, last});
    const char* name = weights_.has("output.weight") ? "output" : "token_embd";
    Product logits = weights_.product(name, c_.n_embd, Rows::all(c_.n_vocab), program_.logits);
    logits.softcap = static_cast<float>(c_.final_softcap);
    emit(LinearOp{.in = last, .norm = weights_.norm("output_norm", row_.norm, c_.norm_eps, c_.n_embd),
                  .products = {logits}});
    emit(ArgmaxOp{program_.logits});
  }
};
}  // namespace
}  // namespace lamina

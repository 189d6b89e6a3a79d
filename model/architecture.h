// The architectures that lamina runs, one row of traits each. In: the name in general.architecture. Out: the row.
// A row says in what a family differs from plain llama: the defaults of the members below are llama. No architecture is
// named anywhere else. A trait of type std::optional stands for a metadata key: the key counts only where the row has
// the trait, and the trait's value holds when the file lacks the key.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "kernels/program.h"

namespace lamina {

/// Where a sub-layer (attention, feed-forward) is normalised.
enum class NormPlace : uint8_t {
  kBefore,  ///< x + f(norm(x))
  kAround,  ///< x + norm(f(norm(x)))
  kAfter    ///< x + norm(f(x))
};

/// Layers whose feed-forward reads the x that attention read: x + attention(x) + feed_forward(x). Without a norm of its
/// own the feed-forward takes attention's.
enum class Parallel : uint8_t {
  kNever,
  kAlways,
  kByKey,          ///< use_parallel_residual
  kWithoutFfnNorm  ///< where the layer has no ffn_norm
};

/// Norms of q and k, before rope.
enum class QkNorm : uint8_t {
  kNone,
  kHeads,          ///< each head by itself; the weight is one for all heads or one a head
  kOptionalHeads,  ///< the same, where the file has the weights
  kRow             ///< all heads together
};

/// Which layers rotate queries and keys.
enum class RopeLayers : uint8_t {
  kAll,
  kNone,
  kThreeOfFour,  ///< all but every fourth
  kWindowed,     ///< the windowed ones; in a model without windows all
  kFinetuned     ///< all, unless rope.scaling.finetuned says false
};

/// What logit_scale does to the logits.
enum class LogitScale : uint8_t {
  kNone,
  kMultiplies,
  kDivides  ///< n_embd / 256 when missing
};

/// How often experts take the place of the dense feed-forward.
enum class ExpertUse : uint8_t {
  kNever,
  kOptional,  ///< when the file counts experts
  kAlways
};

/// Layers that see only the last `size` positions.
struct Window {
  uint32_t size = 0;     ///< attention.sliding_window when missing; 0: no layer is windowed
  uint32_t period = 0;   ///< attention.sliding_window_pattern when missing: every period-th layer sees all positions
  double freq_base = 0;  ///< rope.freq_base_swa when missing; 0: as rope.freq_base
  bool unscaled_rope = false;  ///< rope scaling is for the layers that see all positions
  uint32_t n_layer = 0;        ///< only the size with so many layers is windowed; 0: all are
};

/// One row of the table.
struct Architecture {
  std::string_view name;
  NormKind norm = NormKind::kRms;
  NormPlace norm_place = NormPlace::kBefore;
  Parallel parallel = Parallel::kNever;
  QkNorm qk_norm = QkNorm::kNone;
  RopePairs rope_pairs = RopePairs::kAdjacent;
  bool sections_pair_halves = false;  ///< a file with rope.dimension_sections pairs halves instead
  RopeLayers rope_layers = RopeLayers::kAll;
  Activation activation = Activation::kSilu;
  bool gated = true;                      ///< feed-forward: down(act(gate x) * up x), else down(act(up x))
  bool learned_positions = false;         ///< position_embd rows are added to the embeddings
  bool scaled_embeddings = false;         ///< embeddings are multiplied by sqrt(n_embd)
  bool attention_temperature = false;     ///< attention.temperature_scale, by rope.scaling.original_context_length
  ExpertUse experts = ExpertUse::kNever;  ///< weights of the chosen are divided by their sum
  bool shared_expert = false;             ///< beside them one for all tokens: expert_shared_feed_forward_length
  LogitScale logit_scale = LogitScale::kNone;
  uint32_t wide_scale_layers = 0;  ///< the size with so many layers scales scores by 1/sqrt(n_embd / n_head)
  std::optional<Window> window = {};
  std::optional<double> embedding_scale = {};    ///< embedding_scale
  std::optional<double> residual_scale = {};     ///< residual_scale, of sub-layers; 0: 1.4 / sqrt(n_layer)
  std::optional<double> attention_scale = {};    ///< attention.scale; 0: 1/sqrt(head_dim)
  std::optional<double> attention_softcap = {};  ///< attn_logit_softcapping; 0: none
  std::optional<double> final_softcap = {};      ///< final_logit_softcapping; 0: none
};

/// All rows.
std::span<const Architecture> architectures();

/// The row of `name`; nullptr when lamina does not run it.
const Architecture* find_architecture(std::string_view name);

}  // namespace lamina

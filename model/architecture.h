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
  kAround   ///< x + norm(f(norm(x)))
};

/// Which layers rotate queries and keys.
enum class RopeLayers : uint8_t { kAll, kNone };

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
};

/// One row of the table.
struct Architecture {
  std::string_view name;
  NormKind norm = NormKind::kRms;
  NormPlace norm_place = NormPlace::kBefore;
  RopePairs rope_pairs = RopePairs::kAdjacent;
  RopeLayers rope_layers = RopeLayers::kAll;
  Activation activation = Activation::kSilu;
  bool gated = true;                      ///< feed-forward: down(act(gate x) * up x), else down(act(up x))
  bool qk_norm = false;                   ///< each head of q and k is normalised before rope
  bool learned_positions = false;         ///< position_embd rows are added to the embeddings
  bool scaled_embeddings = false;         ///< embeddings are multiplied by sqrt(n_embd)
  ExpertUse experts = ExpertUse::kNever;  ///< weights of the chosen are divided by their sum
  uint32_t wide_scale_layers = 0;         ///< the size with so many layers scales scores by 1/sqrt(n_embd / n_head)
  std::optional<Window> window = {};
  std::optional<double> attention_scale = {};    ///< attention.scale; 0: 1/sqrt(head_dim)
  std::optional<double> attention_softcap = {};  ///< attn_logit_softcapping; 0: none
  std::optional<double> final_softcap = {};      ///< final_logit_softcapping; 0: none
};

/// All rows.
std::span<const Architecture> architectures();

/// The row of `name`; nullptr when lamina does not run it.
const Architecture* find_architecture(std::string_view name);

}  // namespace lamina

// What the metadata of a GGUF file says about a model's shape, read once and checked. In: a File. Out: a Config whose
// values are all within the ranges of the key table in config.cpp; products of two of them fit 32 bits where the
// builder needs them.
#pragma once
#include <cstdint>
#include <vector>

#include "gguf/file.h"
#include "model/architecture.h"

namespace lamina {

/// What may differ from layer to layer.
struct LayerConfig {
  uint32_t n_head = 0;
  uint32_t n_head_kv = 0;  ///< divides n_head
  uint32_t n_ff = 0;
  bool windowed = false;  ///< sees only the last `window` positions
  bool rotated = false;   ///< rotates queries and keys
};

struct Config {
  const Architecture* architecture = nullptr;
  uint32_t n_layer = 0;
  std::vector<LayerConfig> layers;  ///< [n_layer]
  uint32_t n_vocab = 0;             ///< rows of token_embd.weight
  uint32_t n_embd = 0;
  uint32_t n_ctx_train = 0;  ///< context_length
  uint32_t head_dim_k = 0, head_dim_v = 0;
  double norm_eps = 0;

  uint32_t n_expert = 0;  ///< 0: dense
  uint32_t n_expert_used = 0;
  uint32_t n_ff_expert = 0;
  uint32_t n_ff_shared = 0;  ///< of the expert that all tokens use; 0: there is none

  uint32_t window = 0;
  double attention_scale = 0;                                       ///< of the scores q k^T
  double attention_softcap = 0, final_softcap = 0;                  ///< 0: none
  double temperature_scale = 0;                                     ///< of attention; 0: none
  double embedding_scale = 1, residual_scale = 1, logit_scale = 0;  ///< what each is multiplied by
  bool parallel = false;                                            ///< use_parallel_residual

  uint32_t n_rot = 0;  ///< rotated dimensions of a head
  RopePairs rope_pairs = RopePairs::kAdjacent;
  double freq_base = 10000;
  bool rope_finetuned = true;
  double freq_base_window = 0;     ///< of windowed layers
  double rope_factor = 1;          ///< how many times longer the context became
  uint32_t rope_ctx_original = 0;  ///< the context length before that
  double rope_attn_factor = 1;     ///< multiplies cos and sin
  bool yarn = false;               ///< high frequencies keep their speed
  double yarn_ext_factor = 1, yarn_attn_factor = 1, yarn_beta_fast = 32, yarn_beta_slow = 1;
  double yarn_log_multiplier = 0;
};

/// Reads and checks the metadata; throws Error(kModel) with one line that names the key and its value.
Config read_config(const gguf::File& file);

/// The context size when none is asked for: what the model was trained for, but at most 4096 tokens.
uint32_t default_n_ctx(const Config& config);

}  // namespace lamina

// The table of architectures. To add one: add a row, and a golden program under tests/golden.
#include "model/architecture.h"

#include <algorithm>
#include <iterator>

namespace lamina {
namespace {

constexpr auto kHalves = RopePairs::kHalves;
constexpr auto kLayer = NormKind::kLayer;

// clang-format off
constexpr Architecture kArchitectures[] = {
    {.name = "llama", .experts = ExpertUse::kOptional, .attention_scale = 0.0},
    {.name = "mistral3", .attention_temperature = true, .experts = ExpertUse::kOptional},
    {.name = "smollm3", .rope_layers = RopeLayers::kThreeOfFour},
    {.name = "qwen2", .rope_pairs = kHalves},
    {.name = "qwen3", .qk_norm = QkNorm::kHeads, .rope_pairs = kHalves},
    {.name = "qwen3moe", .qk_norm = QkNorm::kHeads, .rope_pairs = kHalves, .experts = ExpertUse::kAlways},
    {.name = "phi3", .rope_pairs = kHalves},

    {.name = "gemma", .rope_pairs = kHalves, .activation = Activation::kGelu, .scaled_embeddings = true},
    {.name = "gemma2", .norm_place = NormPlace::kAround, .rope_pairs = kHalves, .activation = Activation::kGelu,
     .scaled_embeddings = true, .wide_scale_layers = 46, .window = Window{.size = 4096, .period = 2},
     .attention_softcap = 50.0, .final_softcap = 30.0},
    {.name = "gemma3", .norm_place = NormPlace::kAround, .qk_norm = QkNorm::kHeads, .rope_pairs = kHalves,
     .activation = Activation::kGelu, .scaled_embeddings = true, .wide_scale_layers = 62,
     .window = Window{.period = 6, .freq_base = 10000, .unscaled_rope = true}, .final_softcap = 0.0},
    {.name = "glm4", .norm_place = NormPlace::kAround, .sections_pair_halves = true},

    {.name = "olmo2", .norm_place = NormPlace::kAfter, .qk_norm = QkNorm::kRow, .rope_pairs = kHalves,
     .window = Window{.period = 4, .unscaled_rope = true}},
    {.name = "exaone4", .norm_place = NormPlace::kAfter, .qk_norm = QkNorm::kHeads, .rope_pairs = kHalves,
     .rope_layers = RopeLayers::kWindowed, .window = Window{.size = 4096, .period = 4, .n_layer = 64}},

    {.name = "granite", .rope_layers = RopeLayers::kFinetuned, .experts = ExpertUse::kOptional, .shared_expert = true,
     .logit_scale = LogitScale::kDivides, .embedding_scale = 1.0, .residual_scale = 1.0, .attention_scale = 0.0},
    {.name = "granitemoe", .experts = ExpertUse::kOptional, .shared_expert = true,
     .logit_scale = LogitScale::kDivides, .embedding_scale = 1.0, .residual_scale = 1.0, .attention_scale = 0.0},
    {.name = "minicpm", .rope_layers = RopeLayers::kFinetuned, .experts = ExpertUse::kOptional,
     .logit_scale = LogitScale::kDivides, .embedding_scale = 12.0, .residual_scale = 0.0},

    {.name = "command-r", .norm = kLayer, .parallel = Parallel::kAlways, .qk_norm = QkNorm::kOptionalHeads,
     .logit_scale = LogitScale::kMultiplies},
    {.name = "cohere2", .norm = kLayer, .parallel = Parallel::kAlways, .rope_layers = RopeLayers::kWindowed,
     .logit_scale = LogitScale::kMultiplies, .window = Window{.size = 4096, .period = 4}},

    {.name = "stablelm", .norm = kLayer, .parallel = Parallel::kWithoutFfnNorm, .qk_norm = QkNorm::kOptionalHeads,
     .rope_pairs = kHalves},
    {.name = "phi2", .norm = kLayer, .parallel = Parallel::kAlways, .rope_pairs = kHalves,
     .activation = Activation::kGelu, .gated = false},
    {.name = "gptneox", .norm = kLayer, .parallel = Parallel::kByKey, .rope_pairs = kHalves,
     .activation = Activation::kGelu, .gated = false},
    {.name = "starcoder2", .norm = kLayer, .rope_pairs = kHalves, .activation = Activation::kGelu, .gated = false},
    {.name = "nemotron", .norm = kLayer, .rope_pairs = kHalves, .activation = Activation::kReluSquared, .gated = false},
    {.name = "gpt2", .norm = kLayer, .rope_layers = RopeLayers::kNone, .activation = Activation::kGelu, .gated = false,
     .learned_positions = true},
};
// clang-format on

}  // namespace

std::span<const Architecture> architectures() { return kArchitectures; }

const Architecture* find_architecture(std::string_view name) {
  const auto found = std::ranges::find(kArchitectures, name, &Architecture::name);
  return found == std::end(kArchitectures) ? nullptr : found;
}

}  // namespace lamina

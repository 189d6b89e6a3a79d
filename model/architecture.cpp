// The table of architectures. To add one: add a row, and a golden program under tests/golden.
#include "model/architecture.h"

#include <algorithm>
#include <iterator>

namespace lamina {
namespace {

constexpr auto kHalves = RopePairs::kHalves;

// clang-format off
constexpr Architecture kArchitectures[] = {
    {.name = "llama", .experts = ExpertUse::kOptional, .attention_scale = 0.0},
    {.name = "qwen2", .rope_pairs = kHalves},
    {.name = "qwen3", .rope_pairs = kHalves, .qk_norm = true},
    {.name = "qwen3moe", .rope_pairs = kHalves, .qk_norm = true, .experts = ExpertUse::kAlways},
    {.name = "gemma2", .norm_place = NormPlace::kAround, .rope_pairs = kHalves, .activation = Activation::kGelu,
     .scaled_embeddings = true, .wide_scale_layers = 46, .window = Window{.size = 4096, .period = 2},
     .attention_softcap = 50.0, .final_softcap = 30.0},
    {.name = "gemma3", .norm_place = NormPlace::kAround, .rope_pairs = kHalves, .activation = Activation::kGelu,
     .qk_norm = true, .scaled_embeddings = true, .wide_scale_layers = 62,
     .window = Window{.period = 6, .freq_base = 10000, .unscaled_rope = true}, .final_softcap = 0.0},
    {.name = "phi3", .rope_pairs = kHalves},
    {.name = "gpt2", .norm = NormKind::kLayer, .rope_layers = RopeLayers::kNone, .activation = Activation::kGelu,
     .gated = false, .learned_positions = true},
};
// clang-format on

}  // namespace

std::span<const Architecture> architectures() { return kArchitectures; }

const Architecture* find_architecture(std::string_view name) {
  const auto found = std::ranges::find(kArchitectures, name, &Architecture::name);
  return found == std::end(kArchitectures) ? nullptr : found;
}

}  // namespace lamina

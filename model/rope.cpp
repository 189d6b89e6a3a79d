// Rotary frequencies: see rope.h. Frequency of pair i without scaling: base^(-2i / n_rot).
#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "model/refuse.h"

namespace lamina {
namespace {

/// The pair that turns `turns` times within the original context, as a real number (YaRN's correction dimension).
double pair_of_turns(const Config& config, double base, double turns) {
  return config.n_rot * std::log(config.rope_ctx_original / (2 * std::numbers::pi * turns)) / (2 * std::log(base));
}

/// How far YaRN leaves pair i as it was: 1 for fast pairs, 0 for slow ones, a ramp between.
std::vector<double> yarn_kept(const Config& config, double base) {
  const double last = config.n_rot - 1;
  const double low = std::clamp(std::floor(pair_of_turns(config, base, config.yarn_beta_fast)), 0.0, last);
  const double high = std::clamp(std::ceil(pair_of_turns(config, base, config.yarn_beta_slow)), 0.0, last);
  std::vector<double> kept(config.n_rot / 2);
  for (size_t i = 0; i < kept.size(); ++i) {
    const double ramp = (static_cast<double>(i) - low) / std::max(0.001, high - low);
    kept[i] = (1 - std::clamp(ramp, 0.0, 1.0)) * config.yarn_ext_factor;
  }
  return kept;
}

/// What YaRN multiplies cos and sin by.
double yarn_magnitude(const Config& config) {
  const double log_factor = 0.1 * std::log(config.rope_factor);
  const double divisor = config.yarn_log_multiplier != 0 ? log_factor * config.yarn_log_multiplier + 1 : 1;
  return config.yarn_attn_factor * (log_factor + 1) / divisor;
}

Rope unscaled_rope(const Config& config, double base, std::span<const float> factors) {
  Rope rope{.pairs = config.rope_pairs, .inv_freq = std::vector<double>(config.n_rot / 2)};
  for (size_t i = 0; i < rope.inv_freq.size(); ++i) {
    const double factor = factors.empty() ? 1 : factors[i];
    rope.inv_freq[i] = std::pow(base, -2.0 * static_cast<double>(i) / config.n_rot) / factor;
  }
  return rope;
}

Rope scaled_rope(const Config& config, double base, std::span<const float> factors) {
  Rope rope = unscaled_rope(config, base, factors);
  rope.magnitude = config.rope_attn_factor;
  std::vector<double> kept(rope.inv_freq.size(), 0.0);
  if (config.yarn) {
    kept = yarn_kept(config, base);
    rope.magnitude *= yarn_magnitude(config);
  }
  for (size_t i = 0; i < kept.size(); ++i) {
    rope.inv_freq[i] *= (1 - kept[i]) / config.rope_factor + kept[i];
  }
  return rope;
}

}  // namespace

Rope make_rope(const Config& config, std::span<const float> factors) {
  return scaled_rope(config, config.freq_base, factors);
}

Rope make_window_rope(const Config& config, std::span<const float> factors) {
  if (config.architecture->window->unscaled_rope) return unscaled_rope(config, config.freq_base_window, {});
  return scaled_rope(config, config.freq_base_window, factors);
}

std::vector<float> rope_factors(const gguf::File& file, const Config& config, uint32_t n_ctx) {
  const gguf::Tensor* tensor = file.tensor("rope_freqs.weight");
  if (tensor == nullptr) {
    tensor = file.tensor(n_ctx > config.rope_ctx_original ? "rope_factors_long.weight" : "rope_factors_short.weight");
  }
  if (tensor == nullptr) return {};
  if (tensor->type->kind != gguf::TypeKind::kFloat || tensor->n_elements() != config.n_rot / 2) {
    refuse(file, "tensor {} holds {} values of type {}; it must hold {} floats, half the rotated dimensions",
           tensor->name, tensor->n_elements(), tensor->type->name, config.n_rot / 2);
  }
  std::vector<float> factors(tensor->n_elements());
  gguf::dequantize(*tensor->type, tensor->data.data(), factors.size(), factors.data());
  for (float factor : factors) {
    if (!std::isfinite(factor) || factor == 0) {
      refuse(file, "tensor {} holds the factor {}, by which no frequency can be divided", tensor->name, factor);
    }
  }
  return factors;
}

}  // namespace lamina

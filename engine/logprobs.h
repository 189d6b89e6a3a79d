// Logits in, log-probabilities out: what the model itself says, before penalties, cuts and temperature.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace lamina {

struct TokenLogprob {
  int32_t token;
  double logprob;  ///< natural logarithm
};

/// The log-probability of `token`, then those of the `n` best tokens, the best first, ties by id. Throws
/// Error(kRuntime) when a logit of `logits` [n_vocab] is not a number.
std::vector<TokenLogprob> log_probabilities(std::span<const float> logits, int32_t token, size_t n);

}  // namespace lamina

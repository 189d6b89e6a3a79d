// Logits in, log-probabilities out: what the model itself says, before penalties, cuts and temperature.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace lamina {

/// A row of logits, ready to give log-probabilities.
class LogSoftmax {
 public:
  explicit LogSoftmax(std::span<const float> logits);

  /// False when a logit is not.
  bool finite() const { return finite_; }
  float max() const { return max_; }
  double log_sum() const { return log_sum_; }  ///< log of the sum of exp(logit - max)
  double operator()(float logit) const { return logit - max_ - log_sum_; }

 private:
  float max_;
  double log_sum_;
  bool finite_;
};

struct TokenLogprob {
  int32_t token;
  double logprob;  ///< natural logarithm
};

/// The log-probability of `token`, then those of the `n` best tokens, the best first, ties by id. Throws
/// Error(kRuntime) when a logit of `logits` [n_vocab] is not a number.
std::vector<TokenLogprob> log_probabilities(std::span<const float> logits, int32_t token, size_t n);

}  // namespace lamina

// Chooses the next token: logits and the tokens before them in, a token out.
// The order is llama.cpp's: penalties, top-k, top-p, min-p, temperature, draw. All is computed in double by operations
// that IEEE 754 fixes (an exp of its own, a generator that the C++ standard fixes) on candidates ordered by logit, ties
// by id: with the promise on logits, a seed gives the same tokens on every machine and instruction set.
#pragma once
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "engine/session.h"
#include "gguf/file.h"

namespace lamina {

/// Built-in values are llama.cpp's defaults.
struct SamplerOptions {
  double temp = 0.8;             ///< logits are divided by it; 0: the best candidate is taken, nothing is drawn
  int32_t top_k = 40;            ///< candidates kept; 0 or -1: all
  double top_p = 0.95;           ///< the fewest candidates that have this probability together are kept; 1: all
  double min_p = 0.05;           ///< candidates with this share of the best one's probability are kept; 0: all
  double repeat_penalty = 1;     ///< logits of tokens in the window: positive ones divided, others multiplied; 1: none
  int32_t repeat_last_n = 64;    ///< tokens of the window that penalties look at; 0: none, -1: all
  double presence_penalty = 0;   ///< subtracted from the logits of tokens in the window
  double frequency_penalty = 0;  ///< subtracted once for each time a token stands in the window
  uint64_t seed = 0;

  bool penalises() const {
    return repeat_last_n != 0 && (repeat_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0);
  }
};

/// What options may be, given as flags or in a file.
struct SamplerLimit {
  double least, most;
};
inline constexpr SamplerLimit kTempLimit{0, 100}, kTopKLimit{-1, 1 << 30}, kTopPLimit{0, 1}, kMinPLimit{0, 1},
    kRepeatPenaltyLimit{0.01, 100}, kRepeatLastNLimit{-1, 1 << 30}, kPenaltyLimit{-100, 100};

/// The built-in values, replaced where the file's `general.sampling.*` keys give others. Throws Error(kModel) naming
/// key and value when one is out of its limits; warns of keys that are not known.
SamplerOptions model_sampling(const gguf::File& file);

class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options) : options_(options), random_(options.seed) {}

  /// What next() wants of the n_vocab logits behind `tokens` (Step::n_best): where tokens are drawn from the top_k
  /// best, no others can matter, but that penalties may push as many out of those as there are tokens in the window.
  uint32_t n_best(std::span<const int32_t> tokens, uint32_t n_vocab) const;

  /// The token to follow what `session` evaluated last, from its logits or from n_best() of them. Leaves both alone
  /// where the argmax is all that is asked for. Throws Error(kRuntime) when a logit that it looks at is not a number.
  int32_t next(const Session& session);

  /// The token to follow `tokens`, after which the model gave `logits` [n_vocab].
  int32_t next(std::span<const float> logits, std::span<const int32_t> tokens);

 private:
  struct Candidate {
    double logit;
    double weight;  ///< probability relative to the best candidate's
    int32_t token;
  };

  std::span<const int32_t> window(std::span<const int32_t> tokens) const;
  void add(float logit, int32_t token);
  int32_t choose(std::span<const int32_t> tokens);
  void penalise(std::span<const int32_t> tokens);
  void keep_top_k(size_t k);
  void weigh(double temp);
  double total_weight() const;
  void keep_min_p();
  void keep_top_p(double total);
  int32_t draw();
  const Candidate& best(size_t i);

  SamplerOptions options_;
  std::mt19937_64 random_;
  std::vector<Candidate> candidates_;  ///< the first n_ordered_ are the best, in order
  size_t n_ordered_ = 0;
  std::vector<int32_t> window_;  ///< tokens to penalise, sorted
};

}  // namespace lamina

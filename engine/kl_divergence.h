// How far a model's predictions are from another's (usually the same model before it was quantised), token by token.
// The other's are in a base file as llama-perplexity writes it with --save-all-logits:
//
//   8 bytes "_logits_" | int32 n_ctx | int32 n_vocab | int32 n_chunk | int32 tokens [n_chunk][n_ctx]
//   then a row for each scored token: float32 scale | float32 least | uint16 q [n_vocab, padded to even]
//   log-probability of token i = scale * q[i] + least; those below the highest logit - 16 are cut off there
//
// In: scored tokens (perplexity.h). Out: such a file, or the comparison with one.
#pragma once
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "engine/perplexity.h"

namespace lamina {

/// What stands before the rows.
std::vector<std::byte> kl_base_header(const Chunks& chunks, uint32_t n_vocab);

/// The row of one scored token.
std::vector<std::byte> kl_base_row(const Scored& scored);

/// A base file, open for reading.
class KlBase {
 public:
  /// Throws Error(kModel) when `path` cannot be read or is no such file of plausible size.
  explicit KlBase(const std::string& path);

  uint32_t n_ctx() const { return n_ctx_; }
  uint32_t n_vocab() const { return n_vocab_; }
  uint32_t n_chunk() const { return n_chunk_; }

  /// Throws Error(kUsage) unless the file is about the same chunks, made by a model with as many tokens.
  void check_same_text(const Chunks& chunks) const;
  void check_same_vocabulary(uint32_t n_vocab) const;

  /// Log-probabilities [n_vocab] before scored token `index` of a chunk; valid until the next call.
  const std::vector<float>& log_probabilities(uint32_t chunk, uint32_t index);

 private:
  [[noreturn]] void refuse(const std::string& why) const;

  std::string path_;
  std::ifstream file_;
  uint32_t n_ctx_ = 0, n_vocab_ = 0, n_chunk_ = 0;
  std::vector<int32_t> tokens_;
  std::vector<float> log_probabilities_;
};

/// One token as both models predicted it.
struct TokenDivergence {
  double nll = 0, nll_base = 0;
  double kl = 0;          ///< sum of p_base * (log p_base - log p)
  double delta_p = 0;     ///< change of the probability of the token that follows
  bool same_top = false;  ///< both have the same most probable token
};

TokenDivergence compare(const Scored& scored, const std::vector<float>& base_log_probabilities);

/// All tokens so far.
class KlStatistics {
 public:
  void add(const TokenDivergence& token);

  Estimate perplexity() const { return perplexity_of(nll_); }
  Estimate base_perplexity() const { return perplexity_of(nll_base_); }
  Estimate log_ratio() const { return log_ratio_.estimate(); }  ///< ln(PPL / base PPL)
  Estimate ratio() const;                                       ///< PPL / base PPL
  Estimate difference() const;                                  ///< PPL - base PPL
  double correlation() const;                                   ///< of the negative log-likelihoods
  Estimate kl() const { return kl_.estimate(); }
  Estimate delta_p() const { return delta_p_.estimate(); }
  Estimate rms_delta_p() const;
  Estimate same_top() const;  ///< share of tokens

  /// Value below which the given share (0 .. 1) of the tokens lies, between neighbours by their distance.
  double kl_quantile(double share) const { return quantile(kl_values_, share); }
  double delta_p_quantile(double share) const { return quantile(delta_p_values_, share); }

 private:
  static double quantile(std::vector<float> values, double share);
  double covariance() const;

  Sums nll_, nll_base_, log_ratio_, kl_, delta_p_, squared_delta_p_, same_top_;
  std::vector<float> kl_values_, delta_p_values_;
};

}  // namespace lamina

// Perplexity of a text, by llama-perplexity's method: the text's tokens are cut into chunks of n_ctx, each chunk is run
// from an empty context, and the tokens of its second half are scored: -log of the probability that the model gave
// them. In: tokens and an engine. Out: the logits before each scored token, to whoever does the sums.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "engine/logprobs.h"

namespace lamina {

struct ChunkOptions {
  uint32_t n_ctx = 512;
  uint32_t stride = 0;      ///< 0: chunks lie side by side. Else each begins `stride` tokens behind the one before
                            ///< and its last `stride` tokens are scored
  uint32_t max_chunks = 0;  ///< 0: all
};

/// A text as tokens, and how it is cut.
class Chunks {
 public:
  /// `bos` replaces the first token of each chunk; -1: none does. Throws Error(kUsage) for sizes that score nothing,
  /// and when there are fewer tokens than two chunks need (with a stride: one chunk and the token after it).
  Chunks(std::vector<int32_t> tokens, int32_t bos, const ChunkOptions& options);

  const std::vector<int32_t>& tokens() const { return tokens_; }
  uint32_t n_ctx() const { return options_.n_ctx; }
  uint32_t n_chunk() const { return n_chunk_; }

  /// Scored are the tokens behind positions first_scored() .. n_ctx - 2 of each chunk.
  uint32_t first_scored() const;
  uint32_t n_scored() const { return options_.n_ctx - 1 - first_scored(); }

  /// The tokens to run: the chunk without its last token, which is only to be predicted.
  std::vector<int32_t> input(uint32_t chunk) const;

  /// The token behind `position` of the chunk.
  int32_t next(uint32_t chunk, uint32_t position) const { return tokens_[begin(chunk) + position + 1]; }

 private:
  size_t begin(uint32_t chunk) const {
    return size_t{chunk} * (options_.stride != 0 ? options_.stride : options_.n_ctx);
  }

  std::vector<int32_t> tokens_;
  int32_t bos_;
  ChunkOptions options_;
  uint32_t n_chunk_ = 0;
};

/// What the model said before one scored token.
struct Scored {
  uint32_t chunk = 0;
  uint32_t index = 0;  ///< 0 .. n_scored - 1 in the chunk
  int32_t token = 0;   ///< the token that follows
  std::span<const float> logits;
  LogSoftmax log_softmax;

  double nll() const { return -log_softmax(logits[static_cast<size_t>(token)]); }
};

using ScoreSink = std::function<void(const Scored&)>;

/// Runs chunks [first, end) together; the engine must hold as many sequences of n_ctx. `sink` gets the scored tokens of
/// each chunk in order, but those of several chunks mixed. Returns false when `cancel` was set. Throws Error(kRuntime)
/// when a logit is not finite, naming the chunk and the first op that wrote such a number.
bool score_chunks(Engine& engine, const Chunks& chunks, uint32_t first, uint32_t end, const ScoreSink& sink,
                  const std::atomic<bool>* cancel);

struct Estimate {
  double value = 0;
  double error = 0;  ///< standard error
};

/// Mean and spread of a quantity over tokens, by Welford's sums: equal values have just their own mean and no spread.
class Sums {
 public:
  void add(double x) {
    ++n_;
    const double off = x - mean_;
    mean_ += off / static_cast<double>(n_);
    squares_ += off * (x - mean_);
  }
  uint64_t n() const { return n_; }
  double mean() const { return mean_; }
  double variance() const;  ///< of the values around their mean
  double error() const;     ///< standard error of the mean; 0 for one value
  Estimate estimate() const { return {mean(), error()}; }

 private:
  uint64_t n_ = 0;
  double mean_ = 0;
  double squares_ = 0;  ///< of the distances from the mean
};

/// exp of the mean of negative log-likelihoods.
Estimate perplexity_of(const Sums& nll);

}  // namespace lamina

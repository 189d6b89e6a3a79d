// Cutting, running and scoring: see perplexity.h.
#include "engine/perplexity.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>

#include "engine/session.h"
#include "engine/trace.h"
#include "gguf/error.h"

namespace lamina {
namespace {

/// Thrown out of an evaluation by the first row of logits that is not finite.
struct NonFiniteLogits {
  uint32_t chunk, position;
};

/// Runs the chunk again, op by op, for the message.
[[noreturn]] void fail_non_finite(Engine& engine, const Chunks& chunks, const NonFiniteLogits& where) {
  Session session(engine);
  std::vector<int32_t> tokens = chunks.input(where.chunk);
  tokens.resize(where.position + 1);
  const auto found = find_non_finite(engine, [&] { session.evaluate(tokens); });
  fail(ErrorKind::kRuntime, "chunk {}: the logits behind its token {} are not finite; first {}", where.chunk + 1,
       where.position, found ? to_text(engine.program(), *found) : "seen there: run again op by op, all were finite");
}

}  // namespace

Chunks::Chunks(std::vector<int32_t> tokens, int32_t bos, const ChunkOptions& options)
    : tokens_(std::move(tokens)), bos_(bos), options_(options) {
  const size_t n = tokens_.size(), n_ctx = options.n_ctx, stride = options.stride;
  if (n_ctx < 3) fail(ErrorKind::kUsage, "a context of {} scores no token; at least 3 are needed", n_ctx);
  if (stride >= n_ctx) fail(ErrorKind::kUsage, "a stride of {} is not below the context of {}", stride, n_ctx);
  const size_t least = stride != 0 ? n_ctx + 1 : 2 * n_ctx;
  if (n < least) {
    fail(ErrorKind::kUsage, "the text has {} tokens; a context of {} needs at least {} (lower it with -c)", n, n_ctx,
         least);
  }
  const size_t all = stride != 0 ? (n - n_ctx + stride - 1) / stride : n / n_ctx;
  n_chunk_ = static_cast<uint32_t>(options.max_chunks != 0 ? std::min<size_t>(all, options.max_chunks) : all);
}

uint32_t Chunks::first_scored() const {
  return options_.stride != 0 ? options_.n_ctx - 1 - options_.stride : options_.n_ctx / 2;
}

std::vector<int32_t> Chunks::input(uint32_t chunk) const {
  const auto first = tokens_.begin() + static_cast<ptrdiff_t>(begin(chunk));
  std::vector<int32_t> input(first, first + options_.n_ctx - 1);
  if (bos_ >= 0) input[0] = bos_;
  return input;
}

bool score_chunks(Engine& engine, const Chunks& chunks, uint32_t first, uint32_t end, const ScoreSink& sink,
                  const std::atomic<bool>* cancel) {
  try {
    std::vector<std::vector<int32_t>> inputs;
    std::deque<Session> sessions;
    std::vector<Feed> feeds;
    for (uint32_t chunk = first; chunk < end; ++chunk) {
      inputs.push_back(chunks.input(chunk));
      sessions.emplace_back(engine);
    }
    for (size_t i = 0; i < sessions.size(); ++i) feeds.push_back({&sessions[i], inputs[i], chunks.first_scored()});
    return evaluate(
        engine, feeds,
        [&](size_t feed, uint32_t position, std::span<const float> logits, int32_t) {
          const uint32_t chunk = first + static_cast<uint32_t>(feed);
          const int32_t token = chunks.next(chunk, position);
          if (static_cast<size_t>(token) >= logits.size()) {
            fail(ErrorKind::kModel, "token {} of the text is outside the vocabulary 0..{}", token, logits.size() - 1);
          }
          const LogSoftmax log_softmax(logits);
          if (!log_softmax.finite()) throw NonFiniteLogits{chunk, position};
          sink({chunk, position - chunks.first_scored(), token, logits, log_softmax});
        },
        cancel);
  } catch (const NonFiniteLogits& where) {
    fail_non_finite(engine, chunks, where);  // the chunks' pages are free again
  }
}

double Sums::variance() const { return squares_ / static_cast<double>(n_); }

double Sums::error() const { return n_ > 1 ? std::sqrt(variance() / static_cast<double>(n_ - 1)) : 0; }

Estimate perplexity_of(const Sums& nll) {
  const double value = std::exp(nll.mean());
  return {value, value * nll.error()};
}

}  // namespace lamina

// A Session is one timeline of tokens with its keys and values. It is given the full token prefix each time and finds
// out by itself what of it is cached: it reuses that, rewinds what differs and runs the rest, in steps of at most the
// engine's rows. Several sessions of one engine run in the same steps through evaluate(), and may share the pages of a
// common prefix through fork(); by the promise (design, section 2) their logits are the bits that each would get alone.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/engine.h"

namespace lamina {

class Session {
 public:
  explicit Session(Engine& engine);

  /// Makes `tokens` the timeline and computes of the logits of its last token what `n_best` says (Step::n_best).
  /// Returns false when `cancel` was set meanwhile: what was computed until then stays cached. Throws Error(kUsage)
  /// when the context is too short, Error(kModel) for an id outside the vocabulary.
  bool evaluate(std::span<const int32_t> tokens, const std::atomic<bool>* cancel = nullptr, uint32_t n_best = 0);

  /// Forgets all but the first `n` tokens; those of a page that another session shares and that n would cut go too.
  void rewind(uint32_t n);

  /// Takes over the first tokens of `other` (a different session of the same engine): as many as fill whole pages,
  /// which both hold from now on. No page is copied; what lies beyond is run again when it is evaluated.
  void fork(const Session& other);

  /// Highest logit of the last token evaluated (ties to the lowest id). Only until the engine's next step: the logits
  /// [n_vocab] where all were asked for, else empty; the best ones where those were, else empty.
  int32_t argmax() const { return argmax_; }
  std::span<const float> logits() const;
  std::span<const TokenLogit> best() const;

  const std::vector<int32_t>& tokens() const { return tokens_; }  ///< those whose keys and values are cached
  uint32_t n_reused() const { return n_reused_; }                 ///< tokens that the last evaluation found cached
  Engine& engine() const { return engine_; }

 private:
  friend class StepPlanner;

  Engine& engine_;
  PageTable table_;  ///< shared pages are full ones of tokens_, so that no step writes into them
  std::vector<int32_t> tokens_;
  uint32_t n_planned_ = 0;  ///< tokens that it will have behind the step at hand
  uint32_t n_reused_ = 0;
  int32_t argmax_ = -1;
  std::span<const float> logits_;
  std::span<const TokenLogit> best_;
  uint64_t logits_step_ = 0;  ///< the engine's step count that made logits_ and best_
};

/// One session's part in an evaluation: its full prefix, from which token on logits are wanted, and what of them
/// (Step::n_best). Feeds that run in one step all get what the most demanding one wants.
struct Feed {
  Session* session = nullptr;
  std::span<const int32_t> tokens;
  uint32_t first_output = 0;
  uint32_t n_best = 0;
};

/// Receives the logits [n_vocab] (empty where none had to be made) and argmax after token `position` of
/// feeds[feed]; positions ascending within a feed.
using OutputSink = std::function<void(size_t feed, uint32_t position, std::span<const float> logits, int32_t argmax)>;

/// Evaluates several (different) sessions of one engine together: each step takes rows of as many as fit, in the order
/// of `feeds`. Returns false when `cancel` was set. Errors as in Session::evaluate, before any step has run.
bool evaluate(Engine& engine, std::span<const Feed> feeds, const OutputSink& sink,
              const std::atomic<bool>* cancel = nullptr);

}  // namespace lamina

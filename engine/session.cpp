// Finds the cached prefix of each feed, then packs what is left into steps until all is done.
#include "engine/session.h"

#include <algorithm>
#include <optional>

#include "gguf/error.h"

namespace lamina {

/// Builds one step after the other from what the feeds still lack, and books what a step has computed.
class StepPlanner {
 public:
  StepPlanner(Engine& engine, std::span<const Feed> feeds) : engine_(engine), feeds_(feeds), step_(engine.step()) {
    for (const Feed& feed : feeds) check(feed);
    for (const Feed& feed : feeds) keep_prefix(feed);
  }

  /// Fills step_ with the next rows; false when nothing is left.
  bool plan() {
    step_.token.clear();
    step_.position.clear();
    step_.sequence.clear();
    step_.outputs.clear();
    n_sequences_ = 0;
    n_best_.reset();
    for (const Feed& feed : feeds_) add_rows(feed);
    if (step_.token.empty()) return false;
    step_.pages.resize(n_sequences_);
    step_.n_best = n_best_.value_or(1);
    return true;
  }

  void run(const OutputSink& sink) {
    engine_.run(step_);
    uint32_t output = 0;
    for (size_t i = 0; i < feeds_.size(); ++i) {
      const Feed& feed = feeds_[i];
      Session& session = *feed.session;
      for (auto pos = static_cast<uint32_t>(session.tokens_.size()); pos < session.n_planned_; ++pos) {
        session.tokens_.push_back(feed.tokens[pos]);
        if (pos < feed.first_output) continue;
        const bool all = step_.n_best == 0;
        session.logits_ = all ? engine_.logits(output) : std::span<const float>();
        session.best_ = all ? std::span<const TokenLogit>() : engine_.best(output);
        session.argmax_ = engine_.argmax(output);
        session.logits_step_ = engine_.n_steps();
        if (sink) sink(i, pos, session.logits_, session.argmax_);
        ++output;
      }
    }
  }

 private:
  void check(const Feed& feed) const {
    LAMINA_CHECK(&feed.session->engine() == &engine_ && feed.n_best <= kMaxBest);
    if (feed.tokens.size() > engine_.n_ctx()) {
      fail(ErrorKind::kUsage, "{} tokens do not fit the context of {} (raise it with -c)", feed.tokens.size(),
           engine_.n_ctx());
    }
    for (size_t i = 0; i < feed.tokens.size(); ++i) {
      if (feed.tokens[i] < 0 || static_cast<uint32_t>(feed.tokens[i]) >= engine_.n_vocab()) {
        fail(ErrorKind::kModel, "token {} at position {} is outside the vocabulary 0..{}", feed.tokens[i], i,
             engine_.n_vocab() - 1);
      }
    }
  }

  static void keep_prefix(const Feed& feed) {
    Session& session = *feed.session;
    const size_t limit = std::min<size_t>({feed.tokens.size(), session.tokens_.size(), feed.first_output});
    const auto end = feed.tokens.begin() + static_cast<ptrdiff_t>(limit);
    const auto differs = std::mismatch(feed.tokens.begin(), end, session.tokens_.begin()).first;
    session.rewind(static_cast<uint32_t>(differs - feed.tokens.begin()));
    session.n_reused_ = static_cast<uint32_t>(session.tokens_.size());
  }

  void add_rows(const Feed& feed) {
    Session& session = *feed.session;
    const auto first = static_cast<uint32_t>(session.tokens_.size());
    const auto room = static_cast<uint32_t>(engine_.max_rows() - step_.token.size());
    uint32_t end = std::min(static_cast<uint32_t>(feed.tokens.size()), first + room);
    const auto output_room = static_cast<uint32_t>(engine_.max_outputs() - step_.outputs.size());
    end = std::min(end, std::max(first, feed.first_output) + output_room);
    session.n_planned_ = end;
    if (first == end) return;

    session.table_.resize(end);
    const uint32_t sequence = n_sequences_++;
    if (step_.pages.size() <= sequence) step_.pages.emplace_back().reserve(pages_for(engine_.n_ctx()));
    step_.pages[sequence].assign(session.table_.pages().begin(), session.table_.pages().end());
    for (uint32_t pos = first; pos < end; ++pos) {
      if (pos >= feed.first_output) {
        step_.outputs.push_back(static_cast<uint32_t>(step_.token.size()));
        want(feed.n_best);
      }
      step_.token.push_back(feed.tokens[pos]);
      step_.position.push_back(pos);
      step_.sequence.push_back(sequence);
    }
  }

  /// 0, all logits, is more than any number of best ones.
  void want(uint32_t n_best) {
    if (!n_best_) n_best_ = n_best;
    else n_best_ = *n_best_ == 0 || n_best == 0 ? 0 : std::max(*n_best_, n_best);
  }

  Engine& engine_;
  std::span<const Feed> feeds_;
  Step& step_;  ///< the engine's, whose memory is used again
  uint32_t n_sequences_ = 0;
  std::optional<uint32_t> n_best_;  ///< of the outputs so far
};

bool evaluate(Engine& engine, std::span<const Feed> feeds, const OutputSink& sink, const std::atomic<bool>* cancel) {
  StepPlanner planner(engine, feeds);
  while (true) {
    if (cancel != nullptr && cancel->load()) return false;
    if (!planner.plan()) return true;
    planner.run(sink);
  }
}

Session::Session(Engine& engine) : engine_(engine), table_(engine.pages()) {
  tokens_.reserve(engine.n_ctx());  // from now on a token costs no allocation
  table_.reserve(engine.n_ctx());
}

bool Session::evaluate(std::span<const int32_t> tokens, const std::atomic<bool>* cancel, uint32_t n_best) {
  LAMINA_CHECK(!tokens.empty());
  const Feed feed{this, tokens, static_cast<uint32_t>(tokens.size() - 1), n_best};
  return lamina::evaluate(engine_, {&feed, 1}, nullptr, cancel);
}

void Session::rewind(uint32_t n) {
  n = std::min(n, static_cast<uint32_t>(tokens_.size()));
  const uint32_t in_page = n % kPagePositions;
  if (in_page != 0 && table_.is_shared(n)) n -= in_page;
  tokens_.resize(n);
  table_.resize(n);
}

void Session::fork(const Session& other) {
  const auto n_pages = static_cast<uint32_t>(other.tokens_.size() / kPagePositions);
  table_.share(other.table_, n_pages);
  tokens_.assign(other.tokens_.begin(), other.tokens_.begin() + ptrdiff_t{n_pages} * kPagePositions);
}

std::span<const float> Session::logits() const {
  LAMINA_CHECK(logits_step_ != 0 && logits_step_ == engine_.n_steps());
  return logits_;
}

std::span<const TokenLogit> Session::best() const {
  LAMINA_CHECK(logits_step_ != 0 && logits_step_ == engine_.n_steps());
  return best_;
}

}  // namespace lamina

// Timed evaluations of random tokens (a fixed seed: each run does the same work, also for experts).
#include "engine/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>

#include "engine/session.h"
#include "gguf/error.h"

namespace lamina {
namespace {

/// Of the logits: the best token.
constexpr uint32_t kArgmax = 1;

/// Evaluates `n_tokens` behind the depth, as one prompt or one by one; false when cancelled.
bool run_once(Session& session, const std::vector<int32_t>& tokens, const BenchTest& test, uint32_t n_tokens,
              const std::atomic<bool>* cancel) {
  const std::span<const int32_t> all(tokens);
  if (test.n_prompt > 0) return session.evaluate(all.first(test.n_depth + n_tokens), cancel, kArgmax);
  for (uint32_t i = 1; i <= n_tokens; ++i) {
    if (!session.evaluate(all.first(test.n_depth + i), cancel, kArgmax)) return false;
  }
  return true;
}

}  // namespace

std::string BenchTest::name() const {
  std::string text = n_prompt > 0 ? fmt::format("pp{}", n_prompt) : fmt::format("tg{}", n_gen);
  if (n_depth > 0) text += fmt::format(" @ d{}", n_depth);
  return text;
}

Summary summary_of(std::vector<double> values) {
  LAMINA_CHECK(!values.empty());
  std::ranges::sort(values);
  const size_t n = values.size();
  Summary summary;
  summary.least = values.front();
  summary.most = values.back();
  summary.median = (values[(n - 1) / 2] + values[n / 2]) / 2;
  for (const double value : values) summary.average += value / static_cast<double>(n);
  double squares = 0;
  for (const double value : values) squares += (value - summary.average) * (value - summary.average);
  if (n > 1) summary.deviation = std::sqrt(squares / static_cast<double>(n - 1));
  return summary;
}

BenchResult run_bench(Engine& engine, const BenchTest& test, uint32_t repetitions, const std::atomic<bool>* cancel) {
  using Clock = std::chrono::steady_clock;
  BenchResult result{.test = test, .nanoseconds = {}, .tokens_per_second = {}};
  std::mt19937 random(1);  // the same tokens in every run
  std::vector<int32_t> tokens(test.n_depth + test.n_tokens());
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % engine.n_vocab());

  Session session(engine);
  if (test.n_depth > 0 && !session.evaluate(std::span(tokens).first(test.n_depth), cancel)) return result;
  const uint32_t warm_up = test.n_prompt > 0 ? test.n_prompt : 1;
  if (!run_once(session, tokens, test, warm_up, cancel)) return result;
  for (uint32_t i = 0; i < repetitions; ++i) {
    session.rewind(test.n_depth);
    const auto start = Clock::now();
    if (!run_once(session, tokens, test, test.n_tokens(), cancel)) return result;
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    result.nanoseconds.push_back(seconds * 1e9);
    result.tokens_per_second.push_back(test.n_tokens() / seconds);
  }
  return result;
}

}  // namespace lamina

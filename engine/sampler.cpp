// One step of the chain a function. Probabilities are kept as weights relative to the best candidate's, so that nothing
// overflows. Candidates are ordered only as far as a step has to walk down them: vocabularies are large.
#include "engine/sampler.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <string>
#include <variant>

#include "gguf/error.h"
#include "model/refuse.h"

namespace lamina {
namespace {

struct SamplingKey {
  std::string_view name;
  SamplerLimit limit;
  std::variant<double SamplerOptions::*, int32_t SamplerOptions::*> to;
};

constexpr std::string_view kPrefix = "general.sampling.";
constexpr SamplingKey kKeys[] = {
    {"temp", kTempLimit, &SamplerOptions::temp},
    {"top_k", kTopKLimit, &SamplerOptions::top_k},
    {"top_p", kTopPLimit, &SamplerOptions::top_p},
    {"min_p", kMinPLimit, &SamplerOptions::min_p},
    {"penalty_repeat", kRepeatPenaltyLimit, &SamplerOptions::repeat_penalty},
    {"penalty_last_n", kRepeatLastNLimit, &SamplerOptions::repeat_last_n},
};

/// The value as a number, NaN when it is none.
double number(const gguf::Value& value) {
  if (const auto* u = std::get_if<uint64_t>(&value)) return static_cast<double>(*u);
  if (const auto* i = std::get_if<int64_t>(&value)) return static_cast<double>(*i);
  if (const auto* d = std::get_if<double>(&value)) return *d;
  return NAN;
}

/// 1 / i! for i = 0 .. 13.
constexpr auto kInverseFactorials = [] {
  std::array<double, 14> values{1};
  for (size_t i = 1; i < values.size(); ++i) values[i] = values[i - 1] / static_cast<double>(i);
  return values;
}();

/// e^x for x <= 0, below e^-700 as 0. The error is below 1e-15 of the value. std::exp may differ between machines.
double exp_of(double x) {
  if (x < -700) return 0;
  // x = n ln 2 + r with |r| <= ln 2 / 2. The high part of ln 2 ends in 21 zero bits: its product with n is exact.
  constexpr double kLog2E = 0x1.71547652b82fep+0, kLn2High = 0x1.62e42feep-1, kLn2Low = 0x1.a39ef35793c76p-33;
  const auto n = static_cast<int>(x * kLog2E - 0.5);
  const double r = (x - n * kLn2High) - n * kLn2Low;
  double sum = 0;  // Taylor; the first term left out is below 1e-17
  for (size_t i = kInverseFactorials.size(); i-- > 0;) sum = sum * r + kInverseFactorials[i];
  return sum * std::bit_cast<double>(static_cast<uint64_t>(1023 + n) << 52);  // 2^n
}

}  // namespace

SamplerOptions model_sampling(const gguf::File& file) {
  SamplerOptions options;
  for (const gguf::KeyValue& pair : file.metadata()) {
    const std::string_view name = pair.key;
    if (!name.starts_with(kPrefix)) continue;
    const auto key = std::find_if(std::begin(kKeys), std::end(kKeys),
                                  [&](const SamplingKey& k) { return k.name == name.substr(kPrefix.size()); });
    if (key == std::end(kKeys)) {
      spdlog::warn("'{}' is a sampling default that is not known here; it is ignored", printable(name));
      continue;
    }
    const double x = number(pair.value);
    if (!(x >= key->limit.least && x <= key->limit.most)) {
      refuse(file, "{} is {}, not a number from {} to {}", name, x, key->limit.least, key->limit.most);
    }
    if (const auto* to = std::get_if<double SamplerOptions::*>(&key->to)) {
      options.** to = x;
    } else {
      options.*std::get<int32_t SamplerOptions::*>(key->to) = static_cast<int32_t>(x);
    }
  }
  return options;
}

uint32_t Sampler::n_best(std::span<const int32_t> tokens, uint32_t n_vocab) const {
  if (options_.temp > 0 && options_.top_k <= 0) return 0;
  size_t n = options_.temp == 0 ? 1 : static_cast<size_t>(options_.top_k);
  if (options_.penalises()) {
    const bool lower_only =
        options_.repeat_penalty >= 1 && options_.presence_penalty >= 0 && options_.frequency_penalty >= 0;
    if (!lower_only) return 0;
    n += window(tokens).size();
  }
  return n < std::min(n_vocab, kMaxBest) ? static_cast<uint32_t>(n) : 0;
}

int32_t Sampler::next(const Session& session) {
  if (options_.temp == 0 && !options_.penalises()) return session.argmax();
  if (session.best().empty()) return next(session.logits(), session.tokens());
  candidates_.clear();
  for (const TokenLogit& best : session.best()) add(best.logit, best.token);
  return choose(session.tokens());
}

int32_t Sampler::next(std::span<const float> logits, std::span<const int32_t> tokens) {
  candidates_.clear();
  for (size_t i = 0; i < logits.size(); ++i) add(logits[i], static_cast<int32_t>(i));
  return choose(tokens);
}

void Sampler::add(float logit, int32_t token) {
  if (std::isnan(logit) || logit == INFINITY) {
    fail(ErrorKind::kRuntime, "the model gave token {} the logit {}: no next token can be chosen", token, logit);
  }
  candidates_.push_back({logit, 0, token});
}

/// Penalties and filters on the candidates, then the draw.
int32_t Sampler::choose(std::span<const int32_t> tokens) {
  if (std::ranges::all_of(candidates_, [](const Candidate& c) { return c.logit == -INFINITY; })) {
    fail(ErrorKind::kRuntime, "the model gave all tokens the logit -inf: no next token can be chosen");
  }
  n_ordered_ = 0;
  if (options_.penalises()) penalise(window(tokens));
  if (options_.temp == 0) return best(0).token;
  if (options_.top_k > 0) keep_top_k(static_cast<size_t>(options_.top_k));
  weigh(1);
  // Both filters leave the best candidates up to some place, so that either may come first: min-p needs no order and
  // leaves little to be ordered. Top-p's share is of the total before it.
  const double total = total_weight();
  keep_min_p();
  if (options_.top_p < 1) keep_top_p(total);
  weigh(options_.temp);
  return draw();
}

/// The last of `tokens` that penalties look at.
std::span<const int32_t> Sampler::window(std::span<const int32_t> tokens) const {
  const auto last_n = static_cast<size_t>(options_.repeat_last_n);  // -1: more than there can be
  return last_n < tokens.size() ? tokens.last(last_n) : tokens;
}

/// A token that is no candidate is none afterwards: penalties had to raise it.
void Sampler::penalise(std::span<const int32_t> tokens) {
  const auto candidate = [&](int32_t token) {
    const auto at = static_cast<size_t>(token);  // of all logits, each stands at its place
    if (at < candidates_.size() && candidates_[at].token == token) return candidates_.begin() + token;
    return std::ranges::find(candidates_, token, &Candidate::token);
  };
  window_.assign(tokens.begin(), tokens.end());
  std::sort(window_.begin(), window_.end());
  for (auto first = window_.begin(); first != window_.end();) {
    const auto end = std::upper_bound(first, window_.end(), *first);
    if (const auto found = candidate(*first); found != candidates_.end()) {
      double& logit = found->logit;
      logit = logit > 0 ? logit / options_.repeat_penalty : logit * options_.repeat_penalty;
      logit -= options_.presence_penalty + options_.frequency_penalty * static_cast<double>(end - first);
    }
    first = end;
  }
}

void Sampler::keep_top_k(size_t k) {
  if (k >= candidates_.size()) return;
  best(k - 1);
  candidates_.resize(k);
}

void Sampler::weigh(double temp) {
  double most = -INFINITY;
  for (const Candidate& c : candidates_) most = std::max(most, c.logit);
  for (Candidate& c : candidates_) c.weight = exp_of((c.logit - most) / temp);
}

double Sampler::total_weight() const {
  double total = 0;
  for (const Candidate& c : candidates_) total += c.weight;
  return total;
}

void Sampler::keep_min_p() {
  std::erase_if(candidates_, [&](const Candidate& c) { return c.weight < options_.min_p; });
}

void Sampler::keep_top_p(double total) {
  double sum = 0;
  size_t n = 0;
  do {
    sum += best(n++).weight;
  } while (n < candidates_.size() && sum < options_.top_p * total);
  candidates_.resize(n);
}

int32_t Sampler::draw() {
  // 53 bits as a number in [0, 1), as wide as a double's fraction.
  double left = static_cast<double>(random_() >> 11) * 0x1p-53 * total_weight();
  for (size_t i = 0; i < candidates_.size(); ++i) {
    const Candidate& c = best(i);
    if (left < c.weight) return c.token;
    left -= c.weight;
  }
  return best(0).token;  // only when rounding has used all weights up
}

/// The candidate of rank `i`: orders as many as that takes, and then some.
const Sampler::Candidate& Sampler::best(size_t i) {
  if (i >= n_ordered_) {
    const auto before = [](const Candidate& a, const Candidate& b) {
      return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
    };
    const size_t n = std::min(candidates_.size(), std::max<size_t>(64, 8 * i));
    const auto first = candidates_.begin() + static_cast<ptrdiff_t>(n_ordered_);
    const auto end = candidates_.begin() + static_cast<ptrdiff_t>(n);
    if (n <= 1024) {
      std::partial_sort(first, end, candidates_.end(), before);
    } else {  // where partial_sort's heap would be large and slow
      std::nth_element(first, end - 1, candidates_.end(), before);
      std::sort(first, end, before);
    }
    n_ordered_ = n;
  }
  return candidates_[i];
}

}  // namespace lamina

// log p = logit - log(sum of exp(logits)), the maximum taken out of the sum.
#include "engine/logprobs.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "gguf/error.h"

namespace lamina {

LogSoftmax::LogSoftmax(std::span<const float> logits) : max_(*std::ranges::max_element(logits)) {
  double sum = 0;
  bool finite = true;
  for (const float x : logits) {
    finite &= std::isfinite(x);
    sum += std::exp(x - max_);
  }
  log_sum_ = std::log(sum);
  finite_ = finite;
}

std::vector<TokenLogprob> log_probabilities(std::span<const float> logits, int32_t token, size_t n) {
  const LogSoftmax log_softmax(logits);
  if (!log_softmax.finite()) fail(ErrorKind::kRuntime, "the model's logits hold a value that is not a finite number");

  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  n = std::min(n, ids.size());
  const auto logit_of = [&](int32_t id) { return logits[static_cast<size_t>(id)]; };
  const auto before = [&](int32_t a, int32_t b) {
    return logit_of(a) > logit_of(b) || (logit_of(a) == logit_of(b) && a < b);
  };
  std::partial_sort(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(n), ids.end(), before);
  ids.resize(n);
  ids.insert(ids.begin(), token);

  std::vector<TokenLogprob> result;
  for (const int32_t id : ids) result.push_back({id, log_softmax(logit_of(id))});
  return result;
}

}  // namespace lamina

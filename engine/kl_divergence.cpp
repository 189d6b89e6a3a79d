// The base file and the sums of a comparison: see kl_divergence.h.
#include "engine/kl_divergence.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <span>

#include "gguf/error.h"

namespace lamina {
namespace {

static_assert(std::endian::native == std::endian::little, "rows are written as they lie in memory");

constexpr char kMagic[] = {'_', 'l', 'o', 'g', 'i', 't', 's', '_'};
constexpr float kRange = 16;           ///< logits this far below the highest are cut off
constexpr float kSteps = 65535;        ///< of a 16-bit number
constexpr int32_t kMaxSize = 1 << 24;  ///< of n_ctx, n_vocab and n_chunk: beyond it a file is no base file

/// Two floats, then n_vocab numbers of 16 bits, padded to an even count.
uint64_t row_bytes(uint64_t n_vocab) { return 2 * sizeof(float) + (n_vocab + 1) / 2 * 2 * sizeof(uint16_t); }

uint64_t header_bytes(uint64_t n_chunk, uint64_t n_ctx) {
  return sizeof kMagic + 3 * sizeof(int32_t) + n_chunk * n_ctx * sizeof(int32_t);
}

/// Scored tokens of a chunk: its second half (llama-perplexity knows no other form here).
uint64_t rows_of(uint32_t n_ctx) { return n_ctx - 1 - n_ctx / 2; }

template <class T>
void append(std::vector<std::byte>& out, std::span<const T> values) {
  for (const std::byte byte : std::as_bytes(values)) out.push_back(byte);
}

size_t top_of(std::span<const float> values) {
  return static_cast<size_t>(std::ranges::max_element(values) - values.begin());
}

}  // namespace

std::vector<std::byte> kl_base_header(const Chunks& chunks, uint32_t n_vocab) {
  std::vector<std::byte> out;
  append<char>(out, kMagic);
  append<uint32_t>(out, std::array{chunks.n_ctx(), n_vocab, chunks.n_chunk()});
  append<int32_t>(out, std::span(chunks.tokens()).first(size_t{chunks.n_chunk()} * chunks.n_ctx()));
  return out;
}

std::vector<std::byte> kl_base_row(const Scored& scored) {
  const float high = scored.log_softmax.max();
  const float low = std::max(*std::ranges::min_element(scored.logits), high - kRange);
  const float scale = (high - low) / kSteps;
  const auto least = static_cast<float>(scored.log_softmax(low));
  std::vector<uint16_t> q((scored.logits.size() + 1) / 2 * 2);
  for (size_t i = 0; i < scored.logits.size() && scale > 0; ++i) {
    const float steps = std::round((scored.logits[i] - low) / scale);
    q[i] = static_cast<uint16_t>(std::clamp(steps, 0.0f, kSteps));
  }
  std::vector<std::byte> out;
  append<float>(out, std::array{scale, least});
  append<uint16_t>(out, q);
  return out;
}

void KlBase::refuse(const std::string& why) const {
  fail(ErrorKind::kModel, "'{}' is no base of logits: {}", printable(path_), why);
}

KlBase::KlBase(const std::string& path) : path_(path), file_(path, std::ios::binary | std::ios::ate) {
  if (!file_) fail(ErrorKind::kModel, "cannot open '{}': {}", printable(path), std::strerror(errno));
  const auto n_bytes = static_cast<uint64_t>(file_.tellg());
  char magic[sizeof kMagic];
  int32_t sizes[3];
  file_.seekg(0).read(magic, sizeof magic);
  if (!file_ || std::memcmp(magic, kMagic, sizeof magic) != 0) refuse("it does not begin with '_logits_'");
  file_.read(reinterpret_cast<char*>(sizes), sizeof sizes);
  for (const int32_t size : sizes) {
    if (!file_ || size <= 0 || size > kMaxSize) refuse(fmt::format("a size of {} is absurd", size));
  }
  n_ctx_ = static_cast<uint32_t>(sizes[0]);
  n_vocab_ = static_cast<uint32_t>(sizes[1]);
  n_chunk_ = static_cast<uint32_t>(sizes[2]);
  // Sizes are below 2^24, so the header's bytes do not overflow; the rows' could, hence the division.
  const uint64_t header = header_bytes(n_chunk_, n_ctx_), row = row_bytes(n_vocab_), rows = rows_of(n_ctx_);
  if (n_bytes < header || (n_bytes - header) / row / std::max<uint64_t>(rows, 1) < n_chunk_) {
    refuse(fmt::format("{} bytes are too few for {} chunks of {} tokens, {} in the vocabulary", n_bytes, n_chunk_,
                       n_ctx_, n_vocab_));
  }
  tokens_.resize(size_t{n_chunk_} * n_ctx_);
  file_.read(reinterpret_cast<char*>(tokens_.data()), static_cast<std::streamsize>(tokens_.size() * sizeof(int32_t)));
  if (!file_) refuse("it cannot be read");
}

void KlBase::check_same_text(const Chunks& chunks) const {
  LAMINA_CHECK(chunks.n_ctx() == n_ctx_ && chunks.n_chunk() <= n_chunk_);
  const auto end = tokens_.begin() + static_cast<ptrdiff_t>(size_t{chunks.n_chunk()} * n_ctx_);
  const auto [base, ours] = std::mismatch(tokens_.begin(), end, chunks.tokens().begin());
  if (base == end) return;
  fail(ErrorKind::kUsage, "token {} of the text is {}, but {} in '{}': another text or another tokenizer",
       base - tokens_.begin(), *ours, *base, printable(path_));
}

void KlBase::check_same_vocabulary(uint32_t n_vocab) const {
  if (n_vocab == n_vocab_) return;
  fail(ErrorKind::kUsage, "the model has {} tokens, but the one of '{}' had {}", n_vocab, printable(path_), n_vocab_);
}

const std::vector<float>& KlBase::log_probabilities(uint32_t chunk, uint32_t index) {
  const uint64_t row = chunk * rows_of(n_ctx_) + index;
  float parts[2];  // scale, least
  std::vector<uint16_t> q(n_vocab_);
  file_.seekg(static_cast<std::streamoff>(header_bytes(n_chunk_, n_ctx_) + row * row_bytes(n_vocab_)));
  file_.read(reinterpret_cast<char*>(parts), sizeof parts);
  file_.read(reinterpret_cast<char*>(q.data()), static_cast<std::streamsize>(q.size() * sizeof(uint16_t)));
  if (!file_) refuse(fmt::format("row {} cannot be read", row));
  if (!std::isfinite(parts[0]) || !std::isfinite(parts[1])) refuse(fmt::format("row {} is not finite", row));
  log_probabilities_.resize(n_vocab_);
  for (size_t i = 0; i < q.size(); ++i) log_probabilities_[i] = parts[0] * q[i] + parts[1];
  return log_probabilities_;
}

TokenDivergence compare(const Scored& scored, const std::vector<float>& base) {
  TokenDivergence result;
  result.nll = scored.nll();
  result.nll_base = -base[static_cast<size_t>(scored.token)];
  for (size_t i = 0; i < base.size(); ++i) {
    if (base[i] > -kRange) result.kl += std::exp(base[i]) * (base[i] - scored.log_softmax(scored.logits[i]));
  }
  result.delta_p = std::exp(-result.nll) - std::exp(-result.nll_base);
  result.same_top = top_of(scored.logits) == top_of(base);
  return result;
}

void KlStatistics::add(const TokenDivergence& token) {
  nll_.add(token.nll);
  nll_base_.add(token.nll_base);
  log_ratio_.add(token.nll - token.nll_base);
  kl_.add(token.kl);
  delta_p_.add(token.delta_p);
  squared_delta_p_.add(token.delta_p * token.delta_p);
  same_top_.add(token.same_top ? 1 : 0);
  kl_values_.push_back(static_cast<float>(token.kl));
  delta_p_values_.push_back(static_cast<float>(token.delta_p));
}

double KlStatistics::covariance() const {  // var(a - b) = var(a) + var(b) - 2 cov(a, b)
  return (nll_.variance() + nll_base_.variance() - log_ratio_.variance()) / 2;
}

double KlStatistics::correlation() const {
  const double product = nll_.variance() * nll_base_.variance();
  return product > 0 ? covariance() / std::sqrt(product) : 0;
}

Estimate KlStatistics::ratio() const {
  const double value = std::exp(log_ratio_.mean());
  return {value, value * log_ratio_.error()};
}

Estimate KlStatistics::difference() const {
  const Estimate ours = perplexity(), base = base_perplexity();
  const double shared = nll_.n() > 1 ? ours.value * base.value * covariance() / static_cast<double>(nll_.n() - 1) : 0;
  const double variance = ours.error * ours.error + base.error * base.error - 2 * shared;
  return {ours.value - base.value, std::sqrt(std::max(0.0, variance))};
}

Estimate KlStatistics::rms_delta_p() const {
  const double rms = std::sqrt(squared_delta_p_.mean());
  return {rms, rms > 0 ? squared_delta_p_.error() / (2 * rms) : 0};
}

Estimate KlStatistics::same_top() const { return same_top_.estimate(); }

double KlStatistics::quantile(std::vector<float> values, double share) {
  std::ranges::sort(values);
  const double at = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, values.size() - 1);
  const double part = at - static_cast<double>(below);
  return (1 - part) * values[below] + part * values[above];
}

}  // namespace lamina

// Attention of the reference: see attention.h.
#include "kernels/reference/attention.h"

#include <algorithm>
#include <cmath>

#include "kernels/reference/math.h"

namespace lamina::reference {
namespace {

/// Softmax-weighted values so far: the highest score, the sum of the weights and the weighted sum of V.
struct Running {
  explicit Running(size_t head_dim_v) : o(head_dim_v, 0.0f) {}
  float m = -kInfinity;
  float l = 0;
  std::vector<float> o;
};

/// What one page, or one head's whole attention, reads.
struct Head {
  const AttendOp& op;
  const KvPages& kv;
  std::span<const uint32_t> pages;
  uint32_t head_kv;
  std::span<const float> q;
  float scale;  ///< of the scores, temperature included
};

float score(const Head& head, uint32_t position) {
  const std::span<const float> k = head.kv.k(head.pages, position, head.head_kv);
  float dot = 0;
  for (size_t d = 0; d < k.size(); ++d) dot = std::fma(head.q[d], k[d], dot);
  const float scaled = dot * head.scale;
  return head.op.softcap != 0 ? softcap(scaled, head.op.softcap) : scaled;
}

/// Adds the positions [lo, hi) of one page; the others of the page are masked: their weight is exactly 0.
void add_page(const Head& head, uint32_t lo, uint32_t hi, Running& run) {
  float s[kPagePositions];
  float m_new = run.m;
  for (uint32_t p = lo; p < hi; ++p) {
    s[p % kPagePositions] = score(head, p);
    m_new = std::max(m_new, s[p % kPagePositions]);
  }
  float weight[kPagePositions] = {};
  for (uint32_t p = lo; p < hi; ++p) weight[p % kPagePositions] = exp(s[p % kPagePositions] - m_new);

  const float e = exp(run.m - m_new);
  run.m = m_new;
  run.l = std::fma(run.l, e, sum(weight));
  for (float& o : run.o) o = o * e;
  for (uint32_t p = lo; p < hi; ++p) {
    const std::span<const float> v = head.kv.v(head.pages, p, head.head_kv);
    for (size_t d = 0; d < v.size(); ++d) run.o[d] = std::fma(weight[p % kPagePositions], v[d], run.o[d]);
  }
}

/// Adds a finished split.
void merge(const Running& split, Running& total) {
  const float m_new = std::max(total.m, split.m);
  const float e0 = exp(total.m - m_new);
  const float e1 = exp(split.m - m_new);
  total.m = m_new;
  total.l = std::fma(split.l, e1, total.l * e0);
  for (size_t d = 0; d < total.o.size(); ++d) total.o[d] = std::fma(split.o[d], e1, total.o[d] * e0);
}

/// q8_0: d = f16(amax / 127), at most the highest f16, of 32 dimensions; the value is rne(clamp(x * (1 / d))) * d.
void store(KvType type, std::span<const float> x, float* to) {
  constexpr size_t kGroup = 32;
  if (type == KvType::kF16) {
    for (float value : x) *to++ = gguf::f16_to_f32(gguf::f32_to_f16(value));
    return;
  }
  for (size_t from = 0; from < x.size(); from += kGroup) {
    const std::span<const float> group = x.subspan(from, std::min(kGroup, x.size() - from));
    float amax = 0;
    for (float value : group) amax = std::max(amax, std::fabs(value));
    const float d = gguf::f16_to_f32(gguf::f32_to_f16(std::min(amax / 127.0f, 65504.0f)));
    const float inverse = d > 0 ? 1.0f / d : 0.0f;
    for (float value : group) *to++ = static_cast<float>(std::lrint(std::clamp(value * inverse, -127.0f, 127.0f))) * d;
  }
}

}  // namespace

void rotate(const Rope& rope, uint32_t position, std::span<float> head) {
  const size_t n_pairs = rope.inv_freq.size();
  for (size_t i = 0; i < n_pairs; ++i) {
    const double angle = position * rope.inv_freq[i];
    const float c = static_cast<float>(std::cos(angle) * rope.magnitude);
    const float s = static_cast<float>(std::sin(angle) * rope.magnitude);
    float& first = rope.pairs == RopePairs::kAdjacent ? head[2 * i] : head[i];
    float& second = rope.pairs == RopePairs::kAdjacent ? head[2 * i + 1] : head[i + n_pairs];
    const float x0 = first, x1 = second;
    first = std::fma(x0, c, -(x1 * s));
    second = std::fma(x0, s, x1 * c);
  }
}

KvPages::KvPages(const KvShape& shape, KvType type, uint32_t n_pages)
    : shape_(shape),
      type_(type),
      k_(size_t{n_pages} * kPagePositions * shape.n_head_kv * shape.head_dim_k),
      v_(size_t{n_pages} * kPagePositions * shape.n_head_kv * shape.head_dim_v) {}

size_t KvPages::row(std::span<const uint32_t> pages, uint32_t position, uint32_t head) const {
  const size_t slot = size_t{pages[position / kPagePositions]} * kPagePositions + position % kPagePositions;
  return slot * shape_.n_head_kv + head;
}

void KvPages::store_k(std::span<const uint32_t> pages, uint32_t position, uint32_t head,
                      std::span<const float> head_values) {
  float* to = &k_[row(pages, position, head) * shape_.head_dim_k];
  store(type_, head_values, to);
}

void KvPages::store_v(std::span<const uint32_t> pages, uint32_t position, uint32_t head,
                      std::span<const float> head_values) {
  float* to = &v_[row(pages, position, head) * shape_.head_dim_v];
  store(type_, head_values, to);
}

std::span<const float> KvPages::k(std::span<const uint32_t> pages, uint32_t position, uint32_t head) const {
  return {&k_[row(pages, position, head) * shape_.head_dim_k], shape_.head_dim_k};
}

std::span<const float> KvPages::v(std::span<const uint32_t> pages, uint32_t position, uint32_t head) const {
  return {&v_[row(pages, position, head) * shape_.head_dim_v], shape_.head_dim_v};
}

void attend(const AttendOp& op, const KvPages& kv, std::span<const uint32_t> pages, uint32_t position, uint32_t head_kv,
            std::span<const float> q, std::span<float> out) {
  const double steps = std::floor(static_cast<double>(position) / op.temperature.length);
  const double temperature = 1 + op.temperature.scale * std::log(1 + steps);
  const Head head{op, kv, pages, head_kv, q, static_cast<float>(op.scale * temperature)};
  const uint32_t lo = op.window != 0 && position >= op.window ? position - op.window + 1 : 0;
  const uint32_t hi = position + 1;
  Running total(out.size());
  for (uint32_t split = 0; split < hi; split += kSplitPositions) {
    Running run(out.size());
    bool visible = false;
    for (uint32_t page = split; page < std::min(split + kSplitPositions, hi); page += kPagePositions) {
      const uint32_t first = std::max(lo, page);
      const uint32_t last = std::min(hi, page + kPagePositions);
      if (first >= last) continue;
      add_page(head, first, last, run);
      visible = true;
    }
    if (visible) merge(run, total);
  }
  for (size_t d = 0; d < out.size(); ++d) out[d] = total.o[d] / total.l;
}

}  // namespace lamina::reference

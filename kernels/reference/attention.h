// Rotation, the KV pages and attention of the reference, exactly in the order of the promise (design, section 2).
// In: one query head or one key head at a time. Out: the rotated head; the attended head.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "kernels/program.h"

namespace lamina::reference {

/// Positions of one split: splits are merged in ascending order.
constexpr uint32_t kSplitPositions = 512;

/// Rotates the first n_rot dimensions of a head in place.
void rotate(const Rope& rope, uint32_t position, std::span<float> head);

/// One layer's pool of pages: values as their stored form (KvType) gives them back, kept as float32.
class KvPages {
 public:
  KvPages(const KvShape& shape, KvType type, uint32_t n_pages);

  /// `head_values` is rounded and stored at `position` of a sequence with the page table `pages`.
  void store_k(std::span<const uint32_t> pages, uint32_t position, uint32_t head, std::span<const float> head_values);
  void store_v(std::span<const uint32_t> pages, uint32_t position, uint32_t head, std::span<const float> head_values);

  std::span<const float> k(std::span<const uint32_t> pages, uint32_t position, uint32_t head) const;
  std::span<const float> v(std::span<const uint32_t> pages, uint32_t position, uint32_t head) const;

  const KvShape& shape() const { return shape_; }
  uint64_t bytes() const { return (k_.size() + v_.size()) * sizeof(float); }

 private:
  size_t row(std::span<const uint32_t> pages, uint32_t position, uint32_t head) const;

  KvShape shape_;
  KvType type_;
  std::vector<float> k_;  ///< [n_pages, 64, n_head_kv, head_dim_k]
  std::vector<float> v_;  ///< [n_pages, 64, n_head_kv, head_dim_v]
};

/// Attention of one query head at `position` over KV head `head_kv`; out has head_dim_v values.
void attend(const AttendOp& op, const KvPages& kv, std::span<const uint32_t> pages, uint32_t position, uint32_t head_kv,
            std::span<const float> q, std::span<float> out);

}  // namespace lamina::reference

// Keys, values and attention on the CPU. Appending: each thread takes some heads of some rows. Attending: threads draw
// jobs, each the query heads of some rows that read one KV head; when there are few jobs and many positions, each split
// of 512 positions is a task of its own, and the thread that ends a job's last one adds them up.
#include <algorithm>
#include <cmath>

#include "gguf/error.h"
#include "kernels/cpu/executable.h"

namespace lamina::cpu {

namespace {

static_assert(kPage == kPagePositions);

constexpr uint32_t groups(uint32_t head_dim) { return (head_dim + kKvGroup - 1) / kKvGroup; }

/// Bytes of one head in a page: see F16Pages and Q8Pages in attention.inl.
size_t head_bytes(KvType type, uint32_t head_dim) {
  return kPage * (type == KvType::kF16 ? size_t{head_dim} * 2 : size_t{head_dim} + 2 * size_t{groups(head_dim)});
}

/// Pages with slack behind them: attention loads 16 values at a time.
Memory reserve_pages(uint64_t n_pages, uint64_t page_bytes) {
  constexpr uint64_t kOverrun = 64;
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(n_pages, page_bytes, &bytes) || __builtin_add_overflow(bytes, kOverrun, &bytes)) {
    fail(ErrorKind::kMemory, "{} KV pages of {} bytes are more than 2^64 bytes", n_pages, page_bytes);
  }
  return {bytes, "the KV cache"};
}

/// Of the scores of a query at this position.
float scale_at(const AttendOp& op, uint32_t position) {
  const Temperature& t = op.temperature;
  return static_cast<float>(op.scale * (1 + t.scale * std::log(1.0 + position / t.length)));
}

void clear_part(float* part, uint32_t head_dim_v) {
  const size_t maximum = part_stride(head_dim_v) - 16;
  std::fill_n(part, part_stride(head_dim_v), 0.0f);
  part[maximum] = -INFINITY;
}

bool sees(const AttendQuery& query, uint32_t split) {
  return query.first < (split + 1) * kSplitPositions && query.last > split * kSplitPositions;
}

}  // namespace

LayerKv::LayerKv(const KvShape& shape, KvType kv_type, uint32_t n_pages)
    : type(kv_type),
      k_head(head_bytes(type, shape.head_dim_k)),
      v_head(head_bytes(type, shape.head_dim_v)),
      k_page(shape.n_head_kv * k_head),
      v_page(shape.n_head_kv * v_head),
      k(reserve_pages(n_pages, k_page)),
      v(reserve_pages(n_pages, v_page)) {}

void CpuExecutable::run_op(const AppendOp& op, size_t index, Worker worker) {
  const uint32_t n_heads = op.n_head + 2 * program_.kv[op.layer].n_head_kv;
  const auto [begin, end] = worker.share(uint64_t{n_rows(RowSet::kTokens)} * n_heads);
  for (uint32_t item = begin; item < end; item++) append_head(op, index, item / n_heads, item % n_heads);
}

/// One head of one row: those of q come first, then k's, then v's.
void CpuExecutable::append_head(const AppendOp& op, size_t index, uint32_t row, uint32_t head) {
  const KvShape& shape = program_.kv[op.layer];
  const LayerKv& layer = kv_[op.layer];
  const uint32_t dim_k = shape.head_dim_k, dim_v = shape.head_dim_v;
  const auto prepare = [&](float* x, uint32_t h, const std::optional<Norm>& norm, NormArgs args) {
    if (norm) {
      const uint32_t at = h * dim_k % args.n_weight;  // a weight may cover one head or all of them
      if (args.weight != nullptr) args.weight += at;
      if (args.bias != nullptr) args.bias += at;
      kernels_.norm(x, dim_k, args, nullptr, x);
    }
    if (op.rope >= 0) {
      const auto r = static_cast<size_t>(op.rope);
      const size_t n = program_.ropes[r].inv_freq.size();
      kernels_.rotate(x, static_cast<uint32_t>(n), program_.ropes[r].pairs == RopePairs::kHalves,
                      rotations_[r].cosines.as<float>() + row * n, rotations_[r].sines.as<float>() + row * n);
    }
  };
  if (head < op.n_head) return prepare(buffer(op.q).row(row) + head * dim_k, head, op.q_norm, norms_[2 * index]);
  const uint32_t at = step_->position[row] % kPage;
  const uint32_t page = step_->pages[step_->sequence[row]][step_->position[row] / kPage];
  head -= op.n_head;
  if (head < shape.n_head_kv) {
    float* k = buffer(op.k).row(row) + head * dim_k;
    prepare(k, head, op.k_norm, norms_[2 * index + 1]);
    std::byte* keys = layer.k_at(page, head);
    if (layer.type == KvType::kF16) {
      return kernels_.store_f16(k, dim_k, reinterpret_cast<uint16_t*>(keys) + at, kPage);
    }
    auto* scales = reinterpret_cast<uint16_t*>(keys + size_t{dim_k} * kPage);
    return kernels_.store_q8(k, dim_k, reinterpret_cast<uint8_t*>(keys) + at, kPage, scales + at, kPage);
  }
  head -= shape.n_head_kv;
  const float* v = buffer(op.v).row(row) + head * dim_v;
  std::byte* values = layer.v_at(page, head);
  if (layer.type == KvType::kF16) {
    return kernels_.store_f16(v, dim_v, reinterpret_cast<uint16_t*>(values) + size_t{at} * dim_v, 1);
  }
  auto* scales = reinterpret_cast<uint16_t*>(values + size_t{dim_v} * kPage);
  kernels_.store_q8(v, dim_v, reinterpret_cast<uint8_t*>(values) + size_t{at} * dim_v, 1,
                    scales + size_t{at} * groups(dim_v), 1);
}

void CpuExecutable::reserve_attention(const Capacity& capacity) {
  size_t stride = 0, together = 0;  // floats of a part, and of the parts of one row's heads
  for (const Op& op : program_.ops) {
    const auto* attend = std::get_if<AttendOp>(&op);
    if (attend == nullptr) continue;
    const size_t of_op = part_stride(program_.kv[attend->layer].head_dim_v);
    stride = std::max(stride, of_op);
    together = std::max(together, of_op * attend->n_head);
  }
  attend_stride_ = 2 * kMostRows * kMostHeads * stride;
  attend_parts_ = Memory(static_cast<size_t>(pool_.size()) * attend_stride_ * sizeof(float), "activations");
  const uint64_t n_splits = uint64_t{capacity.n_pages} * kPage / kSplitPositions + 1;
  constexpr uint64_t kRowsApart = 2;  // more rows have jobs enough
  split_parts_ = Memory(kRowsApart * n_splits * together * sizeof(float), "activations");
  split_counters_ = std::vector<Counter>(4 * static_cast<size_t>(pool_.size()));
  row_blocks_.reserve(capacity.max_rows);
}

/// The step's rows in blocks of one sequence: jobs of an attention.
void CpuExecutable::cut_rows() {
  const uint32_t n = n_rows(RowSet::kTokens);
  const uint32_t most = std::clamp(n / (2 * static_cast<uint32_t>(pool_.size())), 1u, kMostRows);
  row_blocks_.clear();
  for (uint32_t row = 0; row < n; row++) {
    const bool first = row == 0 || step_->sequence[row] != step_->sequence[row - 1];
    if (first || row - row_blocks_.back().begin == most) row_blocks_.push_back({row, row});
    row_blocks_.back().end = row + 1;
  }
}

void CpuExecutable::run_op(const AttendOp& op, size_t index, Worker worker) {
  const KvShape& shape = program_.kv[op.layer];
  const LayerKv& layer = kv_[op.layer];
  const uint32_t group = op.n_head / shape.n_head_kv, head_parts = (group + kMostHeads - 1) / kMostHeads;
  const auto n_jobs = static_cast<uint32_t>(row_blocks_.size()) * shape.n_head_kv * head_parts;
  const size_t stride = part_stride(shape.head_dim_v);
  static_assert(kMostRows * kMostHeads <= kMostQueries);
  AttendQuery queries[kMostRows * kMostHeads];
  float* out[kMostRows * kMostHeads];
  AttendArgs args = {queries,      0,       nullptr,          nullptr,          layer.k_page,
                     layer.v_page, nullptr, shape.head_dim_k, shape.head_dim_v, op.softcap};
  const auto first_visible = [&](uint32_t row) {
    const uint32_t last = step_->position[row] + 1;
    return op.window != 0 && last > op.window ? last - op.window : 0;
  };
  const auto begin_job = [&](uint32_t job) {
    const RowBlock block = row_blocks_[job / head_parts / shape.n_head_kv];
    const uint32_t kv = job / head_parts % shape.n_head_kv, first = job % head_parts * kMostHeads;
    args.n_queries = 0;
    args.k_pages = layer.k_at(0, kv);
    args.v_pages = layer.v_at(0, kv);
    args.page_table = step_->pages[step_->sequence[block.begin]].data();
    for (uint32_t row = block.begin; row < block.end; row++) {
      const float scale = scale_at(op, step_->position[row]);
      for (uint32_t i = first; i < std::min(first + kMostHeads, group); i++) {
        const uint32_t h = kv * group + i;
        out[args.n_queries] = buffer(op.out).row(row) + h * shape.head_dim_v;
        queries[args.n_queries++] = {buffer(op.q).row(row) + h * shape.head_dim_k, scale, first_visible(row),
                                     step_->position[row] + 1};
      }
    }
  };
  const auto attend = layer.type == KvType::kF16 ? kernels_.attend_f16 : kernels_.attend_q8;

  uint32_t first_split = UINT32_MAX, end_split = 0, most_rows = 0;
  for (const RowBlock& block : row_blocks_) {
    most_rows = std::max(most_rows, block.end - block.begin);
    first_split = std::min(first_split, first_visible(block.begin) / kSplitPositions);
    end_split = std::max(end_split, step_->position[block.end - 1] / kSplitPositions + 1);
  }
  const uint32_t n_splits = end_split - first_split;
  const size_t most_queries = std::min<size_t>(group, kMostHeads) * most_rows;
  const bool apart = n_splits > 1 && n_jobs < 4 * static_cast<uint32_t>(pool_.size()) &&
                     n_jobs * n_splits * most_queries * stride * sizeof(float) <= split_parts_.bytes();
  if (!apart) {
    float* total = attend_parts_.as<float>() + static_cast<size_t>(worker.thread) * attend_stride_;
    float* parts = total + kMostRows * kMostHeads * stride;
    draw(index, worker.thread, n_jobs, 1, [&](uint32_t job, uint32_t) {
      begin_job(job);
      for (uint32_t i = 0; i < args.n_queries; i++) clear_part(total + i * stride, shape.head_dim_v);
      const uint32_t end = (queries[args.n_queries - 1].last - 1) / kSplitPositions;
      for (uint32_t split = queries[0].first / kSplitPositions; split <= end; split++) {
        attend(args, split, parts);
        for (uint32_t i = 0; i < args.n_queries; i++) {
          if (sees(queries[i], split)) kernels_.merge_part(parts + i * stride, shape.head_dim_v, total + i * stride);
        }
      }
      for (uint32_t i = 0; i < args.n_queries; i++)
        kernels_.finish_attend(total + i * stride, shape.head_dim_v, out[i]);
    });
    return;
  }
  draw(index, worker.thread, n_jobs * n_splits, 1, [&](uint32_t task, uint32_t) {
    const uint32_t job = task / n_splits, split = task % n_splits;
    float* parts = split_parts_.as<float>() + size_t{job} * n_splits * most_queries * stride;
    begin_job(job);
    attend(args, first_split + split, parts + split * most_queries * stride);
    if (!split_counters_[job].complete(1, n_splits)) return;
    for (uint32_t i = 0; i < args.n_queries; i++) {
      float* total = attend_parts_.as<float>() + static_cast<size_t>(worker.thread) * attend_stride_;
      clear_part(total, shape.head_dim_v);
      for (uint32_t s = 0; s < n_splits; s++) {
        if (!sees(queries[i], first_split + s)) continue;
        kernels_.merge_part(parts + (s * most_queries + i) * stride, shape.head_dim_v, total);
      }
      kernels_.finish_attend(total, shape.head_dim_v, out[i]);
    }
  });
}

/// The keys or values that the step's rows have in a layer's pages.
std::vector<float> CpuExecutable::read_kv(const Place& place) const {
  const KvShape& shape = program_.kv[static_cast<size_t>(place.index)];
  const LayerKv& layer = kv_[static_cast<size_t>(place.index)];
  const bool keys = place.kind == Place::Kind::kKeys, half = layer.type == KvType::kF16;
  const uint32_t dim = keys ? shape.head_dim_k : shape.head_dim_v;
  std::vector<float> out;
  for (uint32_t row = 0; row < n_rows(RowSet::kTokens); row++) {
    const uint32_t at = step_->position[row] % kPage;
    const uint32_t page = step_->pages[step_->sequence[row]][step_->position[row] / kPage];
    for (uint32_t head = 0; head < shape.n_head_kv; head++) {
      const std::byte* values = keys ? layer.k_at(page, head) : layer.v_at(page, head);
      const auto* halves = reinterpret_cast<const uint16_t*>(values);
      const auto* scales = reinterpret_cast<const uint16_t*>(values + size_t{dim} * kPage);
      for (uint32_t i = 0; i < dim; i++) {
        const size_t value = keys ? size_t{i} * kPage + at : size_t{at} * dim + i;
        const size_t scale = keys ? size_t{i} / kKvGroup * kPage + at : size_t{at} * groups(dim) + i / kKvGroup;
        out.push_back(half ? gguf::f16_to_f32(halves[value])
                           : static_cast<float>(static_cast<int8_t>(values[value])) * gguf::f16_to_f32(scales[scale]));
      }
    }
  }
  return out;
}

}  // namespace lamina::cpu

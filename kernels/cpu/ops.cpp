// The ops of a step on the CPU, other than linear ones: each thread does its share of rows or heads.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "gguf/error.h"
#include "kernels/cpu/executable.h"

namespace lamina::cpu {

namespace {

/// Columns of a row that a thread combines at once.
constexpr uint32_t kCombineSlice = 256;

}  // namespace

/// cos and sin of every row's angles: range reduction in double, rounded to float32 once.
void CpuExecutable::rotations(Worker worker) {
  for (size_t r = 0; r < program_.ropes.size(); r++) {
    const Rope& rope = program_.ropes[r];
    const size_t n = rope.inv_freq.size();
    auto *cosines = rotations_[r].cosines.as<float>(), *sines = rotations_[r].sines.as<float>();
    const auto [begin, end] = worker.share(n_rows(RowSet::kTokens) * n);
    for (size_t i = begin; i < end; i++) {
      const double angle = step_->position[i / n] * rope.inv_freq[i % n];
      cosines[i] = static_cast<float>(std::cos(angle) * rope.magnitude);
      sines[i] = static_cast<float>(std::sin(angle) * rope.magnitude);
    }
  }
}

void CpuExecutable::run_op(const EmbedOp& op, size_t, Worker worker) {
  const auto read = [this](const Weight& table, uint32_t row, float* out) {
    if (const Planes* planes = weights_.whole(table.tensor)) return planes->decode_row(row, out);
    const gguf::Type& type = *table.tensor->type;
    const uint64_t bytes = uint64_t{table.n_cols} / type.block * type.bytes;
    gguf::dequantize(type, table.tensor->data.data() + row * bytes, table.n_cols, out);
  };
  const auto [begin, end] = worker.share(n_rows(RowSet::kTokens));
  const uint32_t n = buffer(op.out).width;
  for (uint32_t row = begin; row < end; row++) {
    float* x = buffer(op.out).row(row);
    read(op.table, static_cast<uint32_t>(step_->token[row]), x);
    if (op.scale != 1.0f) kernels_.scale(x, op.scale, n, x);
    if (op.positions) {
      read(*op.positions, step_->position[row], scratch(worker.thread));
      kernels_.add(x, scratch(worker.thread), n, x);
    }
  }
}

void CpuExecutable::run_op(const NormOp& op, size_t index, Worker worker) {
  const Rows& in = buffer(op.in);
  const auto [begin, end] = worker.share(n_rows(in.set));
  for (uint32_t row = begin; row < end; row++) {
    const float* residual = op.residual != kNoBuf ? buffer(op.residual).row(row) : nullptr;
    kernels_.norm(in.row(row), in.width, norms_[2 * index], residual, buffer(op.out).row(row));
  }
}

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
  const uint32_t position = step_->position[row], at = position % kPagePositions;
  const uint32_t page = step_->pages[step_->sequence[row]][position / kPagePositions];
  head -= op.n_head;
  if (head < shape.n_head_kv) {
    float* k = buffer(op.k).row(row) + head * dim_k;
    prepare(k, head, op.k_norm, norms_[2 * index + 1]);
    kernels_.store_f16(k, dim_k, layer.k.as<uint16_t>() + page * layer.k_stride + head * dim_k * kPagePositions + at,
                       kPagePositions);
    return;
  }
  head -= shape.n_head_kv;
  kernels_.store_f16(buffer(op.v).row(row) + head * dim_v, dim_v,
                     layer.v.as<uint16_t>() + page * layer.v_stride + (head * kPagePositions + at) * dim_v, 1);
}

namespace {

/// Of the scores of a query at this position.
float scale_at(const AttendOp& op, uint32_t position) {
  const Temperature& t = op.temperature;
  return static_cast<float>(op.scale * (1 + t.scale * std::log(1.0 + position / t.length)));
}

}  // namespace

void CpuExecutable::run_op(const AttendOp& op, size_t index, Worker worker) {
  const KvShape& shape = program_.kv[op.layer];
  const LayerKv& layer = kv_[op.layer];
  const uint32_t group = op.n_head / shape.n_head_kv, n_items = n_rows(RowSet::kTokens) * op.n_head;
  AttendArgs args;
  args.k_page_stride = layer.k_stride;
  args.v_page_stride = layer.v_stride;
  args.head_dim_k = shape.head_dim_k;
  args.head_dim_v = shape.head_dim_v;
  args.softcap = op.softcap;
  args.scratch = scratch(worker.thread);
  draw(index, worker.thread, n_items, 1, [&](uint32_t item, uint32_t) {
    const uint32_t row = item / op.n_head, h = item % op.n_head, kv = h / group;
    args.q = buffer(op.q).row(row) + h * shape.head_dim_k;
    args.out = buffer(op.out).row(row) + h * shape.head_dim_v;
    args.k_pages = layer.k.as<uint16_t>() + kv * shape.head_dim_k * kPagePositions;
    args.v_pages = layer.v.as<uint16_t>() + kv * shape.head_dim_v * kPagePositions;
    args.scale = scale_at(op, step_->position[row]);
    args.page_table = step_->pages[step_->sequence[row]].data();
    args.last = step_->position[row] + 1;
    args.first = op.window != 0 && args.last > op.window ? args.last - op.window : 0;
    kernels_.attend(args);
  });
}

/// Whoever completes the choices also orders the (token, expert) pairs by expert.
void CpuExecutable::run_op(const RouteOp& op, size_t, Worker worker) {
  const uint32_t rows = n_rows(RowSet::kTokens);
  const auto [begin, end] = worker.share(rows);
  for (uint32_t row = begin; row < end; row++) choose_experts(op, row, scratch(worker.thread));
  if (begin < end && done_[0].complete(end - begin, rows)) {
    pair_tiles_.sort_by_expert({chosen_.as<uint32_t>(), n_rows(RowSet::kPairs)}, op.n_expert);
  }
}

void CpuExecutable::choose_experts(const RouteOp& op, uint32_t row, float* p) {
  const uint32_t n = op.n_expert, used = op.n_used;
  const float* logits = buffer(op.logits).row(row);
  if (op.gating == Gating::kSoftmax) {
    kernels_.softmax(logits, n, p);
  } else if (op.gating == Gating::kSigmoid) {
    kernels_.sigmoid(logits, n, p);
  } else {
    std::copy_n(logits, n, p);
  }
  uint32_t* chosen = chosen_.as<uint32_t>() + size_t{row} * used;
  float* weight = expert_weights_.as<float>() + size_t{row} * used;
  // The `used` highest, the highest first, the lower index of equals first.
  uint32_t n_chosen = 0;
  for (uint32_t e = 0; e < n; e++) {
    if (n_chosen < used) n_chosen++;
    else if (!(p[e] > p[chosen[used - 1]])) continue;
    uint32_t at = n_chosen - 1;
    for (; at > 0 && p[e] > p[chosen[at - 1]]; at--) chosen[at] = chosen[at - 1];
    chosen[at] = e;
  }
  std::sort(chosen, chosen + used);
  for (uint32_t i = 0; i < used; i++) weight[i] = p[chosen[i]];
  if (op.gating == Gating::kSoftmaxOfChosen) kernels_.softmax(weight, used, weight);
  if (op.normalize) {
    constexpr float kLeastSum = 6.103515625e-5f;  // 2^-14, the least normal float16
    const float total = std::max(kernels_.sum(weight, used), kLeastSum);
    for (uint32_t i = 0; i < used; i++) weight[i] = weight[i] / total;
  }
  if (op.scale != 1.0f) kernels_.scale(weight, op.scale, used, weight);
}

void CpuExecutable::run_op(const CombineOp& op, size_t, Worker worker) {
  const uint32_t width = buffer(op.out).width, slice = std::min(width, kCombineSlice);
  const uint32_t n_slices = (width + slice - 1) / slice;
  const auto [begin, end] = worker.share(uint64_t{n_rows(RowSet::kTokens)} * n_slices);
  float* y = scratch(worker.thread);
  for (uint32_t item = begin; item < end; item++) {
    const uint32_t row = item / n_slices, column = item % n_slices * slice, n = std::min(slice, width - column);
    std::fill_n(y, n, 0.0f);
    for (uint32_t i = 0; i < op.n_used; i++) {
      const size_t pair = size_t{row} * op.n_used + i;
      kernels_.axpy(expert_weights_.as<float>()[pair], buffer(op.in).row(pair) + column, n, y);
    }
    float* out = buffer(op.out).row(row) + column;
    if (op.residual != kNoBuf) {
      kernels_.add(y, buffer(op.residual).row(row) + column, n, out);
    } else {
      std::copy_n(y, n, out);
    }
  }
}

void CpuExecutable::run_op(const SelectOp& op, size_t, Worker worker) {
  const auto [begin, end] = worker.share(n_rows(RowSet::kOutputs));
  for (uint32_t i = begin; i < end; i++) {
    std::copy_n(buffer(op.in).row(step_->outputs[i]), buffer(op.in).width, buffer(op.out).row(i));
  }
}

/// Where the logits were not offered as they were made.
void CpuExecutable::run_op(const ArgmaxOp& op, size_t, Worker worker) {
  const uint32_t width = buffer(op.logits).width;
  const auto [begin, end] = worker.share((width + kRowTile - 1) / kRowTile);
  for (uint32_t i = 0; i < n_rows(RowSet::kOutputs); i++) {
    for (uint32_t column = begin * kRowTile; column < std::min(width, end * kRowTile); column += kRowTile) {
      best_.offer(worker.thread, i, column, buffer(op.logits).row(i) + column, std::min(kRowTile, width - column));
    }
  }
}

}  // namespace lamina::cpu

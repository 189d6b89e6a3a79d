// The ops of a step on the CPU, other than linear ones and attention: each thread does its share of rows.
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

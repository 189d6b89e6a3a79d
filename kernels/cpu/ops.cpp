// The ops of a step on the CPU, other than linear ones and attention: each thread does its share of rows.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "gguf/error.h"
#include "kernels/cpu/executable.h"

namespace lamina::cpu {

/// cos and sin of every row's angles: range reduction in double, rounded to float32 once.
void CpuExecutable::rotations(int thread) {
  const auto [begin, end] = share(n_rows(RowSet::kTokens), thread);
  for (size_t r = 0; r < program_.ropes.size(); r++) {
    const Rope& rope = program_.ropes[r];
    const size_t n = rope.inv_freq.size();
    auto *cosines = rotations_[r].cosines.as<float>(), *sines = rotations_[r].sines.as<float>();
    for (uint32_t row = begin; row < end; row++) {
      for (size_t i = 0; i < n; i++) {
        const double angle = step_->position[row] * rope.inv_freq[i];
        cosines[row * n + i] = static_cast<float>(std::cos(angle) * rope.magnitude);
        sines[row * n + i] = static_cast<float>(std::sin(angle) * rope.magnitude);
      }
    }
  }
}

void CpuExecutable::run_op(const EmbedOp& op, size_t, int thread) {
  const auto read = [this](const Weight& table, uint32_t row, float* out) {
    if (const Planes* planes = weights_.whole(table.tensor)) return planes->decode_row(row, out);
    const gguf::Type& type = *table.tensor->type;
    const uint64_t bytes = uint64_t{table.n_cols} / type.block * type.bytes;
    gguf::dequantize(type, table.tensor->data.data() + row * bytes, table.n_cols, out);
  };
  const auto [begin, end] = share(n_rows(RowSet::kTokens), thread);
  const uint32_t n = buffer(op.out).width;
  for (uint32_t row = begin; row < end; row++) {
    float* x = buffer(op.out).row(row);
    read(op.table, static_cast<uint32_t>(step_->token[row]), x);
    if (op.scale != 1.0f) kernels_.scale(x, op.scale, n, x);
    if (op.positions) {
      read(*op.positions, step_->position[row], scratch(thread));
      kernels_.add(x, scratch(thread), n, x);
    }
  }
}

void CpuExecutable::run_op(const NormOp& op, size_t index, int thread) {
  const Rows& in = buffer(op.in);
  const auto [begin, end] = share(n_rows(in.set), thread);
  for (uint32_t row = begin; row < end; row++) {
    const float* residual = op.residual != kNoBuf ? buffer(op.residual).row(row) : nullptr;
    kernels_.norm(in.row(row), in.width, norms_[2 * index], residual, buffer(op.out).row(row));
  }
}

void CpuExecutable::run_op(const RouteOp& op, size_t, int thread) {
  const auto [begin, end] = share(n_rows(RowSet::kTokens), thread);
  for (uint32_t row = begin; row < end; row++) choose_experts(op, row, scratch(thread));
  pool_.barrier();
  if (thread == 0) group_pairs(op.n_expert);
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
  // The `used` highest, the lower index of equals first; a selection of few from few.
  for (uint32_t i = 0; i < used; i++) {
    int64_t best = -1;
    for (uint32_t e = 0; e < n; e++) {
      if (std::find(chosen, chosen + i, e) != chosen + i) continue;
      if (best < 0 || p[e] > p[best]) best = e;
    }
    chosen[i] = static_cast<uint32_t>(best);
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

/// Orders the (token, expert) pairs by expert and cuts them into tiles.
void CpuExecutable::group_pairs(uint32_t n_expert) {
  const uint32_t n = n_rows(RowSet::kPairs);
  pair_tiles_.clear();
  std::vector<std::vector<uint32_t>> by_expert(n_expert);
  for (uint32_t pair = 0; pair < n; pair++) by_expert[chosen_.as<uint32_t>()[pair]].push_back(pair);
  for (uint32_t e = 0; e < n_expert; e++) {
    const auto begin = static_cast<uint32_t>(pair_tiles_.rows.size());
    pair_tiles_.rows.insert(pair_tiles_.rows.end(), by_expert[e].begin(), by_expert[e].end());
    pair_tiles_.add_tiles(e, begin);
  }
}

void CpuExecutable::run_op(const CombineOp& op, size_t, int thread) {
  const auto [begin, end] = share(n_rows(RowSet::kTokens), thread);
  const uint32_t n = buffer(op.out).width;
  float* y = scratch(thread);
  for (uint32_t row = begin; row < end; row++) {
    std::fill_n(y, n, 0.0f);
    for (uint32_t i = 0; i < op.n_used; i++) {
      const size_t pair = size_t{row} * op.n_used + i;
      kernels_.axpy(expert_weights_.as<float>()[pair], buffer(op.in).row(pair), n, y);
    }
    float* out = buffer(op.out).row(row);
    if (op.residual != kNoBuf) {
      kernels_.add(y, buffer(op.residual).row(row), n, out);
    } else {
      std::copy_n(y, n, out);
    }
  }
}

void CpuExecutable::run_op(const SelectOp& op, size_t, int thread) {
  const auto [begin, end] = share(n_rows(RowSet::kOutputs), thread);
  for (uint32_t i = begin; i < end; i++) {
    std::copy_n(buffer(op.in).row(step_->outputs[i]), buffer(op.in).width, buffer(op.out).row(i));
  }
}

void CpuExecutable::run_op(const ArgmaxOp& op, size_t, int thread) {
  const auto [begin, end] = share(n_rows(RowSet::kOutputs), thread);
  for (uint32_t i = begin; i < end; i++) {
    argmax_[i] = static_cast<int32_t>(kernels_.argmax(buffer(op.logits).row(i), buffer(op.logits).width));
  }
}

}  // namespace lamina::cpu

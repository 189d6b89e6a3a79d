// Binds a program to memory and kernels, and runs steps. The ops themselves: ops.cpp, linear.cpp.
#include "kernels/cpu/executable.h"

#include <algorithm>

#include "gguf/error.h"
#include "kernels/memory_limits.h"

namespace lamina::cpu {

namespace {

uint32_t padded(uint32_t n) { return (n + kRowTile - 1) / kRowTile * kRowTile; }

}  // namespace

CpuExecutable::CpuExecutable(const Program& program, const gguf::File& file, const Capacity& capacity,
                             const Kernels& kernels, Pool& pool, const std::string& plane_cache,
                             const Progress& progress)
    : program_(program), kernels_(kernels), pool_(pool), weights_(program_, file, kernels, pool, plane_cache) {
  const uint64_t pairs = uint64_t{capacity.max_rows} * program_.n_expert_used;
  uint32_t widest = 0, most_heads = 1, most_experts = 1;
  for (const Buffer& b : program_.buffers) {
    const uint64_t rows = b.rows == RowSet::kTokens  ? capacity.max_rows
                          : b.rows == RowSet::kPairs ? pairs
                                                     : capacity.max_outputs;
    const uint32_t stride = padded(b.width);
    buffers_.push_back({Memory(rows * stride * sizeof(float), "activations"), b.width, stride, b.rows});
    widest = std::max(widest, stride);
  }
  for (const KvShape& shape : program_.kv) kv_.emplace_back(shape, capacity.kv_type, capacity.n_pages);
  reserve_attention(capacity);

  linears_.resize(program_.ops.size());
  norms_.resize(2 * program_.ops.size());
  for (size_t i = 0; i < program_.ops.size(); i++) {
    const Op& op = program_.ops[i];
    if (const auto* linear = std::get_if<LinearOp>(&op)) {
      linears_[i] = bind(*linear, capacity);
    } else if (const auto* norm = std::get_if<NormOp>(&op)) {
      norms_[2 * i] = bind(norm->norm, buffer(norm->in).width);
    } else if (const auto* append = std::get_if<AppendOp>(&op)) {
      const KvShape& shape = program_.kv[append->layer];
      const uint32_t head_dim = shape.head_dim_k;
      most_heads = std::max(most_heads, append->n_head + 2 * shape.n_head_kv);
      if (append->q_norm) norms_[2 * i] = bind(*append->q_norm, head_dim);
      if (append->k_norm) norms_[2 * i + 1] = bind(*append->k_norm, head_dim);
    } else if (const auto* route = std::get_if<RouteOp>(&op)) {
      most_experts = std::max(most_experts, route->n_expert);
    }
  }
  for (size_t i = 0; i < program_.ops.size(); i++)
    if (std::holds_alternative<LinearOp>(program_.ops[i])) bind_tail(i);
  counters_ = std::vector<Counter>(program_.ops.size() * static_cast<size_t>(pool.size()));
  done_ = std::vector<Counter>(most_heads);
  packed_.allocate();
  own_packed_.resize(static_cast<size_t>(pool.size()));
  for (PackedRows& packed : own_packed_) {
    packed.reserve(PackedRows::slots(1, true), kPackAlone + 1, {true, true, true, true});
    packed.allocate();
  }
  // A thread's scratch holds one row of any buffer and the accumulators of a matmul call.
  scratch_stride_ = 2 * size_t{widest} + kMaxRowTiles * kMaxTokenTile * kRowTile;
  scratch_ = Memory(static_cast<size_t>(pool.size()) * scratch_stride_ * sizeof(float), "activations");
  panels_ = Memory(static_cast<size_t>(pool_.size()) * panel_stride_ * sizeof(uint32_t), "activations");
  for (const Rope& rope : program_.ropes) {
    const uint64_t bytes = rope.inv_freq.size() * capacity.max_rows * sizeof(float);
    rotations_.push_back({Memory(bytes, "activations"), Memory(bytes, "activations")});
  }
  chosen_ = Memory(pairs * sizeof(uint32_t), "activations");
  expert_weights_ = Memory(pairs * sizeof(float), "activations");
  best_.allocate(pool.size(), capacity.max_outputs);
  token_tiles_.reserve(capacity.max_rows, 1);
  output_tiles_.reserve(capacity.max_outputs, 1);
  pair_tiles_.reserve(static_cast<uint32_t>(pairs), most_experts);

  // All of that is address space so far, which costs nothing: compare it with what there is before it is touched.
  const uint64_t kv = kv_bytes(), weights = weights_.memory_bytes();
  const auto mib = [](uint64_t bytes) { return bytes / 1024 / 1024; };
  const uint64_t needed = memory_bytes() - weights_.bytes() + weights;  // pages of a cache can be dropped
  require_memory(needed, fmt::format("the model ({} MiB of weights, {} of keys and values, {} of buffers)",
                                     mib(weights), mib(kv), mib(needed - kv - weights)));
  weights_.load(file, pool_, progress);
}

NormArgs CpuExecutable::bind(const Norm& norm, uint32_t n) {
  const uint32_t n_weight = norm.weight ? norm.weight.n : n;
  LAMINA_CHECK(n_weight % n == 0);  // over heads: one weight for each head, or the same for all
  return {norm.kind == NormKind::kLayer, norm.eps, weights_.vector(norm.weight, n_weight),
          weights_.vector(norm.bias, norm.bias ? norm.bias.n : n), n_weight};
}

CpuExecutable::BoundLinear CpuExecutable::bind(const LinearOp& op, const Capacity& capacity) {
  BoundLinear bound;
  bound.n_cols = buffer(op.in).width;
  if (op.norm) bound.norm = bind(*op.norm, bound.n_cols);
  for (const Product& product : op.products) {
    const Weight& w = product.weight;
    LAMINA_CHECK(w.n_cols == bound.n_cols && w.n_rows == buffer(product.out).width);
    LAMINA_CHECK(product.out != op.in && product.out != op.gate);
    BoundProduct p;
    p.product = &product;
    p.matrix = &weights_.matrix(w);
    p.scale = weights_.vector(product.scale, 1, w.n_expert);
    p.bias = weights_.vector(product.bias, w.n_rows, w.n_expert);
    p.bias_stride = padded(w.n_rows);
    p.n_row_tiles = p.bias_stride / kRowTile;
    bound.n_row_tiles += p.n_row_tiles;
    const gguf::Type& type = *w.tensor->type;
    const bool quant = type.kind == gguf::TypeKind::kQuant, bf16 = type.id == gguf::TypeId::kBF16;
    bound.forms.quant |= quant;
    bound.forms.pairs |= bf16 && kernels_.bf16_pairs;
    bound.forms.rounded |= bf16 && !kernels_.bf16_pairs;
    bound.forms.floats |= !quant && !bf16;
    if (quant) panel_stride_ = std::max(panel_stride_, panel_tiles(bound.n_cols) * panel_words(bound.n_cols));
    // A token reads every dense weight, and of the experts the chosen ones.
    const uint64_t used = std::min(w.n_expert, w.n_expert > 1 ? program_.n_expert_used : 1);
    bytes_per_token_ += p.matrix->bytes() / w.n_expert * used;
    bound.out = buffer(product.out).set;
    bound.products.push_back(p);
  }
  const bool experts = bound.out == RowSet::kPairs;
  const uint32_t rows = experts                         ? capacity.max_rows * program_.n_expert_used
                        : bound.out == RowSet::kOutputs ? capacity.max_outputs
                                                        : capacity.max_rows;
  packed_.reserve(PackedRows::slots(rows, experts), bound.n_cols, bound.forms);
  return bound;
}

/// Whether q, k and v are the products of `op`, in this order and their heads in whole row tiles.
bool CpuExecutable::is_append_of(const AppendOp& append, const LinearOp& op) const {
  const KvShape& shape = program_.kv[append.layer];
  return op.products.size() == 3 && op.products[0].out == append.q && op.products[1].out == append.k &&
         op.products[2].out == append.v && shape.head_dim_k % kRowTile == 0 && shape.head_dim_v % kRowTile == 0;
}

/// Finds the ops behind linear op `index` that may run in its tail: the append of its heads, or small ops on whole
/// rows. None may write the linear op's input, which another thread may not have read yet.
void CpuExecutable::bind_tail(size_t index) {
  const std::vector<Op>& ops = program_.ops;
  const auto& op = std::get<LinearOp>(ops[index]);
  BoundLinear& bound = linears_[index];
  if (bound.out == RowSet::kPairs || index + 1 == ops.size()) return;
  if (const auto* append = std::get_if<AppendOp>(&ops[index + 1])) {
    if (!is_append_of(*append, op)) return;
    bound.append = append;
    bound.n_tail = 1;
  } else if (const auto* argmax = std::get_if<ArgmaxOp>(&ops[index + 1])) {
    bound.offers = op.products.size() == 1 && op.products[0].out == argmax->logits && bound.out == RowSet::kOutputs;
  } else {
    const auto is_small = [&op](const Op& other) {
      const auto keeps_input = [&op](Buf out) { return out != op.in && out != op.gate; };
      if (const auto* norm = std::get_if<NormOp>(&other)) return keeps_input(norm->out);
      if (const auto* select = std::get_if<SelectOp>(&other)) return keeps_input(select->out);
      return std::holds_alternative<RouteOp>(other);
    };
    while (index + 1 + bound.n_tail < ops.size() && is_small(ops[index + 1 + bound.n_tail])) bound.n_tail++;
  }
}

void CpuExecutable::begin(const Step& step, bool traced) {
  step_ = &step;
  traced_ = traced;
  n_best_ = traced ? 0 : step.n_best;
  const auto rows = static_cast<uint32_t>(step.token.size()), outputs = static_cast<uint32_t>(step.outputs.size());
  tails_ = !traced && rows <= kTailRows;
  if (token_tiles_.rows.size() != rows) token_tiles_.set_identity(rows);
  if (output_tiles_.rows.size() != outputs) output_tiles_.set_identity(outputs);
  best_.begin(outputs, std::max(1u, step.n_best));
  cut_rows();
  for (Counter& counter : counters_) counter.next.store(0, std::memory_order_relaxed);
}

void CpuExecutable::run(const Step& step) {
  begin(step, false);
  pool_.run([this](int thread) { walk(thread); });
  best_.merge();
  step_ = nullptr;
}

void CpuExecutable::trace(const Step& step, const AfterOp& after_op) {
  begin(step, true);
  pool_.run([this](int thread) { rotations(everybody(thread)); });
  bool go_on = true;
  for (size_t i = 0; go_on && i < program_.ops.size(); i++) {
    pool_.run([this, i](int thread) { run_op(i, everybody(thread)); });
    if (std::holds_alternative<ArgmaxOp>(program_.ops[i])) best_.merge();
    go_on = after_op(i);
  }
  step_ = nullptr;
}

void CpuExecutable::walk(int thread) {
  rotations(everybody(thread));
  for (size_t i = 0; i < program_.ops.size(); i++) {
    run_op(i, everybody(thread));
    if (linears_[i].offers) i++;
    else if (tails_) i += linears_[i].n_tail;
    pool_.barrier();
  }
}

void CpuExecutable::run_op(size_t index, Worker worker) {
  std::visit([&](const auto& op) { run_op(op, index, worker); }, program_.ops[index]);
}

bool CpuExecutable::Counter::complete(uint32_t n, uint32_t all) {
  if (next.fetch_add(n, std::memory_order_acq_rel) + n < all) return false;
  next.store(0, std::memory_order_relaxed);
  return true;
}

std::vector<float> CpuExecutable::read(const Place& place) const {
  const uint32_t width = width_of(program_, place);
  const auto first = [&](const auto* values, uint32_t rows) {
    return std::vector<float>(values, values + size_t{rows} * width);
  };
  switch (place.kind) {
    case Place::Kind::kBuffer: {
      std::vector<float> out;
      const Rows& rows = buffer(place.index);
      for (uint32_t row = 0; row < n_rows(rows.set); row++) out.insert(out.end(), rows.row(row), rows.row(row) + width);
      return out;
    }
    case Place::Kind::kKeys:
    case Place::Kind::kValues: return read_kv(place);
    case Place::Kind::kExperts: return first(chosen_.as<uint32_t>(), n_rows(RowSet::kTokens));
    case Place::Kind::kExpertWeights: return first(expert_weights_.as<float>(), n_rows(RowSet::kTokens));
    case Place::Kind::kArgmax: {
      std::vector<float> out;
      for (uint32_t i = 0; i < n_rows(RowSet::kOutputs); i++)
        out.push_back(static_cast<float>(best_token(best_.of(i))));
      return out;
    }
  }
  return {};
}

std::span<const float> CpuExecutable::logits(uint32_t i) {
  LAMINA_CHECK(n_best_ == 0);
  return {buffer(program_.logits).row(i), program_.n_vocab};
}

uint64_t CpuExecutable::kv_bytes() const {
  uint64_t n = 0;
  for (const LayerKv& layer : kv_) n += layer.k.bytes() + layer.v.bytes();
  return n;
}

uint64_t CpuExecutable::memory_bytes() const {
  uint64_t n = weights_.bytes() + kv_bytes() + packed_.bytes() + scratch_.bytes() + panels_.bytes() +
               attend_parts_.bytes() + split_parts_.bytes();
  for (const PackedRows& packed : own_packed_) n += packed.bytes();
  n += chosen_.bytes() + expert_weights_.bytes() + best_.bytes();
  for (const Rows& rows : buffers_) n += rows.memory.bytes();
  for (const Rotations& rotations : rotations_) n += rotations.cosines.bytes() + rotations.sines.bytes();
  return n;
}

uint32_t CpuExecutable::n_rows(RowSet set) const {
  const auto tokens = static_cast<uint32_t>(step_->token.size());
  switch (set) {
    case RowSet::kTokens: return tokens;
    case RowSet::kPairs: return tokens * program_.n_expert_used;
    case RowSet::kOutputs: return static_cast<uint32_t>(step_->outputs.size());
  }
  return 0;
}

const TileList& CpuExecutable::tiles(RowSet set) const {
  return set == RowSet::kTokens ? token_tiles_ : set == RowSet::kPairs ? pair_tiles_ : output_tiles_;
}

}  // namespace lamina::cpu

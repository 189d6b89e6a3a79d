// Binds a program to buffers and kernel arguments. Steps and results: steps.cpp; the ops: ops.cpp.
#include "kernels/opencl/executable.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "gguf/error.h"
#include "kernels/memory_limits.h"

namespace lamina::opencl {

namespace {

uint32_t padded(uint32_t n) { return (n + kRowTile - 1) / kRowTile * kRowTile; }

uint32_t form_of(const gguf::Type& type) {
  if (type.kind == gguf::TypeKind::kQuant) return LAMINA_FORM_QUANT;
  return type.id == gguf::TypeId::kBF16 ? LAMINA_FORM_BF16 : LAMINA_FORM_FLOAT;
}

}  // namespace

OpenClExecutable::OpenClExecutable(const Program& program, const gguf::File& file, const Capacity& capacity,
                                   const Target& target, KernelStore& store, Pool& pool, const Progress& progress)
    : program_(program), target_(target), capacity_(capacity), kernels_(store), weights_(target) {
  plan();
  allocate();
  weights_.load(file, pool, progress);
  upload_rotations();
}

OpenClExecutable::~OpenClExecutable() { clFinish(target_.queue.get()); }

/// Rows that a step has at most.
uint64_t OpenClExecutable::most_rows(RowSet set) const {
  switch (set) {
    case RowSet::kTokens: return capacity_.max_rows;
    case RowSet::kPairs: return uint64_t{capacity_.max_rows} * program_.n_expert_used;
    case RowSet::kOutputs: return capacity_.max_outputs;
  }
  return 0;
}

/// Where everything goes, and how much that is; nothing is allocated yet.
void OpenClExecutable::plan() {
  for (const auto& b : program_.buffers) buffers_.push_back({{}, b.width, padded(b.width), b.rows, most_rows(b.rows)});
  const size_t n_ops = program_.ops.size();
  linears_.resize(n_ops);
  norms_.resize(n_ops);
  temperatures_.resize(n_ops, LAMINA_NONE);
  tables_.resize(n_ops);
  position_tables_.resize(n_ops);
  for (size_t i = 0; i < n_ops; i++) {
    const Op& op = program_.ops[i];
    if (const auto* embed = std::get_if<EmbedOp>(&op)) {
      tables_[i] = &weights_.matrix(embed->table);
      if (embed->positions) position_tables_[i] = &weights_.matrix(*embed->positions);
    } else if (const auto* linear = std::get_if<LinearOp>(&op)) {
      linears_[i] = bind(*linear);
    } else if (const auto* norm = std::get_if<NormOp>(&op)) {
      norms_[i][0] = bind(norm->norm, buffer(norm->in).width);
    } else if (const auto* append = std::get_if<AppendOp>(&op)) {
      const KvShape& shape = program_.kv[append->layer];
      const uint32_t head_dim = shape.head_dim_k;
      if (std::max(head_dim, shape.head_dim_v) > LAMINA_MOST_HEAD_DIM) {
        fail(ErrorKind::kDevice, "append of layer {}: heads of {} and {} dimensions; device opencl has room for {}",
             append->layer, head_dim, shape.head_dim_v, LAMINA_MOST_HEAD_DIM);
      }
      norms_[i] = {bind(append->q_norm, head_dim), bind(append->k_norm, head_dim)};
    } else if (const auto* attend = std::get_if<AttendOp>(&op)) {
      temperatures_[i] = bind_temperature(*attend);
    }
  }
  plan_scratch();
}

/// Sizes of what ops share.
void OpenClExecutable::plan_scratch() {
  const uint64_t positions = n_positions();
  for (size_t i = 0; i < program_.ops.size(); i++) {
    if (const auto* linear = std::get_if<LinearOp>(&program_.ops[i])) {
      for (const Group& group : linears_[i].groups) {
        packed_words_ = std::max(packed_words_, buffer(linear->in).n_rows *
                                                    LAMINA_PACKED_WORDS(group.form, uint64_t{linears_[i].pack.n_cols}));
      }
    } else if (const auto* attend = std::get_if<AttendOp>(&program_.ops[i])) {
      const uint64_t splits = positions / LAMINA_SPLIT + 1;
      const uint64_t row = attend->n_head * splits * LAMINA_PART_FLOATS(program_.kv[attend->layer].head_dim_v);
      part_floats_ = std::max(part_floats_, std::max(row, std::min(row * capacity_.max_rows, kMostPartFloats)));
    }
  }
  uint64_t n_pairs = 0;
  for (const Rope& rope : program_.ropes) n_pairs += rope.inv_freq.size();
  step_words_ =
      3 * uint64_t{capacity_.max_rows} + capacity_.max_outputs + uint64_t{capacity_.max_rows} * capacity_.n_pages;
  uint64_t kv = 0, rows = 0;
  for (const KvShape& s : program_.kv) kv += positions * s.n_head_kv * (s.head_dim_k + s.head_dim_v) * sizeof(uint16_t);
  for (const Rows& b : buffers_) rows += b.n_rows * b.stride * sizeof(float);
  const uint64_t words = packed_words_ + part_floats_ + 2 * most_rows(RowSet::kPairs) + 2 * n_pairs * positions +
                         step_words_ + (2 * kMostArgmaxParts + 2) * uint64_t{capacity_.max_outputs};
  const uint64_t weights = weights_.bytes(), others = rows + words * sizeof(uint32_t);
  memory_bytes_ = weights + kv + others;
  const auto mib = [](uint64_t bytes) { return bytes / 1024 / 1024; };
  const std::string parts = fmt::format("the model ({} MiB of weights, {} of keys and values, {} of buffers)",
                                        mib(weights), mib(kv), mib(others));
  if (memory_bytes_ > target_.info.memory) {
    fail(ErrorKind::kMemory, "{} MiB are needed for {}, but {} has {} MiB", mib(memory_bytes_), parts,
         target_.info.name, mib(target_.info.memory));
  }
  if (target_.info.is_cpu) require_memory(memory_bytes_, parts);
}

launch::NormArgs OpenClExecutable::bind(const std::optional<Norm>& norm, uint32_t n) {
  if (!norm) return {0, 0, LAMINA_NONE, LAMINA_NONE, 1};
  const uint32_t n_weight = norm->weight ? norm->weight.n : n;
  LAMINA_CHECK(n_weight % n == 0);  // over heads: one weight for each head, or the same for all
  return {norm->kind == NormKind::kRms ? 1u : 2u, norm->eps, weights_.vector(norm->weight, n_weight),
          weights_.vector(norm->bias, norm->bias ? norm->bias.n : n), n_weight};
}

OpenClExecutable::BoundLinear OpenClExecutable::bind(const LinearOp& op) {
  BoundLinear bound;
  const uint32_t n_cols = buffer(op.in).width;
  bound.pack = {0,
                n_cols,
                stride(op.in),
                bind(op.norm, n_cols),
                op.activation ? 1 + static_cast<uint32_t>(*op.activation) : 0u,
                op.gate != kNoBuf,
                stride(op.gate)};
  for (const Product& product : op.products) {
    const Weight& w = product.weight;
    LAMINA_CHECK(w.n_cols == n_cols && w.n_rows == buffer(product.out).width);
    bound.out = buffer(product.out).set;
    const Matrix& matrix = weights_.matrix(w);
    const bool experts = w.n_expert > 1;
    // A token reads every dense weight, and of the experts the chosen ones.
    bytes_per_token_ += matrix.bytes() / w.n_expert * std::min(w.n_expert, experts ? program_.n_expert_used : 1);
    for (const Part& part : matrix.parts) {
      const auto fits = [&](const Group& g) {
        return g.type == w.tensor->type && g.parts.size() < LAMINA_MOST_PRODUCTS && g.args.experts == experts &&
               g.args.first_expert == part.first_expert && g.args.n_expert == part.n_expert;
      };
      auto group = std::find_if(bound.groups.begin(), bound.groups.end(), fits);
      if (group == bound.groups.end()) {
        group = bound.groups.insert(group, Group{w.tensor->type, form_of(*w.tensor->type), {}, {}, {}, 0});
        const bool spread = bound.out == RowSet::kPairs && buffer(op.in).set == RowSet::kTokens;
        group->args = {0, 0, n_cols, spread ? program_.n_expert_used : 1, experts, part.first_expert, part.n_expert,
                       {}};
      }
      group->args.product[group->args.n_products++] = {part.planes,
                                                       part.first_row,
                                                       part.n_rows,
                                                       stride(product.out),
                                                       weights_.vector(product.scale, 1, w.n_expert),
                                                       weights_.vector(product.bias, w.n_rows, w.n_expert),
                                                       kRowTile,
                                                       padded(w.n_rows),
                                                       product.multiply,
                                                       product.softcap,
                                                       product.residual != kNoBuf,
                                                       stride(product.residual)};
      group->parts.push_back(&part);
      group->products.push_back(&product);
      group->n_row_tiles += part.planes.n_row_tiles;
    }
  }
  std::stable_sort(bound.groups.begin(), bound.groups.end(),
                   [](const Group& a, const Group& b) { return a.form < b.form; });
  for (const Group& group : bound.groups) {
    const uint32_t words = LAMINA_PACKED_WORDS(group.form, n_cols);
    if (words * sizeof(uint32_t) <= target_.info.local_memory / 2) most_alone_ = std::max(most_alone_, words);
  }
  return bound;
}

/// The scales of scores by position, where they differ.
uint32_t OpenClExecutable::bind_temperature(const AttendOp& op) {
  const Temperature& t = op.temperature;
  if (t.scale == 0) return LAMINA_NONE;
  std::vector<float> scales(n_positions());
  for (size_t i = 0; i < scales.size(); i++)
    scales[i] = static_cast<float>(op.scale * (1 + t.scale * std::log(1.0 + static_cast<double>(i / t.length))));
  return weights_.values(scales);
}

void OpenClExecutable::allocate() {
  // One size for many models: their kernels are the same.
  constexpr uint32_t kLeastWords = 1024;
  kernels_.set_local_words(std::bit_ceil(std::max(most_alone_, kLeastWords)));
  cl_context context = target_.context.get();
  const auto words = [context](uint64_t n) { return Buffer(context, n * sizeof(uint32_t), "activations"); };
  weights_.allocate();
  for (Rows& b : buffers_) b.buffer = words(b.n_rows * b.stride);
  for (const KvShape& s : program_.kv) {
    const uint64_t of_head = n_positions() * s.n_head_kv * sizeof(uint16_t);
    LayerKv& layer = kv_.emplace_back(
        LayerKv{Buffer(context, of_head * s.head_dim_k, "keys"), Buffer(context, of_head * s.head_dim_v, "values")});
    // What was never written reads as 0, as on every device.
    constexpr cl_uchar kZero = 0;
    for (const Buffer* buffer : {&layer.k, &layer.v}) {
      check(clEnqueueFillBuffer(target_.queue.get(), buffer->get(), &kZero, sizeof kZero, 0, buffer->bytes(), 0,
                                nullptr, nullptr),
            "clEnqueueFillBuffer");
    }
  }
  packed_ = words(packed_words_);
  parts_ = words(part_floats_);
  step_buffer_ = words(step_words_);
  chosen_ = words(most_rows(RowSet::kPairs));
  expert_weights_ = words(most_rows(RowSet::kPairs));
  best_ = words(kMostArgmaxParts * capacity_.max_outputs);
  best_index_ = words(kMostArgmaxParts * capacity_.max_outputs);
  result_ = words(2 * capacity_.max_outputs);
  dummy_ = words(1);
}

/// cos and sin of every position's angles: range reduction in double, rounded to float32 once.
void OpenClExecutable::upload_rotations() {
  const uint64_t positions = n_positions();
  for (const Rope& rope : program_.ropes) {
    const size_t n = rope.inv_freq.size();
    std::vector<float> all(positions * 2 * n);
    for (size_t i = 0; i < positions * n; i++) {
      const double angle = static_cast<double>(i / n) * rope.inv_freq[i % n];
      all[i / n * 2 * n + i % n] = static_cast<float>(std::cos(angle) * rope.magnitude);
      all[i / n * 2 * n + n + i % n] = static_cast<float>(std::sin(angle) * rope.magnitude);
    }
    const uint64_t bytes = all.size() * sizeof(float);
    const Buffer& buffer = rotations_.emplace_back(target_.context.get(), bytes, "rotations");
    if (bytes == 0) continue;
    check(clEnqueueWriteBuffer(target_.queue.get(), buffer.get(), CL_TRUE, 0, bytes, all.data(), 0, nullptr, nullptr),
          "clEnqueueWriteBuffer");
  }
}

}  // namespace lamina::opencl

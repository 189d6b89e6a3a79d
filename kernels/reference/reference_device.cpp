// The reference device: see reference_device.h. Products, attention and the scalar functions stand beside it.
#include "kernels/reference/reference_device.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "gguf/error.h"
#include "kernels/reference/attention.h"
#include "kernels/reference/math.h"
#include "kernels/reference/product.h"

namespace lamina {
namespace {

using reference::ActivationRow;
using reference::KvPages;
using reference::WeightRow;

/// The smallest divisor when expert weights are normalised: the smallest normal f16.
constexpr float kMinWeightSum = 0x1p-14f;

/// A small tensor as float32.
std::vector<float> all_floats(const gguf::Tensor& tensor) {
  std::vector<float> out(tensor.n_elements());
  gguf::dequantize(*tensor.type, tensor.data.data(), out.size(), out.data());
  return out;
}

/// The `n` elements of a Vector that belong to matrix `expert` of `n_expert`; empty when absent.
std::vector<float> floats(const Vector& vector, size_t n, uint32_t expert = 0, uint32_t n_expert = 1) {
  if (!vector) return {};
  const std::vector<float> all = all_floats(*vector.tensor);
  const size_t first = vector.first + expert * (all.size() / n_expert);
  LAMINA_CHECK(first + n <= all.size());
  return {all.begin() + static_cast<ptrdiff_t>(first), all.begin() + static_cast<ptrdiff_t>(first + n)};
}

/// Bytes of row `row` of matrix `expert`, in file form.
const std::byte* row_bytes(const Weight& weight, uint32_t row, uint32_t expert = 0) {
  const gguf::Tensor& tensor = *weight.tensor;
  const size_t row_size = weight.n_cols / tensor.type->block * tensor.type->bytes;
  const size_t index = expert * (tensor.n_rows() / weight.n_expert) + weight.first_row + row;
  LAMINA_CHECK((index + 1) * row_size <= tensor.data.size());
  return tensor.data.data() + index * row_size;
}

std::vector<float> table_row(const Weight& table, uint32_t row) {
  std::vector<float> out(table.n_cols);
  gguf::dequantize(*table.tensor->type, row_bytes(table, row), out.size(), out.data());
  return out;
}

/// A Norm with its weights at hand. The weight's length is that of the row, or for norms over heads that of all heads.
class Normaliser {
 public:
  explicit Normaliser(const Norm& norm)
      : kind_(norm.kind),
        eps_(norm.eps),
        weight_(floats(norm.weight, norm.weight.n)),
        bias_(floats(norm.bias, norm.bias.n)) {}

  /// Normalises x in place; it stands at column `first` of all that the weight covers.
  void apply(std::span<float> x, size_t first = 0) const {
    const float n = static_cast<float>(x.size());
    if (kind_ == NormKind::kLayer) {
      const float mean = reference::sum(x) / n;
      for (float& value : x) value = value - mean;
    }
    const float inverse = 1.0f / std::sqrt(reference::sum_of_squares(x) / n + eps_);
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = x[i] * inverse;
      if (!weight_.empty()) x[i] = x[i] * weight_[(first + i) % weight_.size()];
      if (!bias_.empty()) x[i] = x[i] + bias_[(first + i) % bias_.size()];
    }
  }

 private:
  NormKind kind_;
  float eps_;
  std::vector<float> weight_, bias_;
};

/// Refuses tensors that cannot be a weight.
void check_weight(const char* op, const Weight& weight) {
  if (weight.tensor->type->kind == gguf::TypeKind::kData)
    fail(ErrorKind::kDevice, "{} of {}: type {} cannot be a weight on device reference", op,
         printable(weight.tensor->name), weight.tensor->type->name);
}

class ReferenceExecutable : public Executable {
 public:
  ReferenceExecutable(Program program, const Capacity& capacity) : program_(std::move(program)), capacity_(capacity) {
    for (const Op& op : program_.ops) {
      if (const auto* embed = std::get_if<EmbedOp>(&op)) check_weight("embed", embed->table);
      if (const auto* linear = std::get_if<LinearOp>(&op))
        for (const Product& product : linear->products) check_weight("linear", product.weight);
    }
    for (const KvShape& shape : program_.kv) kv_.emplace_back(shape, capacity.kv_type, capacity.n_pages);
    buffers_.resize(program_.buffers.size());
  }

  void run(const Step& step) override {
    trace(step, [](size_t) { return true; });
  }

  void trace(const Step& step, const AfterOp& after_op) override {
    LAMINA_CHECK(step.token.size() <= capacity_.max_rows && step.outputs.size() <= capacity_.max_outputs);
    step_ = &step;
    n_best_ = step.n_best;
    for (size_t i = 0; i < buffers_.size(); ++i)
      buffers_[i].assign(n_rows(static_cast<Buf>(i)) * program_.buffers[i].width, 0.0f);
    bool go_on = true;
    for (size_t i = 0; go_on && i < program_.ops.size(); ++i) {
      std::visit([this](const auto& op) { run_op(op); }, program_.ops[i]);
      go_on = after_op(i);
    }
    step_ = nullptr;
  }

  std::vector<float> read(const Place& place) const override {
    switch (place.kind) {
      case Place::Kind::kBuffer: return buffers_[place.index];
      case Place::Kind::kKeys:
      case Place::Kind::kValues: return read_kv(place);
      case Place::Kind::kExperts: return {chosen_.begin(), chosen_.end()};
      case Place::Kind::kExpertWeights: return chosen_weight_;
      case Place::Kind::kArgmax: {
        std::vector<float> tokens;
        for (const auto& row : best_) tokens.push_back(static_cast<float>(best_token(row)));
        return tokens;
      }
    }
    return {};
  }

  std::span<const float> logits(uint32_t i) override {
    const size_t width = program_.buffers[program_.logits].width;
    return {buffers_[program_.logits].data() + i * width, program_.n_vocab};
  }

  std::span<const TokenLogit> best(uint32_t i) override {
    const std::span<const TokenLogit> all = best_.at(i);
    return all.first(std::min<size_t>(all.size(), n_best_));
  }

  int32_t argmax(uint32_t i) override { return best_token(best_.at(i)); }

  uint64_t weight_bytes_per_token() const override {
    uint64_t total = 0;
    for (const Op& op : program_.ops)
      if (const auto* linear = std::get_if<LinearOp>(&op))
        for (const Product& product : linear->products) {
          const Weight& weight = product.weight;
          const uint64_t n_matrices = weight.n_expert > 1 ? program_.n_expert_used : 1;
          total += n_matrices * weight.n_rows * weight.n_cols / weight.tensor->type->block * weight.tensor->type->bytes;
        }
    return total;
  }

  uint64_t memory_bytes() const override {
    uint64_t total = 0;
    for (const KvPages& pages : kv_) total += pages.bytes();
    for (const std::vector<float>& buffer : buffers_) total += buffer.size() * sizeof(float);
    return total;
  }

 private:
  /// The keys or values that the step's rows have in a layer's pages.
  std::vector<float> read_kv(const Place& place) const {
    const KvPages& kv = kv_[place.index];
    std::vector<float> out;
    for (size_t t = 0; t < step_->token.size(); ++t)
      for (uint32_t h = 0; h < kv.shape().n_head_kv; ++h) {
        const std::span<const float> head = place.kind == Place::Kind::kKeys ? kv.k(pages_of(t), step_->position[t], h)
                                                                             : kv.v(pages_of(t), step_->position[t], h);
        out.insert(out.end(), head.begin(), head.end());
      }
    return out;
  }

  size_t n_rows(Buf buffer) const {
    switch (program_.buffers[buffer].rows) {
      case RowSet::kTokens: return step_->token.size();
      case RowSet::kOutputs: return step_->outputs.size();
      case RowSet::kPairs: return step_->token.size() * program_.n_expert_used;
    }
    return 0;
  }

  std::span<float> row(Buf buffer, size_t index) {
    const size_t width = program_.buffers[buffer].width;
    return {buffers_[buffer].data() + index * width, width};
  }

  std::span<const uint32_t> pages_of(size_t token) const { return step_->pages[step_->sequence[token]]; }

  /// Which row of `in` the row `index` of `out` comes from: all pairs of a token share its row.
  size_t source_row(Buf in, Buf out, size_t index) const {
    const bool spread = program_.buffers[out].rows == RowSet::kPairs && program_.buffers[in].rows == RowSet::kTokens;
    return spread ? index / program_.n_expert_used : index;
  }

  void run_op(const EmbedOp& op) {
    for (size_t t = 0; t < step_->token.size(); ++t) {
      const std::span<float> out = row(op.out, t);
      const std::vector<float> token = table_row(op.table, static_cast<uint32_t>(step_->token[t]));
      for (size_t i = 0; i < out.size(); ++i) out[i] = token[i] * op.scale;
      if (!op.positions) continue;
      const std::vector<float> position = table_row(*op.positions, step_->position[t]);
      for (size_t i = 0; i < out.size(); ++i) out[i] = out[i] + position[i];
    }
  }

  /// The input of a LinearOp's products, before it takes the form that the weights want.
  std::vector<std::vector<float>> linear_input(const LinearOp& op) {
    const std::optional<Normaliser> norm = op.norm ? std::optional<Normaliser>(*op.norm) : std::nullopt;
    std::vector<std::vector<float>> rows;
    for (size_t r = 0; r < n_rows(op.in); ++r) {
      const std::span<const float> in = row(op.in, r);
      std::vector<float>& x = rows.emplace_back(in.begin(), in.end());
      if (norm) norm->apply(x);
      if (!op.activation) continue;
      if (op.gate == kNoBuf) {
        for (float& value : x) value = reference::activate(*op.activation, value);
      } else {
        const std::span<const float> gate = row(op.gate, r);
        for (size_t i = 0; i < x.size(); ++i) x[i] = reference::activate(*op.activation, gate[i]) * x[i];
      }
    }
    return rows;
  }

  void run_op(const LinearOp& op) {
    const std::vector<std::vector<float>> input = linear_input(op);
    for (const Product& product : op.products) {
      std::vector<ActivationRow> x;
      for (const std::vector<float>& in : input)
        x.push_back(reference::prepare(*product.weight.tensor->type, std::span(in).first(product.weight.n_cols)));
      for (uint32_t expert = 0; expert < product.weight.n_expert; ++expert) multiply(op.in, product, expert, x);
    }
  }

  /// The rows of product.out that matrix `expert` makes.
  void multiply(Buf in, const Product& product, uint32_t expert, const std::vector<ActivationRow>& x) {
    const Weight& weight = product.weight;
    const std::vector<float> scale = floats(product.scale, 1, expert, weight.n_expert);
    const std::vector<float> bias = floats(product.bias, weight.n_rows, expert, weight.n_expert);
    for (uint32_t c = 0; c < weight.n_rows; ++c) {
      const WeightRow w(*weight.tensor->type, row_bytes(weight, c, expert), weight.n_cols);
      for (size_t r = 0; r < n_rows(product.out); ++r) {
        if (weight.n_expert > 1 && chosen_[r] != expert) continue;
        float y = w.dot(x[source_row(in, product.out, r)]);
        if (!scale.empty()) y = y * scale[0];
        if (!bias.empty()) y = y + bias[c];
        if (product.multiply != 1.0f) y = y * product.multiply;
        if (product.residual != kNoBuf) y = y + row(product.residual, r)[c];
        if (product.softcap != 0.0f) y = reference::softcap(y, product.softcap);
        row(product.out, r)[c] = y;
      }
    }
  }

  void run_op(const NormOp& op) {
    const Normaliser norm(op.norm);
    for (size_t r = 0; r < n_rows(op.in); ++r) {
      std::vector<float> x(row(op.in, r).begin(), row(op.in, r).end());
      norm.apply(x);
      for (size_t i = 0; i < x.size(); ++i)
        row(op.out, r)[i] = op.residual != kNoBuf ? x[i] + row(op.residual, r)[i] : x[i];
    }
  }

  /// Normalises and rotates each head of a row in place.
  void turn_heads(const std::optional<Norm>& norm, int32_t rope, uint32_t position, uint32_t head_dim,
                  std::span<float> heads) {
    for (size_t first = 0; first < heads.size(); first += head_dim) {
      const std::span<float> head = heads.subspan(first, head_dim);
      if (norm) Normaliser(*norm).apply(head, first);
      if (rope >= 0) reference::rotate(program_.ropes[rope], position, head);
    }
  }

  void run_op(const AppendOp& op) {
    KvPages& kv = kv_[op.layer];
    const KvShape& shape = kv.shape();
    for (size_t t = 0; t < step_->token.size(); ++t) {
      const uint32_t position = step_->position[t];
      turn_heads(op.q_norm, op.rope, position, shape.head_dim_k, row(op.q, t).first(op.n_head * shape.head_dim_k));
      if (op.k == kNoBuf) continue;
      std::vector<float> k(row(op.k, t).begin(), row(op.k, t).end());
      turn_heads(op.k_norm, op.rope, position, shape.head_dim_k, k);
      const std::span<const float> v = row(op.v, t);
      for (uint32_t h = 0; h < shape.n_head_kv; ++h) {
        kv.store_k(pages_of(t), position, h, std::span(k).subspan(h * shape.head_dim_k, shape.head_dim_k));
        kv.store_v(pages_of(t), position, h, v.subspan(h * shape.head_dim_v, shape.head_dim_v));
      }
    }
  }

  void run_op(const AttendOp& op) {
    const KvPages& kv = kv_[op.layer];
    const KvShape& shape = kv.shape();
    for (size_t t = 0; t < step_->token.size(); ++t)
      for (uint32_t h = 0; h < op.n_head; ++h)
        reference::attend(op, kv, pages_of(t), step_->position[t], h / (op.n_head / shape.n_head_kv),
                          row(op.q, t).subspan(h * shape.head_dim_k, shape.head_dim_k),
                          row(op.out, t).subspan(h * shape.head_dim_v, shape.head_dim_v));
  }

  void run_op(const RouteOp& op) {
    chosen_.clear();
    chosen_weight_.clear();
    for (size_t t = 0; t < step_->token.size(); ++t) {
      const std::span<const float> logits = row(op.logits, t).first(op.n_expert);
      std::vector<float> p(logits.begin(), logits.end());
      if (op.gating == Gating::kSoftmax) reference::softmax(p);
      if (op.gating == Gating::kSigmoid)
        for (float& value : p) value = reference::sigmoid(value);

      std::vector<uint32_t> best(op.n_expert);
      std::iota(best.begin(), best.end(), 0u);
      std::stable_sort(best.begin(), best.end(), [&](uint32_t a, uint32_t b) { return p[a] > p[b]; });
      best.resize(op.n_used);
      std::sort(best.begin(), best.end());

      std::vector<float> weight;
      for (uint32_t expert : best) weight.push_back(p[expert]);
      if (op.gating == Gating::kSoftmaxOfChosen) reference::softmax(weight);
      if (op.normalize) {
        const float total = std::max(reference::sum(weight), kMinWeightSum);
        for (float& w : weight) w = w / total;
      }
      if (op.scale != 1.0f)
        for (float& w : weight) w = w * op.scale;
      chosen_.insert(chosen_.end(), best.begin(), best.end());
      chosen_weight_.insert(chosen_weight_.end(), weight.begin(), weight.end());
    }
  }

  void run_op(const CombineOp& op) {
    for (size_t t = 0; t < step_->token.size(); ++t) {
      const std::span<float> out = row(op.out, t);
      for (size_t i = 0; i < out.size(); ++i) {
        float y = 0;
        for (size_t pair = t * op.n_used; pair < (t + 1) * op.n_used; ++pair)
          y = std::fma(chosen_weight_[pair], row(op.in, pair)[i], y);
        out[i] = op.residual != kNoBuf ? y + row(op.residual, t)[i] : y;
      }
    }
  }

  void run_op(const SelectOp& op) {
    for (size_t i = 0; i < step_->outputs.size(); ++i)
      std::ranges::copy(row(op.in, step_->outputs[i]), row(op.out, i).begin());
  }

  void run_op(const ArgmaxOp& op) {
    best_.assign(step_->outputs.size(), {});
    for (size_t i = 0; i < step_->outputs.size(); ++i) {
      for (uint32_t token = 0; token < program_.n_vocab; ++token) {
        const float logit = row(op.logits, i)[token];
        if (!std::isnan(logit)) best_[i].push_back({logit, static_cast<int32_t>(token)});
      }
      std::ranges::sort(best_[i], is_better);
    }
  }

  Program program_;
  Capacity capacity_;
  std::vector<KvPages> kv_;                  ///< a layer each
  std::vector<std::vector<float>> buffers_;  ///< [rows, width]
  std::vector<uint32_t> chosen_;             ///< [tokens, n_used] experts of the last RouteOp, ascending in each token
  std::vector<float> chosen_weight_;         ///< [tokens, n_used]
  std::vector<std::vector<TokenLogit>> best_;  ///< [outputs] all logits that are numbers, the best first
  uint32_t n_best_ = 0;                        ///< of the last step
  const Step* step_ = nullptr;                 ///< during run()
};

class ReferenceDevice : public Device {
 public:
  std::string name() const override { return "reference"; }
  std::unique_ptr<Executable> compile(const Program& program, const gguf::File&, const Capacity& capacity,
                                      const Progress&) override {
    return std::make_unique<ReferenceExecutable>(program, capacity);
  }
};

}  // namespace

std::unique_ptr<Device> make_reference_device() { return std::make_unique<ReferenceDevice>(); }

}  // namespace lamina

// Ops alone: see op_speed.h.
#include "engine/op_speed.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "engine/kv_pages.h"
#include "engine/op_cases.h"
#include "gguf/error.h"

namespace lamina {
namespace {

constexpr uint64_t kMostCopies = 128;
constexpr uint32_t kCopiesWithoutWeights = 24;
constexpr double kLeastSeconds = 0.2;

/// Rows of the table that fills input buffers.
constexpr uint32_t kFillRows = 64;

/// The buffers that an op reads.
struct Reads {
  std::vector<Buf> operator()(const LinearOp& op) const {
    std::vector<Buf> bufs = {op.in, op.gate};
    for (const Product& product : op.products) bufs.push_back(product.residual);
    return bufs;
  }
  std::vector<Buf> operator()(const EmbedOp&) const { return {}; }
  std::vector<Buf> operator()(const NormOp& op) const { return {op.in, op.residual}; }
  std::vector<Buf> operator()(const AppendOp& op) const { return {op.q, op.k, op.v}; }
  std::vector<Buf> operator()(const AttendOp& op) const { return {op.q}; }
  std::vector<Buf> operator()(const RouteOp& op) const { return {op.logits}; }
  std::vector<Buf> operator()(const CombineOp& op) const { return {op.in, op.residual}; }
  std::vector<Buf> operator()(const SelectOp& op) const { return {op.in}; }
  std::vector<Buf> operator()(const ArgmaxOp& op) const { return {op.logits}; }
};

uint32_t* layer_of(Op& op) {
  if (auto* append = std::get_if<AppendOp>(&op)) return &append->layer;
  if (auto* attend = std::get_if<AttendOp>(&op)) return &attend->layer;
  return nullptr;
}

bool has_pairs(const Program& program, const Op& op) {
  if (std::holds_alternative<RouteOp>(op)) return false;
  std::vector<Buf> bufs = std::visit(Reads(), op);
  for (const Place& place : places_of(op))
    if (place.kind == Place::Kind::kBuffer) bufs.push_back(place.index);
  return std::ranges::any_of(
      bufs, [&](Buf buf) { return buf != kNoBuf && program.buffers[static_cast<size_t>(buf)].rows == RowSet::kPairs; });
}

/// Emits ops that give the inputs of an op values other than those that memory happens to hold.
class Filler {
 public:
  Filler(Program& program, SyntheticWeights& weights) : program_(program), weights_(weights) {}

  void fill(const Op& op) {
    for (const Buf buf : std::visit(Reads(), op))
      if (buf != kNoBuf) fill(buf);
  }

 private:
  void fill(Buf buf) {
    const Buffer buffer = program_.buffers[static_cast<size_t>(buf)];
    if (buffer.rows == RowSet::kPairs) return;  // no op writes these alone
    const gguf::Tensor& table = weights_.add("fill", *gguf::find_type("F32"), {buffer.width, kFillRows});
    Buf out = buf;
    if (buffer.rows == RowSet::kOutputs) {
      out = static_cast<Buf>(program_.buffers.size());
      program_.buffers.push_back({"fill", buffer.width, RowSet::kTokens});
    }
    program_.ops.push_back(EmbedOp{.table = {&table, 0, kFillRows, buffer.width}, .out = out});
    if (out != buf) program_.ops.push_back(SelectOp{.in = out, .out = buf});
  }

  Program& program_;
  SyntheticWeights& weights_;
};

uint64_t file_bytes(const Weight& w) {
  return uint64_t{w.n_expert} * w.n_rows * w.n_cols / w.tensor->type->block * w.tensor->type->bytes;
}

uint64_t bytes_of_weights(const Op& op) {
  uint64_t bytes = 0;
  if (const auto* linear = std::get_if<LinearOp>(&op))
    for (const Product& product : linear->products) bytes += file_bytes(product.weight);
  return bytes;
}

/// What an op must move and do, the weights of linear ops left out.
struct Cost {
  const Program& program;
  OpRows rows;

  double n_rows(Buf buf) const {
    switch (program.buffers[static_cast<size_t>(buf)].rows) {
      case RowSet::kTokens: return rows.n_rows;
      case RowSet::kPairs: return double{1} * rows.n_rows * program.n_expert_used;
      case RowSet::kOutputs: return 1;
    }
    return 0;
  }
  /// Elements, and bytes, of a buffer; 0 for none.
  double elements(Buf buf) const {
    return buf == kNoBuf ? 0 : n_rows(buf) * program.buffers[static_cast<size_t>(buf)].width;
  }
  double bytes(Buf buf) const { return elements(buf) * sizeof(float); }

  OpSpeed operator()(const EmbedOp& op) const {
    const gguf::Type& type = *op.table.tensor->type;
    return {.bytes = bytes(op.out) + elements(op.out) / type.block * type.bytes, .operations = elements(op.out)};
  }
  OpSpeed operator()(const LinearOp& op) const {
    OpSpeed cost{.bytes = bytes(op.in) + bytes(op.gate)};
    for (const Product& product : op.products) {
      cost.bytes += bytes(product.out) + bytes(product.residual);
      cost.operations += 2 * elements(product.out) * product.weight.n_cols;
      cost.int8 |= product.weight.tensor->type->kind == gguf::TypeKind::kQuant;
    }
    return cost;
  }
  /// Squares and their sum, two products, and the residual.
  OpSpeed operator()(const NormOp& op) const {
    return {.bytes = bytes(op.in) + bytes(op.residual) + bytes(op.out),
            .operations = 4 * elements(op.in) + elements(op.residual)};
  }
  /// q and k are read and written, v read; k and v stored as f16. Two products and a sum for each rotated element.
  OpSpeed operator()(const AppendOp& op) const {
    return {.bytes = 2 * bytes(op.q) + bytes(op.k) + bytes(op.v) + (elements(op.k) + elements(op.v)) * 2,
            .operations = op.rope < 0 ? 0 : 3 * (elements(op.q) + elements(op.k))};
  }
  OpSpeed operator()(const AttendOp& op) const {
    const KvShape& kv = program.kv[op.layer];
    const double width = double{1} * kv.head_dim_k + kv.head_dim_v;
    double visible = 0;  // keys of all rows
    for (uint32_t row = 0; row < rows.n_rows; ++row) {
      const uint32_t keys = rows.depth + row + 1;
      visible += op.window != 0 ? std::min(keys, op.window) : keys;
    }
    const double n_keys = double{1} * rows.depth + rows.n_rows;
    const double read = op.window != 0 ? std::min(n_keys, double{1} * op.window + rows.n_rows) : n_keys;
    return {.bytes = bytes(op.q) + bytes(op.out) + read * kv.n_head_kv * width * 2,
            .operations = 2 * visible * op.n_head * width};
  }
  OpSpeed operator()(const RouteOp& op) const {
    return {.bytes = bytes(op.logits), .operations = 4 * elements(op.logits)};
  }
  OpSpeed operator()(const CombineOp& op) const {
    return {.bytes = bytes(op.in) + bytes(op.residual) + bytes(op.out), .operations = 2 * elements(op.in)};
  }
  OpSpeed operator()(const SelectOp& op) const { return {.bytes = 2 * bytes(op.out)}; }
  OpSpeed operator()(const ArgmaxOp& op) const {
    return {.bytes = bytes(op.logits), .operations = elements(op.logits)};
  }
};

/// How many experts `n_pairs` choices read, if they are spread evenly, as a multiple of those that one token reads.
double experts_read(const Program& program, const Op& op, uint32_t n_rows) {
  const auto* linear = std::get_if<LinearOp>(&op);
  if (linear == nullptr || linear->products.front().weight.n_expert == 1) return 1;
  const double most = double{1} * linear->products.front().weight.n_expert / program.n_expert_used;
  return std::min<double>(n_rows, most);
}

}  // namespace

double best_seconds(Executable& executable, const Step& step, double least_seconds) {
  using Clock = std::chrono::steady_clock;
  executable.run(step);
  double best = 0, total = 0;
  for (int run = 0; run < 3 || total < least_seconds; ++run) {
    const auto start = Clock::now();
    executable.run(step);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = run == 0 ? seconds : std::min(best, seconds);
    total += seconds;
  }
  return best;
}

Step step_of(const OpRows& rows, uint32_t n_vocab) {
  Step step;
  step.pages.emplace_back(pages_for(rows.depth + rows.n_rows));
  std::iota(step.pages[0].begin(), step.pages[0].end(), 0u);
  for (uint32_t row = 0; row < rows.n_rows; ++row) {
    step.token.push_back(static_cast<int32_t>(uint64_t{row} * 2654435761u % n_vocab));
    step.position.push_back(rows.depth + row);
    step.sequence.push_back(0);
  }
  step.outputs = {rows.n_rows - 1};
  return step;
}

OpTimer::OpTimer(Device& device, const Program& program, const std::vector<size_t>& ops, const OpRows& most,
                 uint64_t bytes_of_copies)
    : source_(program) {
  Program without = program;
  without.ops.clear();
  without.kv.clear();
  uint64_t bytes = 0;
  n_token_ = kFillRows;
  for (const size_t i : ops) {
    ops_.push_back(program.ops[i]);
    bytes += bytes_of_weights(program.ops[i]);
    if (const auto* embed = std::get_if<EmbedOp>(&program.ops[i])) n_token_ = embed->table.n_rows;
  }
  n_copies_ = bytes == 0 ? kCopiesWithoutWeights
                         : static_cast<uint32_t>(std::clamp<uint64_t>(bytes_of_copies / bytes, 1, kMostCopies));

  Filler filler(without, weights_);
  for (const Op& op : ops_) filler.fill(op);
  if (std::ranges::any_of(ops_, [&](const Op& op) { return has_pairs(program, op); })) {
    const auto route =
        std::ranges::find_if(program.ops, [](const Op& op) { return std::holds_alternative<RouteOp>(op); });
    LAMINA_CHECK(route != program.ops.end());
    filler.fill(*route);
    without.ops.push_back(*route);
  }
  Program with = without;
  for (uint32_t copy = 0; copy < n_copies_; ++copy) {
    for (const Op& op : ops_) {
      with.ops.push_back(with_tensors(
          op, [this](const gguf::Tensor& tensor) { return &weights_.add(tensor.name, *tensor.type, tensor.shape); }));
      if (uint32_t* layer = layer_of(with.ops.back())) {
        with.kv.push_back(program.kv[*layer]);
        *layer = static_cast<uint32_t>(with.kv.size() - 1);
      }
    }
  }
  const gguf::File& file = weights_.open();
  const Capacity capacity{.max_rows = most.n_rows, .max_outputs = 1, .n_pages = pages_for(most.depth + most.n_rows)};
  without_ = device.compile(without, file, capacity, {});
  with_ = device.compile(with, file, capacity, {});
}

OpSpeed OpTimer::measure(const OpRows& rows) {
  const Step step = step_of(rows, n_token_);
  OpSpeed speed;
  for (const Op& op : ops_) {
    const OpSpeed cost = std::visit(Cost{source_, rows}, op);
    speed.bytes += cost.bytes;
    speed.operations += cost.operations;
    speed.int8 |= cost.int8;
    if (std::holds_alternative<LinearOp>(op)) {
      speed.bytes +=
          static_cast<double>(with_->weight_bytes_per_token()) / n_copies_ * experts_read(source_, op, rows.n_rows);
    }
  }
  const double filling = best_seconds(*without_, step, kLeastSeconds / 4);
  const double all = best_seconds(*with_, step, kLeastSeconds);
  speed.seconds = std::max(all - filling, 1e-9) / n_copies_;
  return speed;
}

}  // namespace lamina

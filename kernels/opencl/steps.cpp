// Steps of an OpenCL executable: what goes to the device, in what order, and what comes back.
#include <algorithm>
#include <bit>
#include <cmath>

#include "gguf/error.h"
#include "kernels/opencl/executable.h"

namespace lamina::opencl {

namespace {

/// Steps that are enqueued behind the one that is asked for.
constexpr size_t kAhead = 1;

}  // namespace

/// Forgets what was read of the last step.
void OpenClExecutable::begin(const Step& step, uint32_t n_best) {
  n_outputs_ = static_cast<uint32_t>(step.outputs.size());
  n_best_ = n_best;
  logits_.clear();
  result_words_.clear();
  step_ = &step;
}

void OpenClExecutable::run(const Step& step) {
  begin(step, step.n_best);
  const uint32_t position = step.position[0];
  const bool greedy = step.token.size() == 1 && n_outputs_ == 1 && n_best_ == 1;
  if (greedy && follows_last(step) && (flights_.size() > 1 || fly(position))) {
    flights_.pop_front();
    while (flights_.size() <= kAhead && fly(flights_.back().position + 1)) continue;
  } else {
    upload(step);
    flights_.clear();
    enqueue_ops();
    if (greedy) take_result(position);
  }
  step_ = nullptr;
}

void OpenClExecutable::trace(const Step& step, const AfterOp& after_op) {
  begin(step, 0);
  upload(step);
  flights_.clear();
  bool go_on = true;
  for (size_t i = 0; go_on && i < program_.ops.size(); i++) {
    run_op(i);
    go_on = after_op(i);
  }
  step_ = nullptr;
}

/// Brings a step's tokens, positions and page tables to the device, behind all that is enqueued. Blocking: the host
/// does not run away from the device by more than a step of a prompt, and what was read ahead has arrived.
void OpenClExecutable::upload(const Step& step) {
  const size_t rows = step.token.size(), max_rows = capacity_.max_rows;
  LAMINA_CHECK(rows <= max_rows && step.outputs.size() <= capacity_.max_outputs);
  words_.assign(3 * max_rows + capacity_.max_outputs, 0);
  std::vector<uint32_t> tables_at;
  for (const std::vector<uint32_t>& pages : step.pages) {
    tables_at.push_back(static_cast<uint32_t>(words_.size()));
    words_.insert(words_.end(), pages.begin(), pages.end());
  }
  LAMINA_CHECK(words_.size() <= step_words_);
  last_position_ = *std::max_element(step.position.begin(), step.position.end());
  for (size_t row = 0; row < rows; row++) {
    words_[row] = static_cast<uint32_t>(step.token[row]);
    words_[max_rows + row] = step.position[row];
    words_[2 * max_rows + row] = tables_at[step.sequence[row]];
  }
  std::copy(step.outputs.begin(), step.outputs.end(), words_.begin() + static_cast<ptrdiff_t>(3 * max_rows));
  check(clEnqueueWriteBuffer(target_.queue.get(), step_buffer_.get(), CL_TRUE, 0, words_.size() * sizeof(uint32_t),
                             words_.data(), 0, nullptr, nullptr),
        "clEnqueueWriteBuffer");
}

/// Whether `step` goes on with the token that the last greedy step chose, in the same pages.
bool OpenClExecutable::follows_last(const Step& step) {
  if (flights_.empty()) return false;
  const std::vector<uint32_t>& pages = step.pages[step.sequence[0]];
  const auto table = words_.begin() + words_[2 * size_t{capacity_.max_rows}];
  const auto n = static_cast<ptrdiff_t>(step.position[0] / kPagePositions + 1);
  return step.position[0] == flights_.front().position + 1 && words_.end() - table >= n &&
         std::equal(table, table + n, pages.begin()) && static_cast<uint32_t>(step.token[0]) == results()[0];
}

/// Enqueues the step behind the last one, if its position still is in that one's KV page.
bool OpenClExecutable::fly(uint32_t position) {
  if (position % kPagePositions == 0) return false;
  last_position_ = position;
  advance();
  enqueue_ops();
  take_result(position);
  return true;
}

void OpenClExecutable::enqueue_ops() {
  for (size_t i = 0; i < program_.ops.size(); i++) run_op(i);
  check(clFlush(target_.queue.get()), "clFlush");
}

/// Has the token of the step just enqueued read without waiting for it.
void OpenClExecutable::take_result(uint32_t position) {
  Flight& flight = flights_.emplace_back();
  flight.position = position;
  cl_event done = nullptr;
  check(clEnqueueReadBuffer(target_.queue.get(), result_.get(), CL_FALSE, 0, sizeof flight.result, flight.result.data(),
                            0, nullptr, &done),
        "clEnqueueReadBuffer");
  flight.done = Event(done);
  check(clFlush(target_.queue.get()), "clFlush");
}

std::span<const uint32_t> OpenClExecutable::results() {
  if (!flights_.empty()) {
    Flight& last = flights_.front();
    cl_event done = last.done.get();
    check(clWaitForEvents(1, &done), "clWaitForEvents");
    return last.result;
  }
  if (result_words_.empty()) {
    result_words_.resize(2 * size_t{n_outputs_});
    read_bytes(result_.get(), 0, result_words_.size() * sizeof(uint32_t), result_words_.data());
  }
  return result_words_;
}

std::span<const float> OpenClExecutable::logits(uint32_t i) {
  const Rows& all = buffer(program_.logits);
  if (logits_.empty()) logits_ = read_floats(all.buffer.get(), 0, uint64_t{n_outputs_} * all.stride);
  return {logits_.data() + uint64_t{i} * all.stride, program_.n_vocab};
}

std::span<const TokenLogit> OpenClExecutable::best(uint32_t i) {
  best_logits_.clear();
  if (n_best_ == 1) {
    const std::span<const uint32_t> all = results();
    const float logit = std::bit_cast<float>(all[n_outputs_ + i]);
    if (logit > -INFINITY) best_logits_.push_back({logit, static_cast<int32_t>(all[i])});
    return best_logits_;
  }
  const std::span<const float> all = logits(i);
  for (size_t token = 0; token < all.size(); token++)
    if (!std::isnan(all[token])) best_logits_.push_back({all[token], static_cast<int32_t>(token)});
  const size_t n = std::min<size_t>(n_best_, best_logits_.size());
  std::partial_sort(best_logits_.begin(), best_logits_.begin() + static_cast<ptrdiff_t>(n), best_logits_.end(),
                    is_better);
  best_logits_.resize(n);
  return best_logits_;
}

int32_t OpenClExecutable::argmax(uint32_t i) { return static_cast<int32_t>(results()[i]); }

void OpenClExecutable::read_bytes(cl_mem memory, uint64_t at, uint64_t n, void* out) const {
  if (n == 0) return;
  check(clEnqueueReadBuffer(target_.queue.get(), memory, CL_TRUE, at, n, out, 0, nullptr, nullptr),
        "clEnqueueReadBuffer");
}

std::vector<float> OpenClExecutable::read_floats(cl_mem memory, uint64_t first, uint64_t n) const {
  std::vector<float> out(n);
  read_bytes(memory, first * sizeof(float), n * sizeof(float), out.data());
  return out;
}

std::vector<float> OpenClExecutable::read(const Place& place) const {
  const uint32_t tokens = n_rows(RowSet::kTokens), n = tokens * width_of(program_, place);
  const auto words = [&](cl_mem memory, uint32_t n_words) {
    std::vector<uint32_t> all(n_words);
    read_bytes(memory, 0, all.size() * sizeof(uint32_t), all.data());
    return std::vector<float>(all.begin(), all.end());
  };
  switch (place.kind) {
    case Place::Kind::kBuffer: {
      const Rows& rows = buffer(place.index);
      std::vector<float> out;
      for (uint32_t row = 0; row < n_rows(rows.set); row++) {
        const std::vector<float> values = read_floats(rows.buffer.get(), uint64_t{row} * rows.stride, rows.width);
        out.insert(out.end(), values.begin(), values.end());
      }
      return out;
    }
    case Place::Kind::kKeys:
    case Place::Kind::kValues: return read_kv(place);
    case Place::Kind::kExperts: return words(chosen_.get(), n);
    case Place::Kind::kExpertWeights: return read_floats(expert_weights_.get(), 0, n);
    case Place::Kind::kArgmax: return words(result_.get(), n_outputs_);
  }
  return {};
}

/// The keys or values that the step's rows have in a layer's pages.
std::vector<float> OpenClExecutable::read_kv(const Place& place) const {
  const LayerKv& kv = kv_[static_cast<size_t>(place.index)];
  const KvShape& shape = program_.kv[static_cast<size_t>(place.index)];
  const bool keys = place.kind == Place::Kind::kKeys;
  const uint64_t dim = keys ? shape.head_dim_k : shape.head_dim_v;
  std::vector<uint16_t> head(dim * kPagePositions);
  std::vector<float> out;
  for (size_t row = 0; row < step_->token.size(); row++) {
    const uint32_t slot = step_->position[row] % kPagePositions;
    const uint64_t page = step_->pages[step_->sequence[row]][step_->position[row] / kPagePositions];
    for (uint64_t h = 0; h < shape.n_head_kv; h++) {
      const uint64_t bytes = head.size() * sizeof(uint16_t);
      read_bytes((keys ? kv.k : kv.v).get(), (page * shape.n_head_kv + h) * bytes, bytes, head.data());
      for (uint64_t d = 0; d < dim; d++)
        out.push_back(gguf::f16_to_f32(head[keys ? d * kPagePositions + slot : slot * dim + d]));
    }
  }
  return out;
}

uint32_t OpenClExecutable::n_rows(RowSet set) const {
  const auto tokens = static_cast<uint32_t>(step_->token.size());
  switch (set) {
    case RowSet::kTokens: return tokens;
    case RowSet::kPairs: return tokens * program_.n_expert_used;
    case RowSet::kOutputs: return n_outputs_;
  }
  return 0;
}

}  // namespace lamina::opencl

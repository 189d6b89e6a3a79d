// A program bound to an OpenCL device: each op is a few launches, enqueued in order on one queue, so that a step is
// enqueued as a whole and only its result is waited for. What changes from step to step stands in one small buffer:
//
//     step    u32: [max_rows] tokens, [max_rows] positions, [max_rows] indices into `step` of the rows' page tables,
//             [max_outputs] rows whose logits are wanted, then the page tables
//
// While greedy decoding goes on, the next steps are enqueued before they are asked for: a kernel puts the chosen token
// and the next position into `step`. A step that then is asked for and is none of these just goes behind them: what
// they wrote are keys and values of positions behind the sequence's end.
#pragma once
#include <array>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "kernels/launch_args.h"
#include "kernels/opencl/kernels.h"
#include "kernels/opencl/weights.h"

namespace lamina::opencl {

/// Most work-groups that look for the best logit of a row.
constexpr uint32_t kMostArgmaxParts = 64;
/// Most floats of unmerged attention: rows of a long prompt are attended in so many turns as this needs.
constexpr uint64_t kMostPartFloats = uint64_t{4} * 1024 * 1024;

class OpenClExecutable : public Executable {
 public:
  /// Compares the memory needed with the device's, reserves it, then loads the weights.
  OpenClExecutable(const Program& program, const gguf::File& file, const Capacity& capacity, const Target& target,
                   KernelStore& store, Pool& pool, const Progress& progress);
  ~OpenClExecutable() override;

  void run(const Step& step) override;
  void trace(const Step& step, const AfterOp& after_op) override;
  std::vector<float> read(const Place& place) const override;
  std::span<const float> logits(uint32_t i) override;
  std::span<const TokenLogit> best(uint32_t i) override;
  int32_t argmax(uint32_t i) override;
  uint64_t weight_bytes_per_token() const override { return bytes_per_token_; }
  uint64_t memory_bytes() const override { return memory_bytes_; }

 private:
  /// A buffer of the program: rows of `stride` floats.
  struct Rows {
    Buffer buffer;
    uint32_t width = 0, stride = 0;
    RowSet set = RowSet::kTokens;
    uint64_t n_rows = 0;  ///< at most
  };

  /// Products of one type that one launch makes, each whole or the rows and experts that one buffer holds.
  struct Group {
    const gguf::Type* type = nullptr;
    uint32_t form = 0;  ///< of the packed input: LAMINA_FORM_*
    std::vector<const Part*> parts;
    std::vector<const Product*> products;
    launch::LinearArgs args = {};
    uint32_t n_row_tiles = 0;
  };

  struct BoundLinear {
    launch::PackArgs pack = {};
    std::vector<Group> groups;  ///< those of one form side by side
    RowSet out = RowSet::kTokens;
  };

  struct LayerKv {
    Buffer k, v;
  };

  /// A greedy step of one row: the last one that was asked for, then those enqueued before they are.
  struct Flight {
    uint32_t position = 0;
    std::array<uint32_t, 2> result = {};  ///< token, bits of its logit: there when `done` is
    Event done;
  };

  // Binding: executable.cpp.
  void plan();
  void plan_scratch();
  BoundLinear bind(const LinearOp& op);
  launch::NormArgs bind(const std::optional<Norm>& norm, uint32_t n);
  uint32_t bind_temperature(const AttendOp& op);
  void allocate();
  void upload_rotations();

  // Steps: steps.cpp.
  void begin(const Step& step, uint32_t n_best);
  void upload(const Step& step);
  bool follows_last(const Step& step);
  bool fly(uint32_t position);
  void enqueue_ops();
  void take_result(uint32_t position);
  std::span<const uint32_t> results();

  // Ops: ops.cpp.
  void advance();
  void run_op(size_t index);
  void run_op(const EmbedOp& op, size_t index);
  void run_op(const LinearOp& op, size_t index);
  void run_op(const NormOp& op, size_t index);
  void run_op(const AppendOp& op, size_t index);
  void run_op(const AttendOp& op, size_t index);
  void run_op(const RouteOp& op, size_t index);
  void run_op(const CombineOp& op, size_t index);
  void run_op(const SelectOp& op, size_t index);
  void run_op(const ArgmaxOp& op, size_t index);
  launch::HeadArgs heads(uint32_t layer, uint32_t n_head) const;
  void embed(const Matrix& table, launch::EmbedArgs args, Buf out);
  void multiply(const LinearOp& op, const launch::PackArgs& pack, const Group& group, bool alone);

  /// Launches groups x rows of work-groups; none when either is 0.
  template <class... Args>
  void launch_groups(cl_kernel kernel, uint64_t groups, uint64_t rows, const Args&... args);

  std::vector<float> read_floats(cl_mem buffer, uint64_t first, uint64_t n) const;
  std::vector<float> read_kv(const Place& place) const;
  void read_bytes(cl_mem buffer, uint64_t at, uint64_t n, void* out) const;
  uint32_t n_rows(RowSet set) const;
  uint64_t most_rows(RowSet set) const;
  uint64_t n_positions() const { return uint64_t{capacity_.n_pages} * kPagePositions; }
  const Rows& buffer(Buf i) const { return buffers_[static_cast<size_t>(i)]; }
  cl_mem memory(Buf i) const { return i == kNoBuf ? dummy_.get() : buffer(i).buffer.get(); }
  uint32_t stride(Buf i) const { return i == kNoBuf ? 0 : buffer(i).stride; }

  const Program program_;
  const Target& target_;
  const Capacity capacity_;
  Kernels kernels_;
  Weights weights_;
  std::vector<Rows> buffers_;
  std::vector<LayerKv> kv_;
  std::vector<BoundLinear> linears_;                     ///< by op
  std::vector<std::array<launch::NormArgs, 2>> norms_;   ///< by op: NormOp's, or AppendOp's of q and k
  std::vector<uint32_t> temperatures_;                   ///< by op: see AttendArgs
  std::vector<const Matrix*> tables_, position_tables_;  ///< by op: EmbedOp's
  std::vector<Buffer> rotations_;                        ///< by rope: [positions][2][n_pairs]
  uint64_t packed_words_ = 0, part_floats_ = 0, step_words_ = 0;
  uint32_t most_alone_ = 0;  ///< packed words of the widest input that linear_alone packs
  Buffer packed_, step_buffer_, parts_, chosen_, expert_weights_, best_, best_index_, result_, dummy_;
  uint64_t bytes_per_token_ = 0, memory_bytes_ = 0;

  const Step* step_ = nullptr;          ///< while it is enqueued or traced
  uint32_t last_position_ = 0;          ///< the highest of the step that is enqueued
  uint32_t n_outputs_ = 0;              ///< of the last step
  uint32_t n_best_ = 0;                 ///< of the last step
  std::vector<uint32_t> words_;         ///< of `step`, as uploaded
  std::vector<uint32_t> result_words_;  ///< [outputs] tokens, then bits of their logits; read when they are asked for
  std::vector<float> logits_;           ///< [outputs, n_vocab], read when they are asked for
  std::vector<TokenLogit> best_logits_;
  std::deque<Flight> flights_;
};

}  // namespace lamina::opencl

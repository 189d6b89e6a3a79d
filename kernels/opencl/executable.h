// A program bound to an OpenCL device: each op is a few launches, enqueued in order on one queue, so that a step is
// enqueued as a whole and only its result is waited for. What changes from step to step stands in one small buffer:
//
//     step    u32: [max_rows] tokens, [max_rows] positions, [max_rows] indices into `step` of the rows' page tables,
//             [max_outputs] rows whose logits are wanted, then the page tables
//
// After greedy steps of one row the next ones are enqueued before they are asked for, each with the token that the one
// before has chosen on the device; a step that then is asked for and is none of these just goes behind them.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "kernels/launch_args.h"
#include "kernels/opencl/kernel_store.h"
#include "kernels/opencl/weights.h"

namespace lamina::opencl {

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
    uint64_t bytes = 0;
  };

  /// One product, or the rows of it that one buffer of weights holds.
  struct BoundPart {
    const Part* part;
    const Product* product;
    launch::ProductArgs args;
  };

  /// Products of one type in one launch.
  struct BoundGroup {
    const gguf::Type* type;
    std::vector<BoundPart> parts;
    launch::LinearArgs args = {};
    uint32_t n_row_tiles = 0;
  };

  struct BoundLinear {
    launch::PackArgs pack = {};
    std::vector<BoundGroup> groups;  ///< those of one form of input side by side
    RowSet out = RowSet::kTokens;
    bool experts = false;
  };

  struct LayerKv {
    Buffer k, v;
    uint64_t k_bytes = 0, v_bytes = 0;
  };

  // Binding.
  BoundLinear bind(const LinearOp& op, const Capacity& capacity);
  launch::NormArgs bind(const std::optional<Norm>& norm, uint32_t n);
  void bind_attend(size_t index, const AttendOp& op);
  void plan(const Capacity& capacity);
  void allocate(const gguf::File& file);
  void upload_rotations();

  // Running.
  struct Result;
  void enqueue(const Step& step, bool from_last);
  void upload(const Step& step);
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
  void embed(const Weight& table, cl_mem index, launch::EmbedArgs args, Buf out);
  void run_group(const BoundLinear& bound, const BoundGroup& group, const LinearOp& op, bool alone);

  /// The kernel of a file and defines, compiled at its first use.
  cl_kernel kernel(const std::string& file, const std::string& defines, const char* name);
  /// Launches groups x rows of L work-items each.
  template <class... Args>
  void launch_groups(cl_kernel kernel, uint64_t groups, uint64_t rows, const Args&... args);
  uint64_t groups_for(uint64_t items) const;

  std::vector<float> read_floats(cl_mem buffer, uint64_t first, uint64_t n) const;
  std::vector<float> read_kv(const Place& place) const;
  uint32_t n_rows(RowSet set) const;
  const Rows& buffer(Buf i) const { return buffers_[static_cast<size_t>(i)]; }
  cl_mem memory(Buf i) const { return i == kNoBuf ? dummy_.get() : buffer(i).buffer.get(); }

  const Program program_;
  const Target& target_;
  KernelStore& store_;
  const Capacity capacity_;
  Weights weights_;
  std::vector<Rows> buffers_;
  std::vector<LayerKv> kv_;
  std::vector<BoundLinear> linears_;               ///< by op
  std::vector<launch::NormArgs> norms_;            ///< two an op: NormOp's, or AppendOp's of q and k
  std::vector<uint32_t> temperatures_;             ///< by op: see AttendArgs
  std::vector<Buffer> rotations_;                  ///< by rope: [positions][2][n_pairs]
  std::map<std::string, Kernel> kernels_;          ///< by file, defines and name
  Buffer packed_, step_buffer_, parts_, chosen_, expert_weights_, best_, best_index_, result_, dummy_;
  uint64_t packed_bytes_ = 0, parts_bytes_ = 0, best_bytes_ = 0;
  uint64_t bytes_per_token_ = 0, memory_bytes_ = 0;
};

}  // namespace lamina::opencl

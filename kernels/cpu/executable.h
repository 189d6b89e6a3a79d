// A program bound to the CPU: every thread walks the list of ops, does its share of each and meets the others at
// barriers.
#pragma once
#include <atomic>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/pool.h"
#include "kernels/cpu/tiles.h"
#include "kernels/cpu/weights.h"
#include "kernels/device.h"
#include "kernels/memory.h"

namespace lamina::cpu {

/// One layer's pool of KV pages.
struct LayerKv {
  LayerKv(const KvShape& shape, KvType kv_type, uint32_t n_pages);

  KvType type;
  size_t k_head, v_head;  ///< bytes of one head in a page
  size_t k_page, v_page;  ///< bytes of a page
  Memory k, v;

  std::byte* k_at(uint32_t page, uint32_t head) const { return k.as<std::byte>() + page * k_page + head * k_head; }
  std::byte* v_at(uint32_t page, uint32_t head) const { return v.as<std::byte>() + page * v_page + head * v_head; }
};

class CpuExecutable : public Executable {
 public:
  /// `plane_cache`: a folder, or empty. Reserves all memory, compares it with what there is, then loads the weights.
  CpuExecutable(const Program& program, const gguf::File& file, const Capacity& capacity, const Kernels& kernels,
                Pool& pool, const std::string& plane_cache, const Progress& progress);

  void run(const Step& step) override;
  void trace(const Step& step, const AfterOp& after_op) override;
  std::vector<float> read(const Place& place) const override;
  std::span<const float> logits(uint32_t i) override;
  int32_t argmax(uint32_t i) override { return argmax_[i]; }
  uint64_t weight_bytes_per_token() const override { return bytes_per_token_; }
  uint64_t memory_bytes() const override;

 private:
  /// A buffer of the program: rows of `stride` floats, padded to 16.
  struct Rows {
    Memory memory;
    uint32_t width = 0, stride = 0;
    RowSet set = RowSet::kTokens;
    float* row(uint64_t i) const { return memory.as<float>() + i * stride; }
  };

  /// The next work item of an op that threads draw from it; reset before a step.
  struct alignas(64) Counter {
    std::atomic<uint32_t> next{0};
  };

  struct BoundProduct {
    const Matrix* matrix = nullptr;
    const float* scale = nullptr;  ///< one an expert, 16 apart
    const float* bias = nullptr;   ///< [n_expert][bias_stride]
    uint32_t bias_stride = 0;
    uint32_t n_row_tiles = 0;
    const Product* product = nullptr;
  };

  struct BoundLinear {
    NormArgs norm;
    RowSet out = RowSet::kTokens;  ///< row set of all outputs
    uint32_t n_cols = 0;
    PackForms forms;  ///< of the input
    std::vector<BoundProduct> products;
    uint32_t n_row_tiles = 0;  ///< of all products
  };

  /// Neighbouring rows of one sequence that attend together.
  struct RowBlock {
    uint32_t begin, end;
  };
  static constexpr uint32_t kMostRows = 8, kMostHeads = 8;  ///< of one job of an attention

  /// Of one rope, for the rows of a step.
  struct Rotations {
    Memory cosines, sines;  ///< [rows][n_pairs] f32
  };

  BoundLinear bind(const LinearOp& op, const Capacity& capacity);
  NormArgs bind(const Norm& norm, uint32_t n);

  /// The part [begin, end) of n items that is this thread's.
  std::pair<uint32_t, uint32_t> share(uint32_t n, int thread) const;

  void begin(const Step& step);
  void cut_rows();
  void reserve_attention(const Capacity& capacity);

  // One op, done by all threads; walk() puts a barrier behind it.
  void walk(int thread);
  void run_op(size_t index, int thread);
  void rotations(int thread);
  void run_op(const EmbedOp& op, size_t index, int thread);
  void run_op(const LinearOp& op, size_t index, int thread);
  void run_op(const NormOp& op, size_t index, int thread);
  void run_op(const AppendOp& op, size_t index, int thread);
  void run_op(const AttendOp& op, size_t index, int thread);
  void run_op(const RouteOp& op, size_t index, int thread);
  void run_op(const CombineOp& op, size_t index, int thread);
  void run_op(const SelectOp& op, size_t index, int thread);
  void run_op(const ArgmaxOp& op, size_t index, int thread);

  void pack_input(const LinearOp& op, const BoundLinear& bound, const TileList& tiles, int thread);
  void multiply(const BoundLinear& bound, const TileList& tiles, uint32_t first, uint32_t last, int thread);
  void multiply(const BoundLinear& bound, const BoundProduct& p, const TileList& list, uint32_t row_tile, uint32_t n,
                int thread);
  void finish(const BoundProduct& p, uint32_t expert, uint32_t row_tile, uint32_t row, const float* acc);
  void choose_experts(const RouteOp& op, uint32_t row, float* p);
  void group_pairs(uint32_t n_expert);

  std::vector<float> read_kv(const Place& place) const;
  uint64_t kv_bytes() const;
  uint32_t n_rows(RowSet set) const;
  const TileList& tiles(RowSet set) const;
  const Rows& buffer(Buf i) const { return buffers_[static_cast<size_t>(i)]; }
  uint32_t* panel(int thread) const { return panels_.as<uint32_t>() + static_cast<size_t>(thread) * panel_stride_; }
  float* scratch(int thread) const { return scratch_.as<float>() + static_cast<size_t>(thread) * scratch_stride_; }

  const Program program_;
  const Kernels& kernels_;
  Pool& pool_;
  Weights weights_;
  std::vector<Rows> buffers_;
  std::vector<LayerKv> kv_;
  std::vector<BoundLinear> linears_;  ///< by op index; empty for other ops
  std::vector<NormArgs> norms_;       ///< two a op: NormOp's norm, or AppendOp's q_norm and k_norm
  PackedRows packed_;
  Memory scratch_;
  size_t scratch_stride_ = 0;            ///< floats a thread
  Memory attend_parts_;                  ///< a thread: totals and parts of a job
  size_t attend_stride_ = 0;             ///< floats a thread
  Memory split_parts_;                   ///< parts of jobs whose splits are tasks: [job][split][query][part_stride]
  std::vector<Counter> split_counters_;  ///< splits done, by job
  Memory panels_;
  size_t panel_stride_ = 0;        ///< words a thread
  std::vector<Counter> counters_;  ///< by op index
  uint64_t bytes_per_token_ = 0;

  // State of one step.
  const Step* step_ = nullptr;
  TileList token_tiles_, output_tiles_, pair_tiles_;
  std::vector<RowBlock> row_blocks_;
  std::vector<Rotations> rotations_;  ///< by rope
  Memory chosen_;                     ///< [rows][n_expert_used] u32, ascending
  Memory expert_weights_;             ///< [rows][n_expert_used] f32
  std::vector<int32_t> argmax_;
};

}  // namespace lamina::cpu

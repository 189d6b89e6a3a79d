// A program bound to the CPU: every thread walks the list of ops, does its share of each and meets the others at
// barriers. With few rows a barrier costs as much as a small op, so the ops behind a product that need no more than
// some of its rows are its tail: the thread that completes those rows runs them, and no barrier stands between.
#pragma once
#include <algorithm>
#include <atomic>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kernels/cpu/best_logits.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/tiles.h"
#include "kernels/cpu/weights.h"
#include "kernels/device.h"
#include "kernels/memory.h"
#include "kernels/pool.h"

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
  /// Rows of a step up to which small ops run in the tails of products; and values up to which every thread packs the
  /// whole input of a product for itself. Either is sooner done than a barrier is passed.
  static constexpr uint32_t kTailRows = 4, kPackAlone = 3072;

  /// Threads whose work a thread that has none left looks at.
  static constexpr int kNeighbours = 4;

  /// `plane_cache`: a folder, or empty. Reserves all memory, compares it with what there is, then loads the weights.
  CpuExecutable(const Program& program, const gguf::File& file, const Capacity& capacity, const Kernels& kernels,
                Pool& pool, const std::string& plane_cache, const Progress& progress);

  void run(const Step& step) override;
  void trace(const Step& step, const AfterOp& after_op) override;
  std::vector<float> read(const Place& place) const override;
  std::span<const float> logits(uint32_t i) override;
  std::span<const TokenLogit> best(uint32_t i) override { return best_.of(i); }
  int32_t argmax(uint32_t i) override { return best_token(best_.of(i)); }
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

  /// Work items of an op that threads have drawn (reset before a step) or done (reset when all are).
  struct alignas(64) Counter {
    std::atomic<uint32_t> next{0};
    /// Books n of `all` items as done; true for the thread that completes them, which sees what the others wrote.
    bool complete(uint32_t n, uint32_t all);
  };

  /// A thread, and its place in the team that shares an op: the team is all threads, or in a tail one alone.
  struct Worker {
    int thread;
    uint32_t index, count;
    /// The part [begin, end) of n items that is this one's.
    std::pair<uint32_t, uint32_t> share(uint64_t n) const {
      return {static_cast<uint32_t>(n * index / count), static_cast<uint32_t>(n * (index + 1) / count)};
    }
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
    uint32_t n_row_tiles = 0;          ///< of all products
    uint32_t n_tail = 0;               ///< ops behind it that may run in its tail
    const AppendOp* append = nullptr;  ///< the tail, when that is the append of its heads
    bool offers = false;  ///< makes the logits, and offers them to best_ in the place of the ArgmaxOp behind it
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

  void bind_tail(size_t index);
  bool is_append_of(const AppendOp& append, const LinearOp& op) const;
  void begin(const Step& step, bool traced);
  Worker everybody(int thread) const {
    return {thread, static_cast<uint32_t>(thread), static_cast<uint32_t>(pool_.size())};
  }

  void cut_rows();
  void reserve_attention(const Capacity& capacity);

  // One op, done by a team; walk() puts a barrier behind it and its tail.
  void walk(int thread);
  void run_op(size_t index, Worker worker);
  void rotations(Worker worker);
  void run_op(const EmbedOp& op, size_t index, Worker worker);
  void run_op(const LinearOp& op, size_t index, Worker worker);
  void run_op(const NormOp& op, size_t index, Worker worker);
  void run_op(const AppendOp& op, size_t index, Worker worker);
  void run_op(const AttendOp& op, size_t index, Worker worker);
  void run_op(const RouteOp& op, size_t index, Worker worker);
  void run_op(const CombineOp& op, size_t index, Worker worker);
  void run_op(const SelectOp& op, size_t index, Worker worker);
  void run_op(const ArgmaxOp& op, size_t index, Worker worker);

  /// What the threads of a linear op share.
  struct Multiplication {
    const BoundLinear& bound;
    const TileList& list;
    const PackedRows& packed;
    bool one_input;  ///< all rows have the same input, packed once
    PackedTile tile(const TokenTile& at) const;
  };

  void pack_input(const LinearOp& op, const Multiplication& work, Worker worker);
  /// Calls work(first, last) for parts of n items, `most` at a time, until none is left: first those of the thread's
  /// own share, from a counter that nobody else touches meanwhile, then what its neighbours have left of theirs.
  template <class Work>
  void draw(size_t index, int thread, uint32_t n, uint32_t most, Work work) {
    const int n_threads = pool_.size();
    for (int i = 0; i < std::min(n_threads, 1 + kNeighbours); i++) {
      const int owner = (thread + i) % n_threads;
      const auto [begin, end] = everybody(owner).share(n);
      std::atomic<uint32_t>& next = counters_[index * static_cast<size_t>(n_threads) + static_cast<size_t>(owner)].next;
      while (begin + next.load(std::memory_order_relaxed) < end) {
        const uint32_t first = begin + next.fetch_add(most, std::memory_order_relaxed);
        if (first < end) work(first, std::min(first + most, end));
      }
    }
  }
  void multiply(const Multiplication& work, const TileGroup& group, uint32_t first, uint32_t last, int thread);
  void multiply(const Multiplication& work, const BoundProduct& p, const TileGroup& group, uint32_t row_tile,
                uint32_t n, int thread);
  void finish(const BoundLinear& bound, const BoundProduct& p, uint32_t expert, uint32_t row_tile, uint32_t row,
              float* acc, int thread);
  void append_heads(const AppendOp& op, size_t index, uint32_t first, uint32_t last);
  void append_head(const AppendOp& op, size_t index, uint32_t row, uint32_t head);
  void choose_experts(const RouteOp& op, uint32_t row, float* p);

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
  std::vector<PackedRows> own_packed_;  ///< a thread each, for inputs that it packs alone
  Memory scratch_;
  size_t scratch_stride_ = 0;            ///< floats a thread
  Memory attend_parts_;                  ///< a thread: totals and parts of a job
  size_t attend_stride_ = 0;             ///< floats a thread
  Memory split_parts_;                   ///< parts of jobs whose splits are tasks: [job][split][query][part_stride]
  std::vector<Counter> split_counters_;  ///< splits done, by job
  Memory panels_;
  size_t panel_stride_ = 0;        ///< words a thread
  std::vector<Counter> counters_;  ///< [ops][threads]
  std::vector<Counter> done_;      ///< by part of the op that runs: heads that are complete, or [0]: the whole op
  uint64_t bytes_per_token_ = 0;

  // State of one step.
  const Step* step_ = nullptr;
  bool tails_ = false;   ///< small ops run in the tails of products
  bool traced_ = false;  ///< op by op: no tails, and all logits are written
  TileList token_tiles_, output_tiles_, pair_tiles_;
  std::vector<RowBlock> row_blocks_;
  std::vector<Rotations> rotations_;  ///< by rope
  Memory chosen_;                     ///< [rows][n_expert_used] u32, ascending
  Memory expert_weights_;             ///< [rows][n_expert_used] f32
  BestLogits best_;
  uint32_t n_best_ = 0;  ///< of the last step
};

}  // namespace lamina::cpu

// What a runtime must offer: compile a Program (bringing its weights into planes) and run it on steps.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/place.h"
#include "kernels/program.h"

namespace lamina {

/// Positions in one KV page. Pages are absolute: position p of a sequence lives in its page p / kPagePositions.
constexpr uint32_t kPagePositions = 64;

/// One forward pass: rows of tokens, possibly of several sequences. Rows of a sequence are in ascending position.
struct Step {
  std::vector<int32_t> token;      ///< [rows] ids in 0 .. n_vocab - 1
  std::vector<uint32_t> position;  ///< [rows]
  std::vector<uint32_t> sequence;  ///< [rows] index into pages
  std::vector<std::vector<uint32_t>>
      pages;                      ///< page table of each sequence: pages[s][p / 64], covering all positions in use
  std::vector<uint32_t> outputs;  ///< rows whose logits are wanted, ascending

  /// What is wanted of the logits of each output row: 0: all of them and the argmax; else no more than the n best (1:
  /// the argmax alone), which spares a device to write and read again all others. At most kMaxBest.
  uint32_t n_best = 0;
};
constexpr uint32_t kMaxBest = 256;

struct TokenLogit {
  float logit;
  int32_t token;
};

/// The order of candidates: higher logits first, ties by token.
inline bool is_better(const TokenLogit& a, const TokenLogit& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

/// The first of candidates in order; 0 when there are none.
inline int32_t best_token(std::span<const TokenLogit> best) { return best.empty() ? 0 : best[0].token; }

/// How keys and values are kept: float16, or int8 codes with a float16 scale for each 32 dimensions of a head.
enum class KvType : uint8_t { kF16, kQ8_0 };

/// Sizes that a compiled program must hold.
struct Capacity {
  uint32_t max_rows = 512;   ///< rows of a step
  uint32_t max_outputs = 1;  ///< outputs of a step
  uint32_t n_pages = 0;      ///< KV pages in the pool
  KvType kv_type = KvType::kF16;
};

/// Called when op `index` of a step has run; false ends the step there. Must not throw.
using AfterOp = std::function<bool(size_t index)>;

/// A program bound to a device, with its weights, buffers and KV pages.
class Executable {
 public:
  virtual ~Executable() = default;

  /// Runs one step. All is validated before; throws only when the device itself fails.
  virtual void run(const Step& step) = 0;

  /// The same op by op, to look inside: slower. During `after_op`, read() gives what stands in a place at that moment.
  virtual void trace(const Step& step, const AfterOp& after_op) = 0;
  virtual std::vector<float> read(const Place& place) const = 0;

  /// Of output row i of the last step, valid until the next: the logits [n_vocab], where the step asked for all; the
  /// step's n_best best ones, where it asked for some (fewer when there are no more numbers); the best token, the
  /// lowest of equals, 0 when no logit is a number.
  virtual std::span<const float> logits(uint32_t i) = 0;
  virtual std::span<const TokenLogit> best(uint32_t i) = 0;
  virtual int32_t argmax(uint32_t i) = 0;

  /// Bytes of weights that one generated token reads, and bytes held in all.
  virtual uint64_t weight_bytes_per_token() const = 0;
  virtual uint64_t memory_bytes() const = 0;
};

/// Called while weights load: bytes done, bytes in all.
using Progress = std::function<void(uint64_t done, uint64_t total)>;

/// What the hardware does at best, measured.
struct Peaks {
  double read_bytes_per_second = 0;
  double int8_flops = 0;     ///< operations a second, a multiply-add being two, on int8 codes
  double float32_flops = 0;  ///< the same on float32
};

class Device {
 public:
  virtual ~Device() = default;

  virtual std::string name() const = 0;  ///< "cpu"

  /// Takes about a second; zeros where the device cannot tell.
  virtual Peaks measure_peaks() { return {}; }

  /// Loads weights and allocates buffers. Refuses what it cannot run with Error(kDevice) naming op, tensor, type and
  /// device; throws Error(kMemory) with figures when the program does not fit. `file` must outlive the result.
  virtual std::unique_ptr<Executable> compile(const Program& program, const gguf::File& file, const Capacity& capacity,
                                              const Progress& progress) = 0;
};

}  // namespace lamina

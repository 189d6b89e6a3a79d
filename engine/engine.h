// A loaded model on a device: the file, its tokenizer and config, the program and its compiled form, and the pool of KV
// pages. In: a GGUF path, a device and sizes. Out: an Engine, on which any number of Sessions live (engine/session.h).
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "engine/kv_pages.h"
#include "gguf/file.h"
#include "kernels/device.h"
#include "kernels/program.h"
#include "model/tokenizer.h"

namespace lamina {

struct EngineOptions {
  uint32_t n_ctx = 0;        ///< positions a sequence may hold; 0: min(the model's context length, 4096)
  uint32_t n_ctx_least = 0;  ///< raises n_ctx to this
  uint32_t n_batch = 512;    ///< rows of a step at most
  KvType kv_type = KvType::kF16;
  uint32_t n_sequence = 1;  ///< sequences of full length that the KV pages must hold
  bool all_logits = false;  ///< many output rows a step are asked for, not only one a sequence
  bool tokenizer = true;    ///< text is needed; without it any vocabulary will do
  Progress progress = {};   ///< called while weights load; may be empty
};

class Engine {
 public:
  /// Loads `file` onto `device`. Throws Error: kModel for the file, kUsage for sizes that the model cannot have,
  /// kDevice and kMemory from the device. A context longer than the model's warns.
  Engine(gguf::File file, std::shared_ptr<Device> device, const EngineOptions& options);

  /// The same for the file at `path`.
  Engine(const std::string& path, std::shared_ptr<Device> device, const EngineOptions& options)
      : Engine(gguf::File::open(path), std::move(device), options) {}

  const gguf::File& file() const { return file_; }
  const Tokenizer& tokenizer() const;  ///< needs EngineOptions::tokenizer
  const Program& program() const { return program_; }
  Device& device() const { return *device_; }
  const Executable& executable() const { return *executable_; }
  PagePool& pages() { return pages_; }

  uint32_t n_ctx() const { return n_ctx_; }
  uint32_t n_vocab() const { return program_.n_vocab; }
  uint32_t max_rows() const { return capacity_.max_rows; }
  uint32_t max_outputs() const { return capacity_.max_outputs; }

  /// A step to fill and run, whose memory lasts from step to step.
  Step& step() { return step_; }

  /// Runs one step; counts them, so that a Session knows whether the device still holds its logits.
  void run(const Step& step);

  /// From now on steps run op by op and `after_op` is called behind each op (Executable::trace); an empty one ends
  /// that.
  void set_trace(AfterOp after_op) { after_op_ = std::move(after_op); }

  uint64_t n_steps() const { return n_steps_; }
  std::span<const float> logits(uint32_t output) { return executable_->logits(output); }
  std::span<const TokenLogit> best(uint32_t output) { return executable_->best(output); }
  int32_t argmax(uint32_t output) { return executable_->argmax(output); }

 private:
  std::shared_ptr<Device> device_;
  gguf::File file_;
  std::unique_ptr<Tokenizer> tokenizer_;
  Program program_;
  uint32_t n_ctx_ = 0;
  Capacity capacity_;
  PagePool pages_;
  std::unique_ptr<Executable> executable_;
  Step step_;
  uint64_t n_steps_ = 0;
  AfterOp after_op_;
};

}  // namespace lamina

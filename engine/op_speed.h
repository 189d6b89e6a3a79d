// The speed of ops, each alone. In: a program and a device. Out: for each distinct op the time it takes on some rows,
// the bytes that it must move and the operations that it must do. An op is copied, with synthetic weights of its own
// for each copy, into a program of nothing else, so that weights come from memory as they do in a model.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/synthetic_weights.h"
#include "kernels/device.h"
#include "kernels/program.h"

namespace lamina {

struct OpSpeed {
  double seconds = 0;
  double bytes = 0;       ///< weights as the device holds them, keys and values, activations in and out: each once
  double operations = 0;  ///< a multiply-add is two
  bool int8 = false;      ///< on int8 codes, else on floats
};

struct OpRows {
  uint32_t n_rows = 1;
  uint32_t depth = 0;  ///< positions before the first row
};

/// The weights of an op's copies together: more than caches hold.
constexpr uint64_t kBytesOfCopies = uint64_t{256} << 20;

/// Some ops of a program in a row, ready to be timed on a device.
class OpTimer {
 public:
  /// `ops` are indices into program.ops, neighbours that belong together. There are as many copies of them as have
  /// about `bytes_of_copies` of weights, but at least one and not too many. Errors as Device::compile.
  OpTimer(Device& device, const Program& program, const std::vector<size_t>& ops, const OpRows& most,
          uint64_t bytes_of_copies = kBytesOfCopies);

  /// The best of several runs.
  OpSpeed measure(const OpRows& rows);

 private:
  Program source_;
  std::vector<Op> ops_;
  uint32_t n_copies_ = 1;
  uint32_t n_token_ = 1;  ///< ids below this can be looked up
  SyntheticWeights weights_;
  std::unique_ptr<Executable> without_, with_;  ///< what fills the inputs; the same and the copies
};

/// Seconds of the best of several runs of a step, for about `least_seconds` in all.
double best_seconds(Executable& executable, const Step& step, double least_seconds);

/// `rows` of one sequence; the tokens are ids below n_vocab, and the last row's logits are wanted.
Step step_of(const OpRows& rows, uint32_t n_vocab);

}  // namespace lamina

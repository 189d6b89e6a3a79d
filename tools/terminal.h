// What the binary says and hears: checked writing to standard output, reading of text or lines, and a progress line on
// terminals only.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "gguf/error.h"
#include "kernels/device.h"
#include "tools/signal_flag.h"

namespace lamina {

/// Writes `text` to standard output, into its buffer. Throws Error(kRuntime) when that fails (a closed pipe, a full
/// disk).
void print_stdout(std::string_view text);

/// The same, at once: for text that a reader waits for.
void write_stdout(std::string_view text);

/// Writes text that a model made (whole characters), at once. On a terminal, control characters other than newline and
/// tab appear as \x1b, for a terminal would act on them.
void write_model_text(std::string_view text);

/// Flushes standard output; throws as print_stdout, also for what was printed by other means before.
void flush_stdout();

/// All bytes of the file `path`, or of standard input for "-". Throws Error(kind) when it cannot be read.
std::string read_text(const std::string& path, ErrorKind kind);

/// The next line of standard input without its end; nothing at the end of input. Throws Error(kUsage) when it cannot be
/// read.
std::optional<std::string> read_line();

/// Throws Interrupted when a signal comes while weights load. Unless `quiet` or standard error is no terminal, it also
/// shows "loading 41 %" there, and takes the line away at the end.
Progress loading_progress(const SignalFlag& signals, bool quiet);

/// How far a transfer is, as a line shows it: "smollm2  41 %  40.3 of 98.4 MB  12.1 MB/s  0:05 left". `fetched` bytes
/// came in `seconds`; the rest of `done` was there before.
std::string transfer_text(const std::string& name, uint64_t done, uint64_t total, uint64_t fetched, double seconds);

/// Shows on a terminal how far a transfer is; elsewhere nothing.
class TransferLine {
 public:
  explicit TransferLine(std::string name) : name_(std::move(name)) {}
  ~TransferLine() { clear(); }
  TransferLine(const TransferLine&) = delete;
  TransferLine& operator=(const TransferLine&) = delete;

  void show(uint64_t done, uint64_t total);

  /// Takes the line away, before something else is printed.
  void clear();

 private:
  using Time = std::chrono::steady_clock::time_point;
  std::string name_;
  bool visible_ = false;
  uint64_t done_at_start_ = 0;
  Time start_, next_;  ///< of the transfer, and when the line may change again
};

/// Whether standard error is a terminal, and whether standard input is one too: somebody types.
bool stderr_is_terminal();
bool is_interactive();

}  // namespace lamina

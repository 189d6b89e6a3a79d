// SIGINT and SIGTERM as a flag that long work looks at, so that text said so far is kept and files are tidied up.
// In: the signals. Out: a flag, and the exception that becomes the exit code 130 or 143.
#pragma once
#include <atomic>

namespace lamina {

/// Thrown by a verb that a signal ended, after it has tidied up; the exit code is 128 + signal.
struct Interrupted {
  int signal;
};

/// While one lives, the first SIGINT or SIGTERM only sets a flag, which is clear at its beginning; a second ends the
/// process at once.
class SignalFlag {
 public:
  SignalFlag();
  ~SignalFlag();
  SignalFlag(const SignalFlag&) = delete;
  SignalFlag& operator=(const SignalFlag&) = delete;

  const std::atomic<bool>* flag() const;
  int signal() const;  ///< the signal that came, or 0

  /// Throws Interrupted when a signal came.
  void check() const;
};

}  // namespace lamina

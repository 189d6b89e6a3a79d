// The two kinds of failure. "The world is wrong" (a file, a flag, memory, a driver) is an Error: one sentence that
// names the thing, its value and the limit; a verb catches it once and prints one line. "We are wrong" is LAMINA_CHECK:
// always on, aborts; no input may reach it.
#pragma once
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace lamina {

/// What went wrong; the value is the process's exit code (design, section 6).
enum class ErrorKind { kRuntime = 1, kUsage = 2, kModel = 3, kDevice = 4, kMemory = 5, kNetwork = 6 };

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& what) : std::runtime_error(what), kind_(kind) {}
  ErrorKind kind() const { return kind_; }
  int exit_code() const { return static_cast<int>(kind_); }

 private:
  ErrorKind kind_;
};

/// Throws Error(kind) with a formatted sentence.
template <class... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

/// `text` with control characters, quotes and invalid UTF-8 escaped and cut to `max_bytes`: how strings from files are
/// printed.
std::string printable(std::string_view text, size_t max_bytes = 80);

}  // namespace lamina

#define LAMINA_CHECK(condition)                                                                      \
  do {                                                                                               \
    if (!(condition)) {                                                                              \
      std::fprintf(stderr, "lamina: internal error at %s:%d: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                                  \
    }                                                                                                \
  } while (0)

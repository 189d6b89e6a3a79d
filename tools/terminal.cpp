// Standard streams through stdio.
#include "tools/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace lamina {
namespace {

[[noreturn]] void fail_stdout() {
  const char* reason = errno != 0 ? std::strerror(errno) : "write error";
  fail(ErrorKind::kRuntime, "cannot write to standard output: {}", reason);
}

}  // namespace

void print_stdout(std::string_view text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) fail_stdout();
}

void write_stdout(std::string_view text) {
  print_stdout(text);
  flush_stdout();
}

void flush_stdout() {
  errno = 0;
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) fail_stdout();
}

std::string read_text(const std::string& path, ErrorKind kind) {
  const bool is_stdin = path == "-";
  const auto close = [](std::FILE* file) {
    if (file != stdin) std::fclose(file);
  };
  const std::unique_ptr<std::FILE, decltype(close)> file(is_stdin ? stdin : std::fopen(path.c_str(), "rb"), close);
  if (file == nullptr) fail(kind, "cannot open '{}': {}", printable(path), std::strerror(errno));
  std::string text;
  char block[1 << 16];
  while (const size_t n = std::fread(block, 1, sizeof block, file.get())) text.append(block, n);
  if (std::ferror(file.get()) != 0) {
    fail(kind, "cannot read '{}': {}", is_stdin ? "standard input" : printable(path), std::strerror(errno));
  }
  return text;
}

bool stderr_is_terminal() { return isatty(STDERR_FILENO) == 1; }

Progress loading_progress() {
  if (!stderr_is_terminal()) return {};
  return [shown = -1](uint64_t done, uint64_t total) mutable {
    const int percent =
        total > 0 ? static_cast<int>(100 * static_cast<double>(done) / static_cast<double>(total)) : 100;
    if (percent == shown) return;
    shown = percent;
    if (percent < 100) {
      fmt::print(stderr, "\rloading {} % of {:.1f} GB", percent, static_cast<double>(total) * 1e-9);
    } else {
      fmt::print(stderr, "\r\x1b[K");  // gone
    }
    std::fflush(stderr);
  };
}

}  // namespace lamina

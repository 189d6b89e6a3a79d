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
  return [](uint64_t done, uint64_t total) {
    if (done >= total) {
      fmt::print(stderr, "\r\x1b[K");
    } else {
      const auto whole = static_cast<double>(total);
      fmt::print(stderr, "\rloading {:.0f} % of {:.1f} GB", 100.0 * static_cast<double>(done) / whole, whole * 1e-9);
    }
    std::fflush(stderr);
  };
}

}  // namespace lamina

// Standard streams through stdio.
#include "tools/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
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

std::string transfer_text(const std::string& name, uint64_t done, uint64_t total, uint64_t fetched, double seconds) {
  const auto mb = [](uint64_t bytes) { return static_cast<double>(bytes) * 1e-6; };
  std::string text = fmt::format("{}  {} %  {:.1f} of {:.1f} MB", name,
                                 static_cast<int>(100 * mb(done) / std::max(mb(total), 1e-6)), mb(done), mb(total));
  if (fetched == 0 || seconds <= 0) return text;
  const double rate = mb(fetched) / seconds;
  const auto left = static_cast<uint64_t>(mb(total - done) / rate);
  return text + fmt::format("  {:.1f} MB/s  {}:{:02} left", rate, left / 60, left % 60);
}

void TransferLine::show(uint64_t done, uint64_t total) {
  const Time now = std::chrono::steady_clock::now();
  if (!stderr_is_terminal() || now < next_) return;
  if (start_ == Time() || done < done_at_start_) {  // the first time, or the transfer started over
    start_ = now;
    done_at_start_ = done;
  }
  const std::chrono::duration<double> time = now - start_;
  fmt::print(stderr, "\r\x1b[K{}", transfer_text(name_, done, total, done - done_at_start_, time.count()));
  std::fflush(stderr);
  visible_ = true;
  next_ = now + std::chrono::milliseconds(200);
}

void TransferLine::clear() {
  if (std::exchange(visible_, false)) fmt::print(stderr, "\r\x1b[K");
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

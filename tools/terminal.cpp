// Standard streams through stdio.
#include "tools/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>

#include "gguf/utf8.h"

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

void write_model_text(std::string_view text) {
  if (isatty(STDOUT_FILENO) != 1) return write_stdout(text);
  std::string shown;
  for (size_t pos = 0; pos < text.size();) {
    const auto [c, length] = gguf::decode_utf8(text, pos);
    const size_t n_bytes = std::max<size_t>(length, 1);
    if ((c < 0x20 && c != '\n' && c != '\t') || (c >= 0x7F && c <= 0x9F)) {
      fmt::format_to(std::back_inserter(shown), "\\x{:02x}", c);
    } else {
      shown.append(text, pos, n_bytes);
    }
    pos += n_bytes;
  }
  write_stdout(shown);
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

std::optional<std::string> read_line() {
  char* line = nullptr;
  size_t capacity = 0;
  const ssize_t n = getline(&line, &capacity, stdin);
  const std::unique_ptr<char, decltype(&std::free)> owner(line, std::free);
  if (n < 0 && std::ferror(stdin) != 0) {
    fail(ErrorKind::kUsage, "cannot read standard input: {}", std::strerror(errno));
  }
  if (n < 0) return std::nullopt;
  std::string text(line, static_cast<size_t>(n));
  if (text.ends_with('\n')) text.pop_back();
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
bool is_interactive() { return isatty(STDIN_FILENO) == 1 && stderr_is_terminal(); }

Progress loading_progress(const SignalFlag& signals, bool quiet) {
  const bool visible = !quiet && stderr_is_terminal();
  return [&signals, visible, shown = -1](uint64_t done, uint64_t total) mutable {
    const bool interrupted = signals.signal() != 0;  // read once: what is shown must go before the exception
    const bool over = interrupted || done == total;
    const int percent = over ? 100 : static_cast<int>(100 * static_cast<double>(done) / static_cast<double>(total));
    if (visible && percent != shown) {
      shown = percent;
      if (percent < 100) {
        fmt::print(stderr, "\rloading {} % of {:.1f} GB", percent, static_cast<double>(total) * 1e-9);
      } else {
        fmt::print(stderr, "\r\x1b[K");  // gone
      }
      std::fflush(stderr);
    }
    if (interrupted) signals.check();
  };
}

}  // namespace lamina

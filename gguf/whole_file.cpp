// Bytes go to PATH.PID.part, which is renamed at the end.
// In: bytes. Out: a file that is complete, or none.
#include "gguf/whole_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "gguf/error.h"

namespace lamina {

WholeFile::WholeFile(std::string path) : path_(std::move(path)), written_(path_) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path_, ignored);
  if (!std::filesystem::exists(status) || std::filesystem::is_regular_file(status)) {
    written_ = fmt::format("{}.{}.part", path_, getpid());
  }
  file_ = std::fopen(written_.c_str(), "wb");
  if (file_ == nullptr) fail(ErrorKind::kRuntime, "cannot create '{}': {}", printable(path_), std::strerror(errno));
}

WholeFile::~WholeFile() {
  if (file_ != nullptr) std::fclose(file_);
  if (!complete_ && written_ != path_) std::remove(written_.c_str());
}

void WholeFile::write(std::span<const std::byte> bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) fail_writing();
}

void WholeFile::extend(uint64_t size) {
  if (std::fflush(file_) != 0 || ftruncate(fileno(file_), static_cast<off_t>(size)) != 0) fail_writing();
}

void WholeFile::finish() {
  // The name must not outlive the bytes; what is no regular file cannot be synchronised and need not.
  if (std::fflush(file_) != 0) fail_writing();
  if (written_ != path_ && fsync(fileno(file_)) != 0) fail_writing();
  if (std::fclose(std::exchange(file_, nullptr)) != 0) fail_writing();
  if (written_ != path_ && std::rename(written_.c_str(), path_.c_str()) != 0) fail_writing();
  complete_ = true;
}

void WholeFile::fail_writing() const {
  fail(ErrorKind::kRuntime, "cannot write '{}': {}", printable(path_), std::strerror(errno));
}

}  // namespace lamina

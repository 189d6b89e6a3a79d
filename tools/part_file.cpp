// The ETag is written before the first byte that belongs to it and removed before the file is emptied, so that no
// moment of a crash leaves bytes of one version beside the ETag of another.
#include "tools/part_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "gguf/error.h"

namespace lamina {
namespace {

bool is_strong_etag(const std::string& etag) { return etag.size() > 2 && etag.front() == '"' && etag.back() == '"'; }

}  // namespace

PartFile::PartFile(std::filesystem::path path) : path_(std::move(path)), etag_path_(path_.string() + ".etag") {
  fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  struct stat status = {};
  if (fd_ < 0 || fstat(fd_, &status) != 0) fail_writing(path_);
  size_ = static_cast<uint64_t>(status.st_size);
  std::string etag;
  if (std::getline(std::ifstream(etag_path_), etag) && is_strong_etag(etag)) etag_ = etag;
}

PartFile::~PartFile() {
  if (fd_ >= 0) close(fd_);
}

void PartFile::restart(const std::string& etag) {
  std::error_code ignored;
  std::filesystem::remove(etag_path_, ignored);
  if (size_ > 0 && ftruncate(fd_, 0) != 0) fail_writing(path_);
  size_ = 0;
  etag_.clear();
  if (!is_strong_etag(etag)) return;
  std::ofstream file(etag_path_);
  if (!(file << etag << '\n').flush()) fail_writing(etag_path_);
  etag_ = etag;
}

void PartFile::append(std::span<const char> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail_writing(path_);
    size_ += static_cast<uint64_t>(n);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

void PartFile::remove() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
  std::filesystem::remove(etag_path_, ignored);
}

void PartFile::fail_writing(const std::filesystem::path& path) const {
  fail(ErrorKind::kRuntime, "cannot write '{}': {}", printable(path.string(), 200), std::strerror(errno));
}

}  // namespace lamina

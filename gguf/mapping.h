// A regular file mapped read-only into memory.
// In: a path. Out: its bytes, or an Error(kModel) for whatever is not a readable, non-empty regular file.
// A file that shrinks while it is mapped makes reads fault; such a fault ends the process with one line that names the
// file and exit code 3 instead of a bare SIGBUS.
#pragma once
#include <cstddef>
#include <span>
#include <string>

namespace lamina::gguf {

class Mapping {
 public:
  explicit Mapping(const std::string& path);
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping();

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::string path_;
  std::span<const std::byte> bytes_;
};

/// The path as messages show it.
std::string shown_path(const std::string& path);

/// Drops all pages that `bytes` (part of a Mapping) touch from the process; they come back from the file when read
/// again.
void drop_pages(std::span<const std::byte> bytes);

}  // namespace lamina::gguf

// What has arrived of a file, and of which version of it: FILE.part and FILE.part.etag.
// In: bytes as they arrive, and the ETag under which a server sent them. Out: both files, from which a later process
// goes on. Errors are Error(kRuntime) with path and reason.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace lamina {

class PartFile {
 public:
  /// Opens or creates `path`.
  explicit PartFile(std::filesystem::path path);
  ~PartFile();
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  uint64_t size() const { return size_; }

  /// The version that the bytes are of; empty: not known, so they cannot be continued.
  const std::string& etag() const { return etag_; }

  /// Empties the file; what is appended from now on belongs to `etag`. Only a strong ETag ("...") is kept: a weak one
  /// (W/"...") does not promise equal bytes.
  void restart(const std::string& etag);

  void append(std::span<const char> bytes);

  /// Removes both files.
  void remove();

 private:
  [[noreturn]] void fail_writing(const std::filesystem::path& path) const;

  std::filesystem::path path_, etag_path_;
  int fd_ = -1;
  uint64_t size_ = 0;
  std::string etag_;
};

}  // namespace lamina

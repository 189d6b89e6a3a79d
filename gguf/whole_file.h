// An output file that appears under its name only when it is complete.
// In: a path and bytes. Out: the file, or nothing: what was written until a failure is removed. An existing path that
// is no regular file (a pipe, /dev/null) is written directly. Errors are Error(kRuntime) with path and reason.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>

namespace lamina {

class WholeFile {
 public:
  explicit WholeFile(std::string path);
  ~WholeFile();
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;

  const std::string& path() const { return path_; }
  const std::string& written_path() const { return written_; }  ///< where the bytes are until finish()

  void write(std::span<const std::byte> bytes);

  /// Makes the file `size` bytes long, the new ones zeros; later writes go on where the last one ended.
  void extend(uint64_t size);

  /// Gives the file its name.
  void finish();

 private:
  [[noreturn]] void fail_writing() const;

  std::string path_, written_;
  std::FILE* file_ = nullptr;
  bool complete_ = false;
};

}  // namespace lamina

// An output file that appears under its name only when it is complete. In: a path and bytes. Out: the file, or nothing.
#pragma once
#include <cstdio>
#include <span>
#include <string>

namespace lamina {

/// What was written goes when it is destroyed before finish(). An existing path that is no regular file (a pipe,
/// /dev/null) is written directly. All throw Error(kRuntime) when the file cannot be written.
class WholeFile {
 public:
  explicit WholeFile(std::string path);
  ~WholeFile();
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void finish();

 private:
  [[noreturn]] void fail_writing() const;

  std::string path_, written_;
  std::FILE* file_ = nullptr;
  bool complete_ = false;
};

}  // namespace lamina

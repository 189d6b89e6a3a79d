// Writes a GGUF file (version 3).
// In: keys with values, then the list of tensors, then the tensors' data in that order and in pieces of any size;
// nothing but the piece at hand is kept in memory. Out: a file that the reader accepts, under its name only when it is
// complete.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/file.h"
#include "gguf/whole_file.h"

namespace lamina::gguf {

class Writer {
 public:
  /// Throws Error(kRuntime) when `path` cannot be created; all members do when it cannot be written.
  explicit Writer(std::string path);

  /// Adds a key. Throws Error(kModel), naming it, when the value is not of `type` or does not fit it.
  void add(std::string_view key, ValueType type, const Value& value);
  void add(const KeyValue& entry) { add(entry.key, entry.type, entry.value); }

  /// Adds a row of the tensor table.
  void add_tensor(std::string_view name, const std::vector<uint64_t>& shape, const Type& type);

  /// The next bytes of tensor data; no key or tensor is added afterwards. The first call throws Error(kModel) when a
  /// key or tensor is none that the reader accepts: nothing of the data is written then.
  void write(std::span<const std::byte> data);

  /// Ends the file and gives it its name. All data must have been written.
  void finish();

 private:
  struct Extent {
    std::string row;  ///< the tensor's row of the table, all but its offset
    uint64_t bytes = 0;
  };
  uint64_t padding(uint64_t position) const;
  void write_header();
  void pad(uint64_t n_bytes);

  WholeFile file_;
  uint64_t alignment_ = 32;
  uint64_t n_keys_ = 0;
  std::string keys_;  ///< encoded
  std::vector<Extent> tensors_;
  bool has_header_ = false;
  size_t current_ = 0;    ///< the tensor that the next bytes belong to
  uint64_t written_ = 0;  ///< bytes of it so far
};

}  // namespace lamina::gguf

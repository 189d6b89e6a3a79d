// A GGUF file (v2 or v3, one file or a split set) as read-only views: metadata values and tensors.
// In: a path. Out: a File, all of whose sizes, offsets and types were checked against the bytes that are there.
// A file is hostile: every length is checked against what remains before anything is allocated. Strings and tensor data
// are views into the mapping and live as long as the File. Format:
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gguf/type.h"

namespace lamina::gguf {

/// Type numbers of metadata values, as stored in the file.
enum class ValueType : uint32_t {
  kUint8 = 0,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64
};

struct Array;

/// A metadata value: integers are widened to 64 bits (their sign kept), floats to double.
using Value = std::variant<uint64_t, int64_t, double, bool, std::string_view, Array>;

/// A metadata array of one element type. Booleans are uint8_t 0 or 1.
struct Array {
  ValueType type = ValueType::kUint8;  ///< element type in the file
  std::variant<std::vector<uint64_t>, std::vector<int64_t>, std::vector<double>, std::vector<uint8_t>,
               std::vector<std::string_view>, std::vector<Array>>
      items;
  size_t size() const;
};

/// One key of the metadata with its value.
struct KeyValue {
  std::string key;
  ValueType type = ValueType::kUint8;  ///< in the file
  Value value;
};

/// One tensor: `shape[0]` is the fastest dimension (columns of a weight matrix).
struct Tensor {
  std::string name;
  std::vector<uint64_t> shape;      ///< 1 to 4 dimensions, all > 0
  const Type* type = nullptr;       ///< row of the type table
  std::span<const std::byte> data;  ///< exactly the bytes that shape and type imply
  uint64_t n_elements() const;
  uint64_t n_cols() const { return shape[0]; }
  uint64_t n_rows() const { return n_elements() / shape[0]; }  ///< all further dimensions together
};

class File {
 public:
  /// Maps `path`, and the other parts when it is the first of a split set (-00001-of-0000N.gguf). Throws Error(kModel)
  /// with one line that names the file, the field and its value.
  static File open(const std::string& path);
  File(File&&) noexcept;
  File& operator=(File&&) noexcept;
  ~File();

  const std::string& path() const;
  size_t n_parts() const;
  uint32_t version() const;
  uint64_t size_bytes() const;  ///< all parts together
  /// What tells the file from others and from its own past: of each part device, inode, size and time of change.
  std::string identity() const;
  const std::vector<std::string>& warnings() const;  ///< oddities that harm nothing, one sentence each
  const std::vector<KeyValue>& metadata() const;     ///< in file order
  const Value* find(std::string_view key) const;     ///< nullptr when missing

  /// Sets or adds a key, as if the file said so; text is copied.
  void set(std::string_view key, Value value);

  const std::vector<Tensor>& tensors() const;         ///< in file order
  const Tensor* tensor(std::string_view name) const;  ///< nullptr when missing

  /// Tells the system that these bytes, part of a tensor's data, will not be read again soon (they stay valid).
  void release(std::span<const std::byte> data) const;

 private:
  struct State;
  explicit File(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace lamina::gguf

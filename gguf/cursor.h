// Reads the fields of a GGUF file one after the other.
// In: the bytes of a file. Out: little-endian numbers and string views; a field that does not fit what remains is
// refused with an Error(kModel) that names file, field, byte offset and value.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "gguf/error.h"

namespace lamina::gguf {

class Cursor {
 public:
  /// `shown` is the path as messages show it.
  Cursor(std::span<const std::byte> bytes, std::string shown) : bytes_(bytes), shown_(std::move(shown)) {}

  const std::string& shown() const { return shown_; }
  uint64_t position() const { return position_; }
  uint64_t remaining() const { return bytes_.size() - position_; }

  /// What is being read, for messages: item 3 of a list of `kind`, nameless until named() is called.
  void enter(const char* kind, uint64_t index) {
    kind_ = kind;
    index_ = index;
    name_ = {};
  }
  void named(std::string_view name) { name_ = name; }

  template <class T>
  T read(const char* field) {
    if (remaining() < sizeof(T)) refuse_end(field, sizeof(T));
    T value;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }

  /// A length of 64 bits and as many bytes, as a view into the file.
  std::string_view read_string(const char* field) {
    const auto length = read<uint64_t>(field);
    if (length > remaining()) {
      refuse(field, position_ - sizeof(length), length, fmt::format("but {} bytes remain", remaining()));
    }
    const auto* text = reinterpret_cast<const char*>(bytes_.data() + position_);
    position_ += length;
    return {text, static_cast<size_t>(length)};
  }

  /// The next `size` bytes; needs size <= remaining().
  const std::byte* take(uint64_t size) {
    LAMINA_CHECK(size <= remaining());
    const std::byte* start = bytes_.data() + position_;
    position_ += size;
    return start;
  }

  /// Throws: FILE: FIELD of ITEM at byte OFFSET is VALUE, WHY.
  template <class T>
  [[noreturn]] void refuse(const char* field, uint64_t offset, const T& value, std::string_view why) const {
    fail(ErrorKind::kModel, "{}: {}{} at byte {} is {}, {}", shown_, field, item(), offset, value, why);
  }

 private:
  std::string item() const {
    if (kind_ == nullptr) return "";
    return name_.empty() ? fmt::format(" of {} {}", kind_, index_)
                         : fmt::format(" of {} \"{}\"", kind_, printable(name_));
  }

  [[noreturn]] void refuse_end(const char* field, size_t size) const {
    fail(ErrorKind::kModel, "{}: the file is truncated: {}{} needs {} bytes at byte {}, but {} remain", shown_, field,
         item(), size, position_, remaining());
  }

  std::span<const std::byte> bytes_;
  std::string shown_;
  uint64_t position_ = 0;
  const char* kind_ = nullptr;
  uint64_t index_ = 0;
  std::string_view name_;
};

}  // namespace lamina::gguf

// Encodes keys and the tensor table (layout: part.cpp, metadata.cpp), then passes tensor data through.
// In: see writer.h. Out: the file. What a file may hold is said once, by the reader: the header is read back, in a file
// of the final size, before data follow.
#include "gguf/writer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "gguf/error.h"
#include "gguf/metadata.h"

namespace lamina::gguf {
namespace {

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

void put_string(std::string& out, std::string_view text) {
  put(out, uint64_t{text.size()});
  out += text;
}

/// Appends values of one key.
class ValueEncoder {
 public:
  ValueEncoder(std::string& out, std::string_view key) : out_(out), key_(key) {}

  /// `value` in the form that the file has for `type`.
  template <class Wide>
  void encode(ValueType type, const Wide& value) {
    if constexpr (std::is_same_v<Wide, uint64_t>) {
      switch (type) {
        case ValueType::kUint8: return narrow<uint8_t>(value);
        case ValueType::kUint16: return narrow<uint16_t>(value);
        case ValueType::kUint32: return narrow<uint32_t>(value);
        case ValueType::kUint64: return put(out_, value);
        default: break;
      }
    } else if constexpr (std::is_same_v<Wide, int64_t>) {
      switch (type) {
        case ValueType::kInt8: return narrow<int8_t>(value);
        case ValueType::kInt16: return narrow<int16_t>(value);
        case ValueType::kInt32: return narrow<int32_t>(value);
        case ValueType::kInt64: return put(out_, value);
        default: break;
      }
    } else if constexpr (std::is_same_v<Wide, double>) {
      if (type == ValueType::kFloat64) return put(out_, value);
      if (type == ValueType::kFloat32) {
        if (std::isfinite(value) && std::fabs(value) > std::numeric_limits<float>::max()) refuse_size(value);
        return put(out_, static_cast<float>(value));
      }
    } else if constexpr (std::is_same_v<Wide, bool> || std::is_same_v<Wide, uint8_t>) {
      if (type == ValueType::kBool) return put(out_, static_cast<uint8_t>(value));
    } else if constexpr (std::is_same_v<Wide, std::string_view>) {
      if (type == ValueType::kString) return put_string(out_, value);
    } else {
      static_assert(std::is_same_v<Wide, Array>);
      if (type == ValueType::kArray) {
        put(out_, static_cast<uint32_t>(value.type));
        put(out_, uint64_t{value.size()});
        return std::visit(
            [&](const auto& items) {
              for (const auto& item : items) encode(value.type, item);
            },
            value.items);
      }
    }
    fail(ErrorKind::kModel, "the value of key \"{}\" is not of type {}", printable(key_), static_cast<uint32_t>(type));
  }

 private:
  template <class Stored, class Wide>
  void narrow(Wide value) {
    if (!std::in_range<Stored>(value)) refuse_size(value);
    put(out_, static_cast<Stored>(value));
  }

  template <class Wide>
  [[noreturn]] void refuse_size(Wide value) const {
    fail(ErrorKind::kModel, "the value of key \"{}\" is {}, which does not fit its type", printable(key_), value);
  }

  std::string& out_;
  std::string_view key_;
};

}  // namespace

Writer::Writer(std::string path) : file_(std::move(path)) {}

void Writer::add(std::string_view key, ValueType type, const Value& value) {
  LAMINA_CHECK(!has_header_);
  put_string(keys_, key);
  put(keys_, static_cast<uint32_t>(type));
  std::visit([&](const auto& wide) { ValueEncoder(keys_, key).encode(type, wide); }, value);
  ++n_keys_;
  if (key != "general.alignment") return;
  const auto* number = std::get_if<uint64_t>(&value);  // what is no alignment is refused with the header
  if (number != nullptr && *number > 0 && *number <= kMaxAlignment) alignment_ = *number;
}

void Writer::add_tensor(std::string_view name, const std::vector<uint64_t>& shape, const Type& type) {
  LAMINA_CHECK(!has_header_);
  Extent extent;
  put_string(extent.row, name);
  put(extent.row, static_cast<uint32_t>(shape.size()));
  uint64_t n_elements = 1;
  for (const uint64_t size : shape) {
    put(extent.row, size);
    n_elements *= size;  // what exceeds 64 bits is refused with the header
  }
  put(extent.row, static_cast<uint32_t>(type.id));
  extent.bytes = n_elements / type.block * type.bytes;
  tensors_.push_back(std::move(extent));
}

uint64_t Writer::padding(uint64_t position) const { return (alignment_ - position % alignment_) % alignment_; }

void Writer::pad(uint64_t n_bytes) {
  static constexpr std::array<std::byte, 64> kZeros = {};
  for (; n_bytes > 0; n_bytes -= std::min<uint64_t>(n_bytes, kZeros.size())) {
    file_.write(std::span(kZeros).first(std::min<uint64_t>(n_bytes, kZeros.size())));
  }
}

void Writer::write_header() {
  has_header_ = true;
  std::string header = "GGUF";
  put(header, uint32_t{3});
  put(header, uint64_t{tensors_.size()});
  put(header, n_keys_);
  header += keys_;
  uint64_t offset = 0;
  for (const Extent& tensor : tensors_) {
    header += tensor.row;
    put(header, offset);
    offset += tensor.bytes + padding(tensor.bytes);
  }
  if (!tensors_.empty()) header.append(padding(header.size()), '\0');
  file_.write(std::as_bytes(std::span(header)));
  file_.extend(header.size() + offset);
  File::open(file_.written_path());
}

void Writer::write(std::span<const std::byte> data) {
  if (!has_header_) write_header();
  while (!data.empty()) {
    LAMINA_CHECK(current_ < tensors_.size());
    const uint64_t n_bytes = std::min<uint64_t>(data.size(), tensors_[current_].bytes - written_);
    file_.write(data.first(n_bytes));
    data = data.subspan(n_bytes);
    written_ += n_bytes;
    if (written_ < tensors_[current_].bytes) return;
    pad(padding(written_));
    written_ = 0;
    ++current_;
  }
}

void Writer::finish() {
  if (!has_header_) write_header();
  LAMINA_CHECK(current_ == tensors_.size());
  file_.finish();
}

}  // namespace lamina::gguf

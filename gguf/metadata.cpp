// Metadata: key (u64 length, bytes), type (u32), value; an array is element type (u32), count (u64), elements.
// In: a cursor on the first key. Out: keys and values in file order, or an Error(kModel).
// Counts are claims: they are held against the bytes that remain before anything is allocated, and memory grows with
// what was really read.
#include "gguf/metadata.h"

#include <algorithm>
#include <bit>

#include "gguf/utf8.h"

namespace lamina::gguf {
namespace {

constexpr size_t kMaxKeyBytes = 65535;  // the format's limit
constexpr uint64_t kMinAlignment = 8;   // the format wants a multiple of 8
constexpr int kMaxArrayDepth = 8;
// In memory an element takes up to 16 times its size in the file. The largest vocabularies have some 10^6 elements.
constexpr uint64_t kMaxArrayElements = 1 << 24;
constexpr uint64_t kMaxBytes = uint64_t{1} << 28;  // of all keys and values; real files have up to some 10^7
constexpr uint64_t kMaxReserveBytes = 1 << 24;     // address space taken on the word of a count, not yet memory

/// The least bytes that a value of this type takes in the file; 0 for an unknown type.
uint64_t least_bytes(uint32_t type) {
  switch (static_cast<ValueType>(type)) {
    case ValueType::kUint8:
    case ValueType::kInt8:
    case ValueType::kBool: return 1;
    case ValueType::kUint16:
    case ValueType::kInt16: return 2;
    case ValueType::kUint32:
    case ValueType::kInt32:
    case ValueType::kFloat32: return 4;
    case ValueType::kString:
    case ValueType::kUint64:
    case ValueType::kInt64:
    case ValueType::kFloat64: return 8;
    case ValueType::kArray: return 12;
  }
  return 0;
}

class MetadataReader {
 public:
  explicit MetadataReader(Cursor& cursor) : cursor_(cursor) {}

  Metadata read(uint64_t count) {
    Metadata metadata;
    metadata.values.reserve(std::min(count, kMaxReserveBytes / sizeof(metadata.values[0])));
    for (uint64_t i = 0; i < count; ++i) {
      cursor_.enter("key", i);
      const std::string_view key = read_key();
      cursor_.named(key);
      const bool is_alignment = key == "general.alignment";
      const uint64_t type_at = cursor_.position();
      const ValueType type = read_type("value type");
      if (is_alignment && type != ValueType::kUint32) {
        cursor_.refuse("value type", type_at, static_cast<uint32_t>(type), "but it must be 4 (uint32)");
      }
      const uint64_t value_at = cursor_.position();
      metadata.values.push_back({std::string(key), type, read_value(type)});
      if (cursor_.position() > kMaxBytes) {
        cursor_.refuse("end", value_at, cursor_.position(), fmt::format("past the limit of {} bytes", kMaxBytes));
      }
      if (is_alignment)
        metadata.alignment = check_alignment(std::get<uint64_t>(metadata.values.back().value), value_at);
    }
    return metadata;
  }

 private:
  std::string_view read_key() {
    const uint64_t at = cursor_.position();
    const std::string_view key = cursor_.read_string("length");
    if (key.empty()) cursor_.refuse("length", at, 0, "but a key has at least 1 byte");
    if (key.size() > kMaxKeyBytes) {
      cursor_.refuse("length", at, key.size(), fmt::format("more than the limit of {} bytes", kMaxKeyBytes));
    }
    const bool has_nul = key.find('\0') != key.npos;
    if (has_nul || !is_utf8(key)) {
      cursor_.refuse("name", at + sizeof(uint64_t), fmt::format("\"{}\"", printable(key)),
                     has_nul ? "but a key must not contain NUL" : "but a key must be UTF-8");
    }
    return key;
  }

  ValueType read_type(const char* field) {
    const uint64_t at = cursor_.position();
    const auto type = cursor_.read<uint32_t>(field);
    if (least_bytes(type) == 0) cursor_.refuse(field, at, type, "but types go from 0 to 12");
    return static_cast<ValueType>(type);
  }

  uint64_t check_alignment(uint64_t alignment, uint64_t at) const {
    if (!std::has_single_bit(alignment) || alignment < kMinAlignment || alignment > kMaxAlignment) {
      cursor_.refuse("value", at, alignment,
                     fmt::format("but it must be a power of two from {} to {}", kMinAlignment, kMaxAlignment));
    }
    return alignment;
  }

  Value read_value(ValueType type) {
    switch (type) {
      case ValueType::kUint8: return uint64_t{cursor_.read<uint8_t>("value")};
      case ValueType::kUint16: return uint64_t{cursor_.read<uint16_t>("value")};
      case ValueType::kUint32: return uint64_t{cursor_.read<uint32_t>("value")};
      case ValueType::kUint64: return cursor_.read<uint64_t>("value");
      case ValueType::kInt8: return int64_t{cursor_.read<int8_t>("value")};
      case ValueType::kInt16: return int64_t{cursor_.read<int16_t>("value")};
      case ValueType::kInt32: return int64_t{cursor_.read<int32_t>("value")};
      case ValueType::kInt64: return cursor_.read<int64_t>("value");
      case ValueType::kFloat32: return double{cursor_.read<float>("value")};
      case ValueType::kFloat64: return cursor_.read<double>("value");
      case ValueType::kBool: return read_bool() != 0;
      case ValueType::kString: return cursor_.read_string("string length");
      case ValueType::kArray: return read_array(1);
    }
    LAMINA_CHECK(!"read_type lets only known types pass");
    return {};
  }

  uint8_t read_bool() {
    const auto value = cursor_.read<uint8_t>("value");
    if (value > 1) cursor_.refuse("value", cursor_.position() - 1, value, "but a boolean is 0 or 1");
    return value;
  }

  Array read_array(int depth) {
    if (depth > kMaxArrayDepth) {
      cursor_.refuse("array depth", cursor_.position(), depth,
                     fmt::format("more than the limit of {}", kMaxArrayDepth));
    }
    Array array;
    array.type = read_type("array element type");
    const uint64_t at = cursor_.position();
    const auto count = cursor_.read<uint64_t>("array length");
    const uint64_t least = least_bytes(static_cast<uint32_t>(array.type));
    if (count > cursor_.remaining() / least) {
      cursor_.refuse("array length", at, count,
                     fmt::format("but {} bytes remain for elements of at least {}", cursor_.remaining(), least));
    }
    if (count > kMaxArrayElements - n_elements_) {
      cursor_.refuse("array length", at, count,
                     fmt::format("and makes more than {} array elements in the file", kMaxArrayElements));
    }
    n_elements_ += count;
    switch (array.type) {
      case ValueType::kUint8: array.items = read_numbers<uint8_t, uint64_t>(count); break;
      case ValueType::kUint16: array.items = read_numbers<uint16_t, uint64_t>(count); break;
      case ValueType::kUint32: array.items = read_numbers<uint32_t, uint64_t>(count); break;
      case ValueType::kUint64: array.items = read_numbers<uint64_t, uint64_t>(count); break;
      case ValueType::kInt8: array.items = read_numbers<int8_t, int64_t>(count); break;
      case ValueType::kInt16: array.items = read_numbers<int16_t, int64_t>(count); break;
      case ValueType::kInt32: array.items = read_numbers<int32_t, int64_t>(count); break;
      case ValueType::kInt64: array.items = read_numbers<int64_t, int64_t>(count); break;
      case ValueType::kFloat32: array.items = read_numbers<float, double>(count); break;
      case ValueType::kFloat64: array.items = read_numbers<double, double>(count); break;
      case ValueType::kBool: array.items = read_items<uint8_t>(count, [this] { return read_bool(); }); break;
      case ValueType::kString:
        array.items = read_items<std::string_view>(count, [this] { return cursor_.read_string("string length"); });
        break;
      case ValueType::kArray:
        array.items = read_items<Array>(count, [this, depth] { return read_array(depth + 1); });
        break;
    }
    return array;
  }

  /// `count` numbers, which fit the bytes that remain, widened.
  template <class Stored, class Wide>
  std::vector<Wide> read_numbers(uint64_t count) {
    const std::byte* bytes = cursor_.take(count * sizeof(Stored));
    std::vector<Wide> items(count);
    for (Wide& item : items) {
      Stored stored;
      std::memcpy(&stored, bytes, sizeof(Stored));
      item = stored;
      bytes += sizeof(Stored);
    }
    return items;
  }

  template <class Item, class ReadItem>
  std::vector<Item> read_items(uint64_t count, ReadItem read_item) {
    std::vector<Item> items;
    items.reserve(std::min(count, kMaxReserveBytes / sizeof(Item)));
    for (uint64_t i = 0; i < count; ++i) items.push_back(read_item());
    return items;
  }

  Cursor& cursor_;
  uint64_t n_elements_ = 0;  // of all arrays so far
};

}  // namespace

Metadata read_metadata(Cursor& cursor, uint64_t count) { return MetadataReader(cursor).read(count); }

}  // namespace lamina::gguf

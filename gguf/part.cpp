// Header, tensor table and data section of one GGUF file.
//
//   "GGUF" | version u32 | n_tensors u64 | n_kv u64 | metadata | tensor table | padding | data
//   tensor: name (u64 length, bytes) | n_dims u32 | dims u64[n_dims] | type u32 | offset u64, from the start of data
//
// In: a mapped file. Out: a Part whose tensors lie inside the file, aligned and apart from each other, or an
// Error(kModel).
#include "gguf/part.h"

#include <algorithm>
#include <bit>

#include "gguf/cursor.h"
#include "gguf/metadata.h"
#include "gguf/signature.h"

namespace lamina::gguf {
namespace {

static_assert(std::endian::native == std::endian::little, "the reader copies little-endian numbers as they are");

constexpr uint64_t kLeastKeyBytes = 8 + 1 + 4 + 1;             // length, one byte, type, one byte
constexpr uint64_t kLeastTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;  // length, one byte, n_dims, one dimension, type, offset
constexpr uint64_t kMaxKeys = 1 << 16;     // real files have some 50: a key takes more memory than it takes in the file
constexpr uint64_t kMaxTensors = 1 << 20;  // real files have up to some 10^4
constexpr size_t kMaxNameBytes = 64;       // the format's limit
constexpr uint32_t kMaxDims = 4;

/// A tensor of the table, before its data is looked up.
struct Extent {
  size_t index;    // in the table
  uint64_t begin;  // from the start of data
  uint64_t bytes;
  uint64_t at;  // where the offset stands in the file
  uint64_t end() const { return begin + bytes; }
};

class PartReader {
 public:
  explicit PartReader(const Mapping& mapping)
      : bytes_(mapping.bytes()), cursor_(mapping.bytes(), shown_path(mapping.path())) {}

  Part read() {
    require_gguf_magic(bytes_, cursor_.shown());
    cursor_.take(4);
    read_version();
    const uint64_t counts_at = cursor_.position();
    const auto n_tensors = cursor_.read<uint64_t>("number of tensors");
    const auto n_keys = cursor_.read<uint64_t>("number of keys");
    check_count("number of tensors", counts_at, n_tensors, kLeastTensorBytes, kMaxTensors);
    check_count("number of keys", counts_at + sizeof(n_tensors), n_keys, kLeastKeyBytes, kMaxKeys);
    Metadata metadata = read_metadata(cursor_, n_keys);
    alignment_ = metadata.alignment;
    part_.metadata = std::move(metadata.values);
    std::vector<Extent> extents;
    for (uint64_t i = 0; i < n_tensors; ++i) extents.push_back(read_tensor(i));
    place_tensors(extents);
    return std::move(part_);
  }

 private:
  void read_version() {
    const uint64_t at = cursor_.position();
    part_.version = cursor_.read<uint32_t>("version");
    if (part_.version == 2 || part_.version == 3) return;
    const uint32_t swapped = __builtin_bswap32(part_.version);
    if (swapped >= 1 && swapped <= 3) {
      cursor_.refuse("version", at, fmt::format("{:#010x}", part_.version),
                     "so it is a big-endian file; lamina reads little-endian files");
    }
    cursor_.refuse("version", at, part_.version,
                   part_.version == 1 ? "an early format (2023); convert the original model again"
                                      : "but lamina reads versions 2 and 3");
  }

  void check_count(const char* field, uint64_t at, uint64_t count, uint64_t least, uint64_t most) const {
    if (count > cursor_.remaining() / least) {
      cursor_.refuse(field, at, count,
                     fmt::format("but {} bytes remain and each takes at least {}", cursor_.remaining(), least));
    }
    if (count > most) cursor_.refuse(field, at, count, fmt::format("more than the limit of {}", most));
  }

  std::string_view read_name() {
    const uint64_t at = cursor_.position();
    const std::string_view name = cursor_.read_string("name length");
    if (name.empty() || name.size() > kMaxNameBytes) {
      cursor_.refuse("name length", at, name.size(), fmt::format("but it must be 1 to {} bytes", kMaxNameBytes));
    }
    if (name.find('\0') != name.npos) {
      cursor_.refuse("name", at + sizeof(uint64_t), fmt::format("\"{}\"", printable(name)),
                     "but it must not contain NUL");
    }
    return name;
  }

  /// Reads one row of the table into part_.tensors, all but its data.
  Extent read_tensor(uint64_t index) {
    cursor_.enter("tensor", index);
    Tensor tensor;
    const std::string_view name = read_name();
    tensor.name = name;
    cursor_.named(name);

    uint64_t at = cursor_.position();
    const auto n_dims = cursor_.read<uint32_t>("number of dimensions");
    if (n_dims < 1 || n_dims > kMaxDims) {
      cursor_.refuse("number of dimensions", at, n_dims, fmt::format("but it must be 1 to {}", kMaxDims));
    }
    const uint64_t shape_at = cursor_.position();
    uint64_t n_elements = 1;
    tensor.shape.reserve(n_dims);
    for (uint32_t i = 0; i < n_dims; ++i) {
      at = cursor_.position();
      const auto size = cursor_.read<uint64_t>("dimension");
      if (size == 0) cursor_.refuse("dimension", at, size, "but it must be at least 1");
      if (__builtin_mul_overflow(n_elements, size, &n_elements)) {
        cursor_.refuse("dimension", at, size, "and the number of elements exceeds 64 bits");
      }
      tensor.shape.push_back(size);
    }

    at = cursor_.position();
    const auto type_id = cursor_.read<uint32_t>("type");
    const Type* type = find_type(type_id);
    if (type == nullptr)
      cursor_.refuse("type", at, type_id, fmt::format("which is unsupported: {}", unknown_type_reason(type_id)));
    tensor.type = type;
    if (tensor.n_cols() % type->block != 0) {
      cursor_.refuse("row length", shape_at, tensor.n_cols(),
                     fmt::format("but {} needs a multiple of {}", type->name, type->block));
    }
    Extent extent = {.index = part_.tensors.size(), .begin = 0, .bytes = 0, .at = cursor_.position()};
    if (__builtin_mul_overflow(n_elements / type->block, uint64_t{type->bytes}, &extent.bytes)) {
      cursor_.refuse("number of elements", shape_at, n_elements,
                     fmt::format("and as {} exceeds 64 bits of bytes", type->name));
    }
    extent.begin = cursor_.read<uint64_t>("offset");
    if (extent.begin % alignment_ != 0) {
      cursor_.refuse("offset", extent.at, extent.begin,
                     fmt::format("but it must be a multiple of the alignment {}", alignment_));
    }
    part_.tensors.push_back(std::move(tensor));
    return extent;
  }

  /// Checks that the extents lie in the file and do not overlap, and points the tensors at their data.
  void place_tensors(std::vector<Extent>& extents) {
    if (extents.empty()) return;
    const uint64_t padding = (alignment_ - cursor_.position() % alignment_) % alignment_;
    if (padding > cursor_.remaining()) {
      fail(ErrorKind::kModel, "{}: the file is truncated: tensor data starts at byte {}, but the file has {} bytes",
           cursor_.shown(), cursor_.position() + padding, bytes_.size());
    }
    cursor_.take(padding);
    const auto data = bytes_.subspan(cursor_.position());
    std::ranges::stable_sort(extents, {}, &Extent::begin);
    for (size_t i = 0; i < extents.size(); ++i) {
      const Extent& extent = extents[i];
      Tensor& tensor = part_.tensors[extent.index];
      if (extent.begin > data.size() || extent.bytes > data.size() - extent.begin) refuse_past_end(extent, data.size());
      if (i + 1 < extents.size() && extents[i + 1].begin < extent.end()) refuse_overlap(extent, extents[i + 1]);
      tensor.data = data.subspan(extent.begin, extent.bytes);
    }
    const uint64_t unused = data.size() - extents.back().end();
    part_.trailing_bytes = unused < alignment_ ? 0 : unused;
  }

  [[noreturn]] void refuse_past_end(const Extent& extent, uint64_t n_data) const {
    const Tensor& tensor = part_.tensors[extent.index];
    fail(ErrorKind::kModel,
         "{}: the file is truncated or wrong: offset of tensor \"{}\" at byte {} is {}, its {} bytes ({}) must end "
         "within the {} "
         "bytes of tensor data{}",
         cursor_.shown(), printable(tensor.name), extent.at, extent.begin, extent.bytes, tensor.type->name, n_data,
         other_q2_0(extent, n_data));
  }

  [[noreturn]] void refuse_overlap(const Extent& extent, const Extent& next) const {
    const Tensor& tensor = part_.tensors[extent.index];
    fail(ErrorKind::kModel,
         "{}: offset of tensor \"{}\" at byte {} is {}, inside tensor \"{}\" ({}, {} bytes from {}){}", cursor_.shown(),
         printable(part_.tensors[next.index].name), next.at, next.begin, printable(tensor.name), tensor.type->name,
         extent.bytes, extent.begin, other_q2_0(extent, next.begin));
  }

  /// Files circulate in which type 42 has blocks of 128 values in 34 bytes. They differ from GGML's only in size.
  std::string other_q2_0(const Extent& extent, uint64_t limit) const {
    constexpr uint64_t kOtherBlock = 128, kOtherBytes = 34;
    const Tensor& tensor = part_.tensors[extent.index];
    if (tensor.type->id != TypeId::kQ2_0 || tensor.n_cols() % kOtherBlock != 0 || extent.begin > limit) return "";
    if (tensor.n_elements() / kOtherBlock > (limit - extent.begin) / kOtherBytes) return "";
    return fmt::format("; its size fits another Q2_0 with blocks of {} values in {} bytes, which lamina does not read",
                       kOtherBlock, kOtherBytes);
  }

  std::span<const std::byte> bytes_;
  Cursor cursor_;
  uint64_t alignment_ = 0;
  Part part_;
};

}  // namespace

Part read_part(const Mapping& mapping) { return PartReader(mapping).read(); }

}  // namespace lamina::gguf

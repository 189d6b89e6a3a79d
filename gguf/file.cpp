// A model file as a whole: one GGUF file, or the parts of a split set put together.
// In: a path. Out: a File whose names are unique and whose split set is complete.
// A split set is NAME-00001-of-0000N.gguf ...; every part carries split.no (from 0) and split.count, the first one all
// other metadata. Names are looked up in sorted lists: no input can make them slow, as it could with a hash table.
#include "gguf/file.h"

#include <sys/stat.h>

#include <unistd.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <iterator>
#include <numeric>

#include "gguf/error.h"
#include "gguf/mapping.h"
#include "gguf/part.h"

namespace lamina::gguf {
namespace {

using Metadata = std::vector<KeyValue>;

std::string_view name_of(const KeyValue& entry) { return entry.key; }
std::string_view name_of(const Tensor& tensor) { return tensor.name; }

/// The positions of `entries` by name; a name that occurs twice is refused as a double `what`.
template <class Entry>
std::vector<size_t> sort_names(const std::vector<Entry>& entries, const char* what, const std::string& path) {
  std::vector<size_t> order(entries.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto name_at = [&](size_t i) { return name_of(entries[i]); };
  std::ranges::sort(order, {}, name_at);
  const auto twice = std::ranges::adjacent_find(order, {}, name_at);
  if (twice != order.end()) {
    fail(ErrorKind::kModel, "{}: {} \"{}\" occurs twice", shown_path(path), what, printable(name_at(*twice)));
  }
  return order;
}

template <class Entry>
const Entry* find_name(const std::vector<Entry>& entries, const std::vector<size_t>& order, std::string_view name) {
  const auto name_at = [&](size_t i) { return name_of(entries[i]); };
  const auto found = std::ranges::lower_bound(order, name, {}, name_at);
  return found != order.end() && name_at(*found) == name ? &entries[*found] : nullptr;
}

/// NAME-00002-of-00003.gguf
struct SplitName {
  std::string_view prefix;
  uint64_t no = 0;  // from 1
  uint64_t count = 0;
};

std::string part_path(std::string_view prefix, uint64_t no, uint64_t count) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, no, count);
}

std::optional<SplitName> parse_split_name(std::string_view path) {
  constexpr std::string_view kPattern = "-00000-of-00000.gguf";
  if (path.size() < kPattern.size()) return std::nullopt;
  SplitName name = {.prefix = path.substr(0, path.size() - kPattern.size())};
  const std::string_view tail = path.substr(name.prefix.size());
  for (size_t i = 0; i < kPattern.size(); ++i) {
    const bool is_digit = tail[i] >= '0' && tail[i] <= '9';
    if (kPattern[i] == '0' ? !is_digit : tail[i] != kPattern[i]) return std::nullopt;
  }
  const auto number = [&](size_t at) {
    uint64_t value = 0;
    for (const char digit : tail.substr(at, 5)) value = value * 10 + static_cast<uint64_t>(digit - '0');
    return value;
  };
  name.no = number(1);
  name.count = number(10);
  return name;
}

/// The value of split.no, split.count or split.tensors.count, nothing when missing.
std::optional<uint64_t> split_number(const Metadata& metadata, std::string_view key, const std::string& path) {
  const auto found = std::ranges::find(metadata, key, [](const auto& entry) { return name_of(entry); });
  if (found == metadata.end()) return std::nullopt;
  if (const auto* number = std::get_if<uint64_t>(&found->value)) return *number;
  const auto* number = std::get_if<int64_t>(&found->value);
  if (number == nullptr)
    fail(ErrorKind::kModel, "{}: the value of key \"{}\" must be an integer", shown_path(path), key);
  if (*number < 0)
    fail(ErrorKind::kModel, "{}: the value of key \"{}\" is {}, less than 0", shown_path(path), key, *number);
  return static_cast<uint64_t>(*number);
}

/// Refuses unless `key` is `expected`.
void require_split_number(const Part& part, std::string_view key, uint64_t expected, const std::string& path) {
  const std::optional<uint64_t> number = split_number(part.metadata, key, path);
  if (!number) fail(ErrorKind::kModel, "{}: key \"{}\" is missing, it must be {}", shown_path(path), key, expected);
  if (*number == expected) return;
  fail(ErrorKind::kModel, "{}: the value of key \"{}\" is {}, but it must be {}", shown_path(path), key, *number,
       expected);
}

/// Where the other parts of a split set are, from its first part.
SplitName locate_parts(const Part& first, uint64_t count, const std::string& path) {
  const std::optional<SplitName> name = parse_split_name(path);
  const uint64_t no = split_number(first.metadata, "split.no", path).value_or(0);
  if (no != 0) {
    fail(ErrorKind::kModel, "{} is part {} of a model in {} parts; open the first part{}", shown_path(path), no + 1,
         count, name ? ", " + shown_path(part_path(name->prefix, 1, name->count)) : "");
  }
  if (!name || name->no != 1 || name->count != count) {
    fail(ErrorKind::kModel, "{} is the first of {} parts (key \"split.count\"), so its name must end in {}",
         shown_path(path), count, part_path("", 1, count));
  }
  return *name;
}

}  // namespace

size_t Array::size() const {
  return std::visit([](const auto& list) { return list.size(); }, items);
}

uint64_t Tensor::n_elements() const {
  return std::accumulate(shape.begin(), shape.end(), uint64_t{1}, std::multiplies<>());
}

struct File::State {
  std::vector<Mapping> mappings;
  uint32_t version = 0;
  uint64_t size_bytes = 0;
  Metadata metadata;
  std::vector<Tensor> tensors;
  std::vector<size_t> keys_by_name;
  std::vector<size_t> tensors_by_name;
  std::vector<std::string> warnings;
  std::deque<std::string> texts;  // values that were set; a deque leaves them where they are

  Part add_part(const std::string& path) {
    mappings.emplace_back(path);
    Part part = read_part(mappings.back());
    size_bytes += mappings.back().bytes().size();
    if (part.trailing_bytes > 0) {
      warnings.push_back(
          fmt::format("{}: {} bytes after the last tensor belong to nothing", shown_path(path), part.trailing_bytes));
    }
    std::ranges::move(part.tensors, std::back_inserter(tensors));
    return part;
  }
};

File File::open(const std::string& path) {
  auto state = std::make_unique<State>();
  Part first = state->add_part(path);
  const uint64_t count = split_number(first.metadata, "split.count", path).value_or(1);
  if (count > 1) {
    const SplitName name = locate_parts(first, count, path);
    for (uint64_t no = 2; no <= count; ++no) {
      const std::string next = part_path(name.prefix, no, count);
      if (access(next.c_str(), F_OK) != 0) {
        fail(ErrorKind::kModel, "{}: part {} of {} is missing: {}", shown_path(path), no, count, shown_path(next));
      }
      const Part part = state->add_part(next);
      sort_names(part.metadata, "key", next);
      require_split_number(part, "split.no", no - 1, next);
      require_split_number(part, "split.count", count, next);
    }
    if (split_number(first.metadata, "split.tensors.count", path)) {
      require_split_number(first, "split.tensors.count", state->tensors.size(), path);
    }
  }
  state->version = first.version;
  state->metadata = std::move(first.metadata);
  state->keys_by_name = sort_names(state->metadata, "key", path);
  state->tensors_by_name = sort_names(state->tensors, "tensor", path);
  return File(std::move(state));
}

File::File(std::unique_ptr<State> state) : state_(std::move(state)) {}
File::File(File&&) noexcept = default;
File& File::operator=(File&&) noexcept = default;
File::~File() = default;

const std::string& File::path() const { return state_->mappings.front().path(); }
size_t File::n_parts() const { return state_->mappings.size(); }

std::string File::identity() const {
  std::string text;
  for (const Mapping& mapping : state_->mappings) {
    struct stat info = {};
    if (stat(mapping.path().c_str(), &info) != 0) info = {};  // gone: like no other
    text += fmt::format("{} {} {} {}.{:09}\n", info.st_dev, info.st_ino, info.st_size, info.st_mtim.tv_sec,
                        info.st_mtim.tv_nsec);
  }
  return text;
}
uint32_t File::version() const { return state_->version; }
uint64_t File::size_bytes() const { return state_->size_bytes; }
const std::vector<std::string>& File::warnings() const { return state_->warnings; }
const std::vector<KeyValue>& File::metadata() const { return state_->metadata; }
const Value* File::find(std::string_view key) const {
  const auto* entry = find_name(state_->metadata, state_->keys_by_name, key);
  return entry == nullptr ? nullptr : &entry->value;
}
void File::set(std::string_view key, Value value) {
  // The widest type of each kind, in the order of Value's alternatives.
  constexpr ValueType kTypes[] = {ValueType::kUint64, ValueType::kInt64,  ValueType::kFloat64,
                                  ValueType::kBool,   ValueType::kString, ValueType::kArray};
  const ValueType type = kTypes[value.index()];
  if (auto* text = std::get_if<std::string_view>(&value)) *text = state_->texts.emplace_back(*text);
  auto& metadata = state_->metadata;
  auto& order = state_->keys_by_name;
  const auto place = std::ranges::lower_bound(order, key, {}, [&](size_t i) { return name_of(metadata[i]); });
  if (place != order.end() && metadata[*place].key == key) {
    metadata[*place].type = type;
    metadata[*place].value = std::move(value);
    return;
  }
  order.insert(place, metadata.size());
  metadata.push_back({std::string(key), type, std::move(value)});
}

const std::vector<Tensor>& File::tensors() const { return state_->tensors; }
const Tensor* File::tensor(std::string_view name) const {
  return find_name(state_->tensors, state_->tensors_by_name, name);
}

void File::release(std::span<const std::byte> data) const { drop_pages(data); }

}  // namespace lamina::gguf

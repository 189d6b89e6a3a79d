// The GGUF writer. In: fixtures, and random keys and tensors. Out: what the reader finds in the files that were
// written; refusals of what no file may hold.
#include "gguf/writer.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "gguf/error.h"
#include "tests/gguf/file_builder.h"

namespace lamina::gguf {
namespace {

void expect_equal(const Value& a, const Value& b);

/// Numbers are compared by their bits.
template <class T>
void expect_equal(const T& a, const T& b) {
  if constexpr (std::is_same_v<T, Array>) {
    EXPECT_EQ(a.type, b.type);
    ASSERT_EQ(a.items.index(), b.items.index());
    ASSERT_EQ(a.size(), b.size());
    std::visit(
        [&](const auto& items) {
          const auto& others = std::get<std::decay_t<decltype(items)>>(b.items);
          for (size_t i = 0; i < items.size(); ++i) expect_equal(items[i], others[i]);
        },
        a.items);
  } else if constexpr (std::is_same_v<T, double>) {
    EXPECT_EQ(std::memcmp(&a, &b, sizeof a), 0) << a << " and " << b;
  } else {
    EXPECT_EQ(a, b);
  }
}

void expect_equal(const Value& a, const Value& b) {
  ASSERT_EQ(a.index(), b.index());
  std::visit([&](const auto& value) { expect_equal(value, std::get<std::decay_t<decltype(value)>>(b)); }, a);
}

void expect_equal(const File& a, const File& b) {
  ASSERT_EQ(a.metadata().size(), b.metadata().size());
  for (size_t i = 0; i < a.metadata().size(); ++i) {
    EXPECT_EQ(a.metadata()[i].key, b.metadata()[i].key);
    EXPECT_EQ(a.metadata()[i].type, b.metadata()[i].type);
    expect_equal(a.metadata()[i].value, b.metadata()[i].value);
  }
  ASSERT_EQ(a.tensors().size(), b.tensors().size());
  for (size_t i = 0; i < a.tensors().size(); ++i) {
    const Tensor &x = a.tensors()[i], &y = b.tensors()[i];
    EXPECT_EQ(x.name, y.name);
    EXPECT_EQ(x.shape, y.shape);
    EXPECT_EQ(x.type, y.type);
    EXPECT_TRUE(std::ranges::equal(x.data, y.data)) << x.name;
  }
}

/// Writes all of `file` to `path`, tensor data in pieces of `piece` bytes.
void copy(const File& file, const std::string& path, size_t piece = size_t{1} << 20) {
  Writer writer(path);
  for (const KeyValue& entry : file.metadata()) writer.add(entry);
  for (const Tensor& tensor : file.tensors()) writer.add_tensor(tensor.name, tensor.shape, *tensor.type);
  for (const Tensor& tensor : file.tensors()) {
    for (auto rest = tensor.data; !rest.empty(); rest = rest.subspan(std::min(piece, rest.size()))) {
      writer.write(rest.first(std::min(piece, rest.size())));
    }
  }
  writer.finish();
}

/// LAMINA_GGUF_FOLDER names another folder: the copies of all its files are checked instead of the fixtures'.
TEST(GgufWriter, CopiesFixtures) {
  const TempFolder folder;
  const char* other = std::getenv("LAMINA_GGUF_FOLDER");
  size_t n_files = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(other != nullptr ? other : LAMINA_SOURCE_DIR "/tests/data")) {
    if (entry.path().extension() != ".gguf") continue;
    SCOPED_TRACE(entry.path());
    const File original = File::open(entry.path());
    copy(original, folder.path("copy.gguf"));
    const File written = File::open(folder.path("copy.gguf"));
    EXPECT_EQ(written.version(), 3u);
    EXPECT_TRUE(written.warnings().empty());
    expect_equal(original, written);
    ++n_files;
  }
  EXPECT_GT(n_files, 0u);
}

/// A random value of a random type; its strings lie in `texts`.
class RandomValues {
 public:
  explicit RandomValues(uint32_t seed) : random_(seed) {}

  size_t below(size_t n) { return random_() % n; }

  std::string text(size_t max_bytes) {
    std::string bytes(below(max_bytes + 1), '\0');
    for (char& c : bytes) c = static_cast<char>(random_());
    return bytes;
  }

  KeyValue entry(const std::string& key) {
    const auto type = static_cast<ValueType>(below(13));
    switch (type) {
      case ValueType::kBool: return {key, type, below(2) == 1};
      case ValueType::kString: return {key, type, view()};
      case ValueType::kArray: return {key, type, array(1)};
      case ValueType::kFloat32:
      case ValueType::kFloat64: return {key, type, real(type)};
      case ValueType::kInt8:
      case ValueType::kInt16:
      case ValueType::kInt32:
      case ValueType::kInt64: return {key, type, signed_number(type)};
      default: return {key, type, unsigned_number(type)};
    }
  }

 private:
  /// A number of all bits that the type has.
  uint64_t unsigned_number(ValueType type) {
    switch (type) {
      case ValueType::kUint8: return static_cast<uint8_t>(random_());
      case ValueType::kUint16: return static_cast<uint16_t>(random_());
      case ValueType::kUint32: return static_cast<uint32_t>(random_());
      default: return random_();
    }
  }
  int64_t signed_number(ValueType type) {
    switch (type) {
      case ValueType::kInt8: return static_cast<int8_t>(random_());
      case ValueType::kInt16: return static_cast<int16_t>(random_());
      case ValueType::kInt32: return static_cast<int32_t>(random_());
      default: return static_cast<int64_t>(random_());
    }
  }
  double real(ValueType type) {
    const auto x = static_cast<double>(static_cast<int64_t>(random_())) * 0x1p-40;
    return type == ValueType::kFloat32 ? double{static_cast<float>(x)} : x;
  }
  std::string_view view() { return texts_.emplace_back(text(20)); }

  Array array(int depth) {
    Array result;
    result.type = static_cast<ValueType>(below(depth < 8 ? 13 : 9));
    const size_t n = below(depth < 4 ? 4 : 2);
    const auto fill = [&](auto item) {
      std::vector<decltype(item())> items;
      for (size_t i = 0; i < n; ++i) items.push_back(item());
      result.items = std::move(items);
    };
    switch (result.type) {
      case ValueType::kBool: fill([&] { return static_cast<uint8_t>(below(2)); }); break;
      case ValueType::kString: fill([&] { return view(); }); break;
      case ValueType::kArray: fill([&] { return array(depth + 1); }); break;
      case ValueType::kFloat32:
      case ValueType::kFloat64: fill([&] { return real(result.type); }); break;
      case ValueType::kInt8:
      case ValueType::kInt16:
      case ValueType::kInt32:
      case ValueType::kInt64: fill([&] { return signed_number(result.type); }); break;
      default: fill([&] { return unsigned_number(result.type); });
    }
    return result;
  }

  std::mt19937_64 random_;
  std::deque<std::string> texts_;
};

RC_GTEST_PROP(GgufWriter, WritesWhatTheReaderReads, (uint32_t seed)) {
  RandomValues values(seed);
  std::vector<KeyValue> entries;
  for (size_t n = values.below(20), i = 0; i < n; ++i) entries.push_back(values.entry("key" + std::to_string(i)));
  const uint64_t alignment = uint64_t{8} << values.below(6);
  if (values.below(2) == 1) entries.push_back({"general.alignment", ValueType::kUint32, alignment});
  std::vector<Tensor> tensors;
  std::string data;
  for (size_t n = values.below(6), i = 0; i < n; ++i) {
    const auto all = types();
    Tensor tensor;
    tensor.name = "t" + std::to_string(i);
    tensor.type = &all[values.below(all.size())];
    tensor.shape = {tensor.type->block * (1 + values.below(3))};
    while (tensor.shape.size() < 4 && values.below(2) == 1) tensor.shape.push_back(1 + values.below(3));
    tensors.push_back(tensor);
  }
  const TempFolder folder;
  Writer writer(folder.path("f.gguf"));
  for (const KeyValue& entry : entries) writer.add(entry);
  for (const Tensor& tensor : tensors) {
    writer.add_tensor(tensor.name, tensor.shape, *tensor.type);
    for (uint64_t n = tensor.n_elements() / tensor.type->block * tensor.type->bytes; n > 0; --n) {
      data += static_cast<char>(values.below(256));
    }
  }
  const auto bytes = std::as_bytes(std::span(data));
  for (size_t at = 0, n; at < bytes.size(); at += n) {  // pieces that know nothing of tensors
    n = std::min(1 + values.below(300), bytes.size() - at);
    writer.write(bytes.subspan(at, n));
  }
  writer.finish();

  const File file = File::open(folder.path("f.gguf"));
  ASSERT_EQ(file.metadata().size(), entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    RC_ASSERT(file.metadata()[i].key == entries[i].key);
    RC_ASSERT(file.metadata()[i].type == entries[i].type);
    expect_equal(file.metadata()[i].value, entries[i].value);
  }
  ASSERT_EQ(file.tensors().size(), tensors.size());
  size_t at = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = file.tensors()[i];
    RC_ASSERT(tensor.name == tensors[i].name);
    RC_ASSERT(tensor.shape == tensors[i].shape);
    RC_ASSERT(tensor.type == tensors[i].type);
    RC_ASSERT(std::ranges::equal(tensor.data, bytes.subspan(at, tensor.data.size())));
    at += tensor.data.size();
  }
  RC_ASSERT(at == bytes.size());
  RC_ASSERT(!testing::Test::HasFailure());
}

/// The message with which a file is refused; nothing is left of it.
template <class Fill>
std::string refusal(Fill fill) {
  const TempFolder folder;
  std::string message;
  try {
    Writer writer(folder.path("f.gguf"));
    fill(writer);
    writer.finish();
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kModel) << error.what();
    message = error.what();
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path("")));
  return message;
}

TEST(GgufWriter, RefusesValuesThatDoNotFitTheirType) {
  const struct {
    ValueType type;
    Value value;
    std::string part;
  } cases[] = {
      {ValueType::kUint8, uint64_t{256}, "is 256"},
      {ValueType::kUint32, uint64_t{1} << 32, "is 4294967296"},
      {ValueType::kInt8, int64_t{-129}, "is -129"},
      {ValueType::kInt32, int64_t{1} << 31, "is 2147483648"},
      {ValueType::kFloat32, 1e39, "is 1e+39"},
      {ValueType::kUint32, int64_t{1}, "not of type 4"},
      {ValueType::kString, true, "not of type 8"},
      {ValueType::kBool, std::string_view("yes"), "not of type 7"},
      {ValueType::kArray, Array{ValueType::kInt8, std::vector<int64_t>{1, 200}}, "is 200"},
      {ValueType::kArray, Array{ValueType::kString, std::vector<double>{1}}, "not of type 8"},
  };
  for (const auto& row : cases) {
    const std::string message = refusal([&](Writer& writer) { writer.add("some.key", row.type, row.value); });
    EXPECT_NE(message.find("\"some.key\""), std::string::npos) << message;
    EXPECT_NE(message.find(row.part), std::string::npos) << message;
  }
}

TEST(GgufWriter, RefusesWhatTheReaderWouldRefuse) {
  const Type& f32 = *find_type("F32");
  const Type& q8_0 = *find_type("Q8_0");
  const struct {
    std::function<void(Writer&)> fill;
    std::string part;
  } cases[] = {
      {[](Writer& w) { w.add("", ValueType::kString, std::string_view("value")); }, "at least 1 byte"},
      {[](Writer& w) { w.add("a\xFF", ValueType::kBool, true); }, "UTF-8"},
      {[](Writer& w) { (w.add("k", ValueType::kBool, true), w.add("k", ValueType::kBool, true)); },
       "\"k\" occurs twice"},
      {[](Writer& w) { w.add("general.alignment", ValueType::kUint32, uint64_t{24}); }, "power of two"},
      {[](Writer& w) { w.add("general.alignment", ValueType::kUint64, uint64_t{1} << 62); }, "must be 4"},
      {[&](Writer& w) { w.add_tensor(std::string(65, 'n'), {1}, f32); }, "1 to 64 bytes"},
      {[&](Writer& w) { w.add_tensor("t", {}, f32); }, "number of dimensions"},
      {[&](Writer& w) {
         w.add_tensor("t", {1, 1, 1, 1, 1}, f32);
       },
       "number of dimensions"},
      {[&](Writer& w) {
         w.add_tensor("t", {4, 0}, f32);
       },
       "at least 1"},
      {[&](Writer& w) { w.add_tensor("t", {33}, q8_0); }, "multiple of 32"},
      {[&](Writer& w) {
         w.add_tensor("t", {uint64_t{1} << 40, uint64_t{1} << 40}, f32);
       },
       "exceeds 64 bits"},
      {[&](Writer& w) { (w.add_tensor("t", {1}, f32), w.add_tensor("t", {1}, f32)); }, "\"t\" occurs twice"},
  };
  for (const auto& row : cases) {
    const std::string message = refusal(row.fill);
    EXPECT_NE(message.find(row.part), std::string::npos) << row.part << "\n in: " << message;
  }
}

TEST(GgufWriter, LeavesNothingThatIsNotComplete) {
  const TempFolder folder;
  folder.write("f.gguf", "before");
  const std::vector<std::byte> data(4);
  {
    Writer writer(folder.path("f.gguf"));
    writer.add_tensor("t", {2}, *find_type("F32"));
    writer.write(data);
  }
  std::ifstream file(folder.path("f.gguf"));
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "before");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path("")), {}), 1);
}

TEST(GgufWriter, NamesAPathThatCannotBeWritten) {
  for (const std::string path : {"/no/such/folder/f.gguf", "/dev/null", "/tmp"}) {
    try {
      Writer(path).finish();
      ADD_FAILURE() << "wrote " << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kRuntime) << error.what();
      EXPECT_NE(std::string(error.what()).find("'" + path + "'"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace lamina::gguf

// The GGUF reader: valid files of every kind, then hostile ones, each with a single wrong field.
// In: files made by FileBuilder. Out: the values that were put in, or an Error(kModel) that names the field and its
// value.
#include "gguf/file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <limits>

#include "gguf/error.h"
#include "tests/gguf/file_builder.h"

namespace lamina::gguf {
namespace {

constexpr uint32_t kF32 = 0, kQ8_0 = 8, kQ4_K = 12, kQ2_0 = 42;

class GgufFile : public testing::Test {
 protected:
  File open(std::string_view bytes) { return File::open(folder_.write("model.gguf", bytes)); }

  /// The message with which `bytes` are refused; empty (and a failed test) when they are accepted.
  std::string refusal(std::string_view bytes) { return refusal_of(folder_.write("model.gguf", bytes)); }

  std::string refusal_of(const std::string& path) {
    try {
      File::open(path);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kModel);
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "accepted " << path;
    return "";
  }

  /// Checks that `bytes` are refused with a message that holds all of `parts`.
  void refused(std::string_view bytes, const std::vector<std::string>& parts) {
    const std::string message = refusal(bytes);
    for (const std::string& part : parts)
      EXPECT_NE(message.find(part), std::string::npos) << part << "\n in: " << message;
  }

  TempFolder folder_;
};

FileBuilder small() {
  FileBuilder builder;
  builder.text("general.architecture", "llama").u32("general.alignment", 32);
  builder.key("list", ValueType::kArray, raw_array(ValueType::kString, 2, raw_string("ab") + raw_string("c")));
  builder.tensor("a", {32, 2}, kF32, std::string(256, 'a'));
  builder.tensor("b", {32}, kQ8_0, std::string(34, 'b'));
  return builder;
}

template <class T>
T value_at(const File& file, std::string_view key) {
  const Value* value = file.find(key);
  LAMINA_CHECK(value != nullptr);
  return std::get<T>(*value);
}

// ---- what must be read ----

TEST_F(GgufFile, ReadsEveryScalarType) {
  FileBuilder builder;
  builder.key("u8", ValueType::kUint8, raw(uint8_t{255})).key("i8", ValueType::kInt8, raw(int8_t{-128}));
  builder.key("u16", ValueType::kUint16, raw(uint16_t{65535})).key("i16", ValueType::kInt16, raw(int16_t{-2}));
  builder.key("u32", ValueType::kUint32, raw(0xFFFFFFFFu)).key("i32", ValueType::kInt32, raw(-3));
  builder.key("u64", ValueType::kUint64, raw(~uint64_t{0})).key("i64", ValueType::kInt64, raw(int64_t{-4}));
  builder.key("f32", ValueType::kFloat32, raw(0.1f)).key("f64", ValueType::kFloat64, raw(0.1));
  builder.key("yes", ValueType::kBool, raw(uint8_t{1})).key("no", ValueType::kBool, raw(uint8_t{0}));
  builder.text("text", "caf\xC3\xA9").text("bytes", std::string("\xFF\0x", 3)).text("empty", "");
  const File file = open(builder.build().bytes);
  EXPECT_EQ(value_at<uint64_t>(file, "u8"), 255u);
  EXPECT_EQ(value_at<int64_t>(file, "i8"), -128);
  EXPECT_EQ(value_at<uint64_t>(file, "u16"), 65535u);
  EXPECT_EQ(value_at<int64_t>(file, "i16"), -2);
  EXPECT_EQ(value_at<uint64_t>(file, "u32"), 0xFFFFFFFFu);
  EXPECT_EQ(value_at<int64_t>(file, "i32"), -3);
  EXPECT_EQ(value_at<uint64_t>(file, "u64"), ~uint64_t{0});
  EXPECT_EQ(value_at<int64_t>(file, "i64"), -4);
  EXPECT_EQ(value_at<double>(file, "f32"), double{0.1f});
  EXPECT_EQ(value_at<double>(file, "f64"), 0.1);
  EXPECT_TRUE(value_at<bool>(file, "yes"));
  EXPECT_FALSE(value_at<bool>(file, "no"));
  EXPECT_EQ(value_at<std::string_view>(file, "text"), "caf\xC3\xA9");
  EXPECT_EQ(value_at<std::string_view>(file, "bytes"), std::string_view("\xFF\0x", 3));
  EXPECT_EQ(value_at<std::string_view>(file, "empty"), "");
  EXPECT_EQ(file.find("missing"), nullptr);
  EXPECT_EQ(file.metadata().size(), 15u);
  EXPECT_EQ(file.metadata()[2].first, "u16");
}

TEST_F(GgufFile, ReadsArraysOfEveryType) {
  FileBuilder builder;
  const auto array = [&](const char* key, ValueType type, uint64_t count, const std::string& elements) {
    builder.key(key, ValueType::kArray, raw_array(type, count, elements));
  };
  array("u8", ValueType::kUint8, 2, raw(uint8_t{1}) + raw(uint8_t{255}));
  array("i8", ValueType::kInt8, 1, raw(int8_t{-1}));
  array("u16", ValueType::kUint16, 1, raw(uint16_t{65535}));
  array("i16", ValueType::kInt16, 1, raw(int16_t{-1}));
  array("u32", ValueType::kUint32, 1, raw(0xFFFFFFFFu));
  array("i32", ValueType::kInt32, 2, raw(-1) + raw(7));
  array("u64", ValueType::kUint64, 1, raw(~uint64_t{0}));
  array("i64", ValueType::kInt64, 1, raw(int64_t{-1}));
  array("f32", ValueType::kFloat32, 1, raw(0.5f));
  array("f64", ValueType::kFloat64, 1, raw(0.1));
  array("bool", ValueType::kBool, 2, raw(uint8_t{1}) + raw(uint8_t{0}));
  array("text", ValueType::kString, 3, raw_string("a") + raw_string("") + raw_string("bc"));
  array("none", ValueType::kUint32, 0, "");
  const File file = open(builder.build().bytes);
  const auto items = [&]<class Item>(std::string_view key, ValueType type, const std::vector<Item>& expected) {
    const auto array_value = value_at<Array>(file, key);
    EXPECT_EQ(array_value.type, type) << key;
    EXPECT_EQ(array_value.size(), expected.size()) << key;
    EXPECT_EQ(std::get<std::vector<Item>>(array_value.items), expected) << key;
  };
  items("u8", ValueType::kUint8, std::vector<uint64_t>{1, 255});
  items("i8", ValueType::kInt8, std::vector<int64_t>{-1});
  items("u16", ValueType::kUint16, std::vector<uint64_t>{65535});
  items("i16", ValueType::kInt16, std::vector<int64_t>{-1});
  items("u32", ValueType::kUint32, std::vector<uint64_t>{0xFFFFFFFFu});
  items("i32", ValueType::kInt32, std::vector<int64_t>{-1, 7});
  items("u64", ValueType::kUint64, std::vector<uint64_t>{~uint64_t{0}});
  items("i64", ValueType::kInt64, std::vector<int64_t>{-1});
  items("f32", ValueType::kFloat32, std::vector<double>{0.5});
  items("f64", ValueType::kFloat64, std::vector<double>{0.1});
  items("bool", ValueType::kBool, std::vector<uint8_t>{1, 0});
  items("text", ValueType::kString, std::vector<std::string_view>{"a", "", "bc"});
  items("none", ValueType::kUint32, std::vector<uint64_t>{});
}

TEST_F(GgufFile, ReadsNestedArrays) {
  const std::string one = raw_array(ValueType::kInt32, 1, raw(-5));
  const std::string none = raw_array(ValueType::kString, 0, "");
  FileBuilder builder;
  builder.key("nested", ValueType::kArray, raw_array(ValueType::kArray, 2, one + none));
  const File file = open(builder.build().bytes);
  const auto nested = std::get<std::vector<Array>>(value_at<Array>(file, "nested").items);
  ASSERT_EQ(nested.size(), 2u);
  EXPECT_EQ(std::get<std::vector<int64_t>>(nested[0].items), std::vector<int64_t>{-5});
  EXPECT_EQ(nested[1].type, ValueType::kString);
  EXPECT_EQ(nested[1].size(), 0u);
}

TEST_F(GgufFile, ReadsTensorsOfVersions2And3) {
  for (const uint32_t version : {2u, 3u}) {
    FileBuilder builder = small();
    builder.version = version;
    const BuiltFile built = builder.build();
    const File file = open(built.bytes);
    EXPECT_EQ(file.version(), version);
    EXPECT_EQ(file.size_bytes(), built.bytes.size());
    EXPECT_EQ(file.n_parts(), 1u);
    EXPECT_TRUE(file.warnings().empty());
    ASSERT_EQ(file.tensors().size(), 2u);
    const Tensor* a = file.tensor("a");
    ASSERT_EQ(a, &file.tensors()[0]);
    EXPECT_EQ(a->shape, (std::vector<uint64_t>{32, 2}));
    EXPECT_EQ(a->n_elements(), 64u);
    EXPECT_EQ(a->n_cols(), 32u);
    EXPECT_EQ(a->n_rows(), 2u);
    EXPECT_STREQ(a->type->name, "F32");
    ASSERT_EQ(a->data.size(), 256u);
    EXPECT_EQ(a->data[255], std::byte{'a'});
    EXPECT_EQ(file.tensor("b")->data.size(), 34u);
    EXPECT_EQ(file.tensor("b")->data[0], std::byte{'b'});
    EXPECT_EQ(file.tensor("c"), nullptr);
  }
}

TEST_F(GgufFile, ReadsFilesWithoutTensorsOrKeys) {
  EXPECT_TRUE(open(FileBuilder().text("k", "v").build().bytes).tensors().empty());
  EXPECT_TRUE(open(FileBuilder().build().bytes).metadata().empty());
}

TEST_F(GgufFile, ReadsOtherAlignments) {
  for (const uint32_t alignment : {8u, 64u, 4096u}) {
    FileBuilder builder;
    builder.alignment = alignment;
    builder.u32("general.alignment", alignment);
    builder.tensor("a", {3}, kF32, std::string(12, 'a')).tensor("b", {3}, kF32, std::string(12, 'b'));
    EXPECT_EQ(open(builder.build().bytes).tensor("b")->data[11], std::byte{'b'});
  }
}

TEST_F(GgufFile, ReadsGapsAndTensorsOutOfOrder) {
  const BuiltFile built = small().build();
  std::string bytes = built.with("tensor a offset", uint64_t{4096});
  bytes.resize(built.at.at("data") + 4096, '\0');
  bytes += std::string(256, 'z');
  const File file = open(bytes);
  EXPECT_EQ(file.tensor("a")->data[0], std::byte{'z'});
}

TEST_F(GgufFile, WarnsOfTrailingBytes) {
  const File file = open(small().build().bytes + std::string(1000, 'x'));
  ASSERT_EQ(file.warnings().size(), 1u);
  EXPECT_NE(file.warnings()[0].find("1000 bytes after the last tensor"), std::string::npos);
}

TEST_F(GgufFile, KeepsDataValidAfterReleaseAndMove) {
  FileBuilder builder;
  builder.tensor("a", {65536}, kF32, std::string(262144, 'a'));
  File file = open(builder.build().bytes);
  const Tensor& tensor = *file.tensor("a");
  file.release(tensor);
  const File moved = std::move(file);
  EXPECT_EQ(moved.tensor("a"), &tensor);
  for (const std::byte byte : tensor.data) ASSERT_EQ(byte, std::byte{'a'});
}

TEST_F(GgufFile, OpensLargeVocabulariesFast) {
  std::string tokens, merges;
  for (int i = 0; i < 262144; ++i) tokens += raw_string("token" + std::to_string(i));
  for (int i = 0; i < 500000; ++i) merges += raw_string("left" + std::to_string(i) + " right");
  FileBuilder builder;
  builder.key("tokenizer.ggml.tokens", ValueType::kArray, raw_array(ValueType::kString, 262144, tokens));
  builder.key("tokenizer.ggml.merges", ValueType::kArray, raw_array(ValueType::kString, 500000, merges));
  const std::string path = folder_.write("model.gguf", builder.build().bytes);
  const auto start = std::chrono::steady_clock::now();
  const File file = File::open(path);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 500.0);  // some 10 ms; the bound is wide for sanitizers and busy machines
  RecordProperty("milliseconds", std::to_string(took.count()));
  EXPECT_EQ(value_at<Array>(file, "tokenizer.ggml.merges").size(), 500000u);
}

// ---- files that are not GGUF ----

TEST_F(GgufFile, NamesOtherFormats) {
  const auto padded = [](std::string start) { return start + std::string(64, ' '); };
  refused(padded("lmgg"), {"older than GGUF"});
  refused(padded("tjgg"), {"older than GGUF"});
  refused(padded("fmgg"), {"older than GGUF"});
  refused(padded("algg"), {"GGLA"});
  refused(padded("GGML"), {"older than GGUF", "GGML"});
  refused(padded("ggjt"), {"older than GGUF", "ggjt"});
  refused(padded("FUGG"), {"reversed"});
  refused(raw(uint64_t{8}) + "{\"a\": 1}data", {"safetensors"});
  refused("version https://git-lfs.github.com/spec/v1\noid sha256:0\n", {"Git LFS pointer", "git lfs pull"});
  refused("\n<!DOCTYPE html><html></html>", {"HTML"});
  refused("<HTML><head>", {"HTML"});
  refused(padded("PK\x03\x04"), {"ZIP", "PyTorch"});
  refused(padded("\x80\x02"), {"pickle"});
  refused(padded("\x1b[2J"), {"starts with \"\\x1b[2J\""});
}

TEST_F(GgufFile, RefusesWhatIsNoRegularFile) {
  EXPECT_NE(refusal_of(folder_.path("missing.gguf")).find("missing.gguf: No such file"), std::string::npos);
  EXPECT_NE(refusal_of(folder_.path("")).find("a directory"), std::string::npos);
  EXPECT_NE(refusal_of(folder_.write("empty.gguf", "")).find("empty file"), std::string::npos);
  ASSERT_EQ(mkfifo(folder_.path("fifo").c_str(), 0600), 0);
  EXPECT_NE(refusal_of(folder_.path("fifo")).find("a FIFO"), std::string::npos);
  EXPECT_NE(refusal_of("/dev/random").find("a device"), std::string::npos);
  EXPECT_NE(refusal_of("/dev/zero").find("a device"), std::string::npos);
  ASSERT_EQ(symlink("loop", folder_.path("loop").c_str()), 0);
  EXPECT_NE(refusal_of(folder_.path("loop")).find("symbolic link"), std::string::npos);
  if (geteuid() == 0) return;  // root reads everything
  const std::string secret = folder_.write("secret.gguf", "GGUF");
  ASSERT_EQ(chmod(secret.c_str(), 0), 0);
  EXPECT_NE(refusal_of(secret).find("Permission denied"), std::string::npos);
}

TEST_F(GgufFile, EscapesPathsInMessages) {
  EXPECT_NE(refusal_of(folder_.path("a\x1b[2J\nb")).find("a\\x1b[2J\\nb"), std::string::npos);
}

TEST_F(GgufFile, RejectsVersions) {
  const BuiltFile built = small().build();
  refused(built.with("version", 0u), {"version at byte 4 is 0", "versions 2 and 3"});
  refused(built.with("version", 1u), {"version at byte 4 is 1", "early format"});
  refused(built.with("version", 4u), {"version at byte 4 is 4", "versions 2 and 3"});
  refused(built.with("version", 0xFFFFFFFFu), {"version at byte 4 is 4294967295"});
  refused(built.with("version", 0x03000000u), {"0x03000000", "big-endian"});
  refused(built.with("version", 0x02000000u), {"big-endian"});
}

// ---- truncation and counts ----

TEST_F(GgufFile, RejectsEveryPrefix) {
  const BuiltFile built = small().build();
  for (size_t length = 1; length < built.bytes.size(); ++length) {
    const std::string message = refusal(std::string_view(built.bytes).substr(0, length));
    EXPECT_NE(message.find("model.gguf"), std::string::npos);
    if (length < 24) {
      EXPECT_NE(message.find("truncated"), std::string::npos) << message;
    }
  }
}

TEST_F(GgufFile, SurvivesEveryBytesExtremes) {
  const BuiltFile built = small().build();
  unsigned sum = 0;  // reading the data is what would crash
  for (size_t i = 0; i < built.at.at("data"); ++i) {
    for (const int value : {0x00, 0x01, 0x7F, 0x80, 0xFF}) {
      std::string bytes = built.bytes;
      bytes[i] = static_cast<char>(value);
      try {
        const File file = open(bytes);
        for (const Tensor& tensor : file.tensors()) {
          EXPECT_LE(tensor.data.size(), bytes.size());
          sum += static_cast<unsigned>(tensor.data.front()) + static_cast<unsigned>(tensor.data.back());
        }
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kModel);
      }
    }
  }
  EXPECT_NE(sum, 0u);
}

TEST_F(GgufFile, RejectsClaimedCounts) {
  const BuiltFile built = small().build();
  for (const uint64_t count :
       {~uint64_t{0}, uint64_t{1} << 63, uint64_t{1} << 61, (uint64_t{1} << 61) / 11, uint64_t{0xFFFFFFFF}}) {
    refused(built.with("n_tensors", count),
            {"number of tensors at byte 8 is " + std::to_string(count), "bytes remain"});
    refused(built.with("n_kv", count), {"number of keys at byte 16 is " + std::to_string(count), "bytes remain"});
  }
  for (const uint64_t count : {uint64_t{0}, uint64_t{2}, uint64_t{4}}) refusal(built.with("n_kv", count));
  refusal(built.with("n_tensors", uint64_t{3}));
}

TEST_F(GgufFile, AllocatesNothingForClaims) {
  FileBuilder builder;
  builder.key("k", ValueType::kArray, raw_array(ValueType::kString, uint64_t{1} << 40, raw(uint64_t{0})));
  const BuiltFile built = builder.build();
  rusage before, after;
  getrusage(RUSAGE_SELF, &before);
  refused(built.bytes, {"array length of key \"k\" at byte", "1099511627776", "8 bytes remain"});
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 16 * 1024);
}

// ---- keys and values ----

TEST_F(GgufFile, RejectsKeyLengths) {
  const BuiltFile built = small().build();
  const std::string field = "key general.architecture length";
  for (const uint64_t length :
       {~uint64_t{0}, uint64_t{1} << 63, uint64_t{built.bytes.size() - 31}, (uint64_t{1} << 30) + 1}) {
    refused(built.with(field, length), {"length of key 0 at byte 24 is " + std::to_string(length), "bytes remain"});
  }
  refused(built.with(field, uint64_t{0}), {"length of key 0 at byte 24 is 0"});
  refused(FileBuilder().text(std::string(65536, 'k'), "v").build().bytes, {"is 65536", "limit of 65535"});
  EXPECT_EQ(open(FileBuilder().text(std::string(65535, 'k'), "v").build().bytes).metadata().size(), 1u);
}

TEST_F(GgufFile, RejectsKeyBytes) {
  refused(FileBuilder().text(std::string("a\0b", 3), "v").build().bytes,
          {"name of key 0 at byte 32 is \"a\\x00b\"", "NUL"});
  refused(FileBuilder().text("a\xFF\x1b", "v").build().bytes, {"a\\xff\\x1b", "UTF-8"});
  refused(FileBuilder().text("twice", "v").u32("twice", 1).build().bytes, {"key \"twice\" occurs twice"});
  EXPECT_NE(open(FileBuilder().text("A\x1b[2J", "v").build().bytes).find("A\x1b[2J"), nullptr);
}

TEST_F(GgufFile, RejectsValueTypes) {
  const BuiltFile built = small().build();
  for (const uint32_t type : {13u, 255u, 0x80000000u, 0xFFFFFFFFu}) {
    refused(built.with("key general.architecture type", type),
            {"value type of key \"general.architecture\"", "is " + std::to_string(type)});
    refused(built.with("key list value", type), {"array element type of key \"list\"", "is " + std::to_string(type)});
  }
  refused(FileBuilder().key("b", ValueType::kBool, raw(uint8_t{2})).build().bytes,
          {"value of key \"b\"", "is 2", "boolean"});
}

TEST_F(GgufFile, RejectsStringLongerThanFile) {
  const BuiltFile built = small().build();
  const size_t at = built.at.at("key general.architecture value");
  for (const uint64_t length : {~uint64_t{0}, uint64_t{built.bytes.size() - at - 7}, uint64_t{1} << 31}) {
    refused(built.with("key general.architecture value", length),
            {"string length of key \"general.architecture\" at byte " + std::to_string(at), std::to_string(length)});
  }
}

TEST_F(GgufFile, RejectsArrayLengths) {
  FileBuilder builder;
  builder.key("k", ValueType::kArray, raw_array(ValueType::kUint64, 2, std::string(16, 'x')));
  const BuiltFile built = builder.build();
  for (const uint64_t count : {~uint64_t{0}, uint64_t{1} << 61, (uint64_t{1} << 30) + 1, uint64_t{3}}) {
    std::string bytes = built.bytes;
    bytes.replace(built.at.at("key k value") + 4, 8, raw(count));
    refused(bytes, {"array length of key \"k\"", "is " + std::to_string(count), "16 bytes remain"});
  }
}

TEST_F(GgufFile, RejectsMoreArrayElementsThanAnyModelHas) {
  FileBuilder builder;
  const uint64_t count = (1 << 23) + 1;
  for (const char* key : {"a", "b"}) {
    builder.key(key, ValueType::kArray, raw_array(ValueType::kUint8, count, std::string(count, 'x')));
  }
  refused(builder.build().bytes, {"array length of key \"b\"", std::to_string(count), "16777216"});
}

TEST_F(GgufFile, RejectsDeepArrays) {
  std::string array = raw_array(ValueType::kUint8, 0, "");
  for (int depth = 2; depth <= 8; ++depth) array = raw_array(ValueType::kArray, 1, array);
  EXPECT_NE(open(FileBuilder().key("k", ValueType::kArray, array).build().bytes).find("k"), nullptr);
  for (int depth = 9; depth <= 20000; ++depth) array.insert(0, raw_array(ValueType::kArray, 1, ""));
  refused(FileBuilder().key("k", ValueType::kArray, array).build().bytes, {"array depth of key \"k\"", "limit of 8"});
}

TEST_F(GgufFile, RejectsAlignments) {
  const BuiltFile built = small().build();
  for (const uint32_t alignment : {0u, 1u, 3u, 4u, 7u, 13u, 24u, 1u << 31, 0xFFFFFFFFu}) {
    refused(built.with("key general.alignment value", alignment),
            {"value of key \"general.alignment\"", "is " + std::to_string(alignment), "power of two"});
  }
  for (const auto type : {ValueType::kInt32, ValueType::kUint64, ValueType::kString, ValueType::kArray}) {
    refused(built.with("key general.alignment type", static_cast<uint32_t>(type)),
            {"value type of key \"general.alignment\"", "uint32"});
  }
}

// ---- tensors ----

TEST_F(GgufFile, RejectsTensorNames) {
  const BuiltFile built = small().build();
  const std::string at = std::to_string(built.at.at("tensor a name length"));
  refused(built.with("tensor a name length", ~uint64_t{0}),
          {"name length of tensor 0 at byte " + at, "18446744073709551615"});
  refused(built.with("tensor a name length", uint64_t{0}), {"name length of tensor 0 at byte " + at + " is 0"});
  const std::string data(4, 'x');
  refused(FileBuilder().tensor(std::string(65, 'n'), {1}, kF32, data).build().bytes,
          {"name length", "is 65", "1 to 64"});
  EXPECT_EQ(open(FileBuilder().tensor(std::string(64, 'n'), {1}, kF32, data).build().bytes).tensors().size(), 1u);
  refused(FileBuilder().tensor(std::string("a\0b", 3), {1}, kF32, data).build().bytes, {"a\\x00b", "NUL"});
  refused(FileBuilder().tensor("t", {1}, kF32, data).tensor("t", {1}, kF32, data).build().bytes,
          {"tensor \"t\" occurs twice"});
}

TEST_F(GgufFile, RejectsShapes) {
  const BuiltFile built = small().build();
  for (const uint32_t n_dims : {0u, 5u, 255u, 0xFFFFFFFFu}) {
    refused(built.with("tensor a n_dims", n_dims),
            {"number of dimensions of tensor \"a\"", "is " + std::to_string(n_dims)});
  }
  for (const std::string dim : {"tensor a dim 0", "tensor a dim 1"}) {
    refused(built.with(dim, uint64_t{0}), {"dimension of tensor \"a\"", "is 0"});
    refused(built.with(dim, uint64_t{1} << 63), {"tensor \"a\""});
    refused(built.with(dim, ~uint64_t{0}), {"tensor \"a\""});
  }
  refused(built.with("tensor b dim 0", uint64_t{31}), {"row length of tensor \"b\"", "is 31", "multiple of 32"});
  refused(FileBuilder().tensor("k", {255}, kQ4_K, std::string(144, 'x')).build().bytes,
          {"row length", "is 255", "multiple of 256"});
}

TEST_F(GgufFile, RejectsSizesThatWrap) {
  const std::string data(64, 'x');
  const uint64_t half = uint64_t{1} << 30;
  refused(FileBuilder().tensor("w", {4, half - 1, half + 1}, kF32, data).build().bytes,
          {"tensor \"w\"", "18446744073709551600"});
  refused(FileBuilder().tensor("w", {uint64_t{1} << 62, 4}, kF32, data).build().bytes,
          {"tensor \"w\"", "exceeds 64 bits"});
  refused(FileBuilder().tensor("w", {uint64_t{1} << 62}, kF32, data).build().bytes,
          {"tensor \"w\"", "exceeds 64 bits"});
  FileBuilder two;
  two.tensor("x", {0x7FFFFFFFFFFFFFC0}, 24, data).tensor("y", {0x7FFFFFFFFFFFFFC0}, 24, data);
  refused(two.build().bytes, {"tensor \"x\"", "9223372036854775744"});
}

TEST_F(GgufFile, RejectsTypes) {
  const BuiltFile built = small().build();
  for (const uint32_t type : {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u, 43u, 0x7FFFFFFFu, 0x80000000u, 0xFFFFFFFFu}) {
    refused(built.with("tensor a type", type), {"type of tensor \"a\"", "is " + std::to_string(type), "unsupported"});
  }
  refused(built.with("tensor b type", kF32), {"tensor \"b\"", "128 bytes"});
}

TEST_F(GgufFile, RejectsOffsets) {
  const BuiltFile built = small().build();
  refused(built.with("tensor b offset", uint64_t{257}),
          {"offset of tensor \"b\"", "is 257", "multiple of the alignment 32"});
  refused(built.with("tensor b offset", uint64_t{224}), {"offset of tensor \"b\"", "is 224", "inside tensor \"a\""});
  refused(built.with("tensor b offset", uint64_t{0}), {"tensor \"b\"", "tensor \"a\""});
  for (const uint64_t offset : {~uint64_t{31}, uint64_t{1} << 63, uint64_t{1} << 20, uint64_t{288}}) {
    refused(built.with("tensor b offset", offset),
            {"offset of tensor \"b\"", "is " + std::to_string(offset), "34 bytes"});
  }
}

TEST_F(GgufFile, RejectsTheOtherQ2_0ByItsSize) {
  // 4096 weights: 34 * 32 = 1088 bytes there, 18 * 64 = 1152 here.
  FileBuilder between;
  between.tensor("q", {128, 32}, kQ2_0, std::string(1088, 'q')).tensor("n", {64}, kF32, std::string(256, 'n'));
  refused(between.build().bytes, {"inside tensor \"q\"", "128 values in 34 bytes"});
  refused(FileBuilder().tensor("q", {128, 32}, kQ2_0, std::string(1088, 'q')).build().bytes,
          {"tensor \"q\"", "1152 bytes", "128 values in 34 bytes"});
  EXPECT_EQ(open(FileBuilder().tensor("q", {128, 32}, kQ2_0, std::string(1152, 'q')).build().bytes).tensors().size(),
            1u);
}

// ---- split sets ----

class GgufSplit : public GgufFile {
 protected:
  static FileBuilder part(uint16_t no, uint16_t count, int32_t n_tensors) {
    FileBuilder builder;
    if (no == 0) builder.text("general.architecture", "llama");
    builder.key("split.no", ValueType::kUint16, raw(no)).key("split.count", ValueType::kUint16, raw(count));
    builder.key("split.tensors.count", ValueType::kInt32, raw(n_tensors));
    if (no > 0) builder.tensor("t" + std::to_string(no), {8}, kF32, std::string(32, static_cast<char>('0' + no)));
    return builder;
  }
  std::string write(int no, const FileBuilder& builder) {
    return folder_.write(fmt::format("m-{:05}-of-00003.gguf", no), builder.build().bytes);
  }
  /// Writes a valid set of three and returns the first part's path.
  std::string write_set() {
    for (uint16_t no = 1; no < 3; ++no) write(no + 1, part(no, 3, 2));
    return write(1, part(0, 3, 2));
  }
  void refused_set(const std::string& path, const std::vector<std::string>& parts) {
    const std::string message = refusal_of(path);
    for (const std::string& text : parts)
      EXPECT_NE(message.find(text), std::string::npos) << text << "\n in: " << message;
  }
};

TEST_F(GgufSplit, ReadsAllParts) {
  const File file = File::open(write_set());
  EXPECT_EQ(file.n_parts(), 3u);
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.tensor("t1")->data[0], std::byte{'1'});
  EXPECT_EQ(file.tensor("t2")->data[31], std::byte{'2'});
  EXPECT_EQ(value_at<std::string_view>(file, "general.architecture"), "llama");
  uint64_t size = 0;
  for (const char* no : {"1", "2", "3"})
    size += std::filesystem::file_size(folder_.path(fmt::format("m-0000{}-of-00003.gguf", no)));
  EXPECT_EQ(file.size_bytes(), size);
}

TEST_F(GgufSplit, RefusesOtherPartsNamingTheFirst) {
  write_set();
  refused_set(folder_.path("m-00002-of-00003.gguf"), {"is part 2", "in 3 parts", "m-00001-of-00003.gguf"});
}

TEST_F(GgufSplit, NamesTheMissingPart) {
  const std::string first = write_set();
  std::filesystem::remove(folder_.path("m-00003-of-00003.gguf"));
  refused_set(first, {"part 3 of 3 is missing", "m-00003-of-00003.gguf"});
}

TEST_F(GgufSplit, RefusesRenamedFirstPart) {
  std::filesystem::rename(write_set(), folder_.path("renamed.gguf"));
  refused_set(folder_.path("renamed.gguf"), {"first of 3 parts", "-00001-of-00003.gguf"});
}

TEST_F(GgufSplit, RefusesForeignParts) {
  const std::string first = write_set();
  write(2, part(2, 3, 2));
  refused_set(first, {"m-00002-of-00003.gguf", "\"split.no\" is 2, but it must be 1"});
  write(2, part(1, 4, 2));
  refused_set(first, {"\"split.count\" is 4, but it must be 3"});
  write(2, FileBuilder());
  refused_set(first, {"\"split.no\" is missing"});
  write(2, part(1, 3, 2).tensor("t2", {1}, kF32, "xxxx"));
  write(1, part(0, 3, 3));
  refused_set(first, {"tensor \"t2\" occurs twice"});
}

TEST_F(GgufSplit, RefusesWrongSplitNumbers) {
  write_set();
  refused_set(write(1, part(0, 3, 5)), {"\"split.tensors.count\" is 5, but it must be 2"});
  FileBuilder text;
  text.text("split.count", "3");
  refused_set(write(1, text), {"\"split.count\" must be an integer"});
  FileBuilder negative;
  negative.key("split.count", ValueType::kInt32, raw(-3));
  refused_set(write(1, negative), {"\"split.count\" is -3"});
}

// ---- a file that changes under us ----

using GgufFileDeathTest = GgufFile;

TEST_F(GgufFileDeathTest, EndsWithOneLineWhenFileShrinks) {
  FileBuilder builder;
  builder.tensor("a", {65536}, kF32, std::string(262144, 'a'));
  const std::string path = folder_.write("shrinking.gguf", builder.build().bytes);
  const auto read_after_truncation = [&] {
    const File file = File::open(path);
    std::filesystem::resize_file(path, 4096);
    const volatile std::byte* data = file.tensor("a")->data.data();
    [[maybe_unused]] const std::byte last = data[262143];
  };
  EXPECT_EXIT(read_after_truncation(), testing::ExitedWithCode(3), "lamina: .*shrinking.gguf: the file was truncated");
}

TEST_F(GgufFileDeathTest, LeavesOtherBusErrorsAlone) {
  const auto raise_after_open = [&] {
    const File file = open(small().build().bytes);
    raise(SIGBUS);
  };
  EXPECT_EXIT(raise_after_open(), testing::KilledBySignal(SIGBUS), "");
}

// ---- strings from files ----

TEST(Printable, EscapesWhatATerminalActsOn) {
  EXPECT_EQ(printable("plain \xC3\xA9 text"), "plain \xC3\xA9 text");
  EXPECT_EQ(printable("a\nb\tc\rd"), "a\\nb\\tc\\rd");
  EXPECT_EQ(printable(std::string_view("\0\x1b\x7f", 3)), "\\x00\\x1b\\x7f");
  EXPECT_EQ(printable("\"'\\"), "\\\"\\'\\\\");
  EXPECT_EQ(printable("\xC2\x9B\xE2\x80\xAE\xEF\xBB\xBF"), "\\u009b\\u202e\\ufeff");
}

TEST(Printable, EscapesInvalidUtf8) {
  EXPECT_EQ(printable("\xFF"), "\\xff");
  EXPECT_EQ(printable("a\xC3"), "a\\xc3");
  EXPECT_EQ(printable("\xC0\x80"), "\\xc0\\x80");
  EXPECT_EQ(printable("\xED\xA0\x80"), "\\xed\\xa0\\x80");
  EXPECT_EQ(printable("\xF4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
}

TEST(Printable, CutsBetweenCharacters) {
  EXPECT_EQ(printable("abcdef", 6), "abcdef");
  EXPECT_EQ(printable("abcdefg", 6), "abc...");
  EXPECT_EQ(printable("ab\xC3\xA9"
                      "def",
                      6),
            "ab...");
  EXPECT_EQ(printable("\x1b\x1b\x1b", 8), "\\x1b...");
  EXPECT_EQ(printable("abc", 2), "..");
  EXPECT_EQ(printable(std::string(1000, 'x')).size(), 80u);
}

}  // namespace
}  // namespace lamina::gguf

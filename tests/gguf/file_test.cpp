// The GGUF reader on valid files: every type, both versions, split sets; and split sets that are wrong.
// In: files made by FileBuilder. Out: the values that were put in.
#include "gguf/file.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>

#include "tests/gguf/file_builder.h"
#include "tests/gguf/file_fixture.h"

namespace lamina::gguf {
namespace {

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
  EXPECT_EQ(file.metadata()[2].key, "u16");
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
  file.release(tensor.data);
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

TEST_F(GgufFile, SetsKeys) {
  File file = open(small().build().bytes);
  const size_t n_keys = file.metadata().size();
  {
    const std::string text = "gemma3, a text that does not fit into a short string";
    file.set("general.architecture", std::string_view(text));
  }
  file.set("a", int64_t{-5});
  file.set("z", true);
  file.set("a", 2.5);
  EXPECT_EQ(value_at<std::string_view>(file, "general.architecture"),
            "gemma3, a text that does not fit into a short string");
  EXPECT_EQ(value_at<double>(file, "a"), 2.5);
  EXPECT_EQ(value_at<bool>(file, "z"), true);
  EXPECT_EQ(value_at<uint64_t>(file, "general.alignment"), 32u);
  EXPECT_EQ(file.metadata().size(), n_keys + 2);
}

}  // namespace
}  // namespace lamina::gguf

// The GGUF reader on hostile files, each with a single wrong field, and on what is no GGUF file at all.
// In: files made by FileBuilder, corrupted. Out: an Error(kModel) that names the field and its value.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "gguf/file.h"
#include "tests/gguf/file_builder.h"
#include "tests/gguf/file_fixture.h"

namespace lamina::gguf {
namespace {

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
  // Killed by the signal, or ended by a sanitizer's handler.
  const auto is_not_ours = [](int status) { return !WIFEXITED(status) || WEXITSTATUS(status) != 3; };
  EXPECT_EXIT(raise_after_open(), is_not_ours, "");
}

}  // namespace
}  // namespace lamina::gguf

// The checklist of malformed files (rows G01 to G72), each run through the binary: a small model that the test writes
// is corrupted in one place. In: rows of corruptions. Out: exit code 3 and one line naming what is wrong, or 0 where
// the file is only odd; memory stays within 64 MiB of what the sound file takes, and nothing hangs
// (tests/tools/process.h).
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>

#include "gguf/type.h"
#include "tests/text_model.h"
#include "tests/tools/process.h"

namespace lamina {
namespace {

using gguf::BuiltFile;
using gguf::raw;
using gguf::raw_array;
using gguf::raw_string;
using gguf::ValueType;
using Strings = std::vector<std::string>;

constexpr uint64_t kMax64 = std::numeric_limits<uint64_t>::max();
constexpr uint32_t kMax32 = std::numeric_limits<uint32_t>::max();

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMemoryIsReal = false;  // a sanitizer's shadow counts as well
#else
constexpr bool kMemoryIsReal = true;
#endif

class HostileModel : public testing::Test {
 protected:
  static constexpr int64_t kMemoryGrowth = int64_t{64} << 20;

  void SetUp() override { sound_rss_ = run(write(TextModel().build().bytes)).max_rss; }

  std::string write(const std::string& bytes) { return folder_.write("model.gguf", bytes); }

  static ProcessResult run(const std::string& path, const Strings& options = {}) {
    Strings words = {LAMINA_BINARY, "run", path, "-p", "ab", "-n", "2", "-t", "2"};
    words.insert(words.end(), options.begin(), options.end());
    return run_process(words);
  }

  static bool is_one_line(const std::string& text) {
    return text.starts_with("lamina: ") && std::count(text.begin(), text.end(), '\n') == 1 && text.ends_with('\n');
  }

  /// `run` must refuse the file in one line that holds all `parts`; `inspect` may show it, but nothing else.
  void refused_at(const std::string& path, const std::string& row, const Strings& parts) {
    const ProcessResult result = run(path, {"-q"});  // warnings aside
    EXPECT_EQ(result.exit_code, 3) << row << ": " << result.err;
    EXPECT_EQ(result.out, "") << row;
    EXPECT_TRUE(is_one_line(result.err)) << row << ": " << result.err;
    for (const std::string& part : parts) {
      EXPECT_NE(result.err.find(part), std::string::npos) << row << ": " << part << " is not in: " << result.err;
    }
    check_memory(result, row);
    const ProcessResult inspected = run_process({LAMINA_BINARY, "inspect", path, "--json"});
    EXPECT_TRUE(inspected.exit_code == 0 || (inspected.exit_code == 3 && is_one_line(inspected.err)))
        << row << ": inspect ends with " << inspected.exit_code << ": " << inspected.err;
    if (inspected.exit_code == 3) check_memory(inspected, row);
  }
  void refused(const std::string& row, const std::string& bytes, const Strings& parts) {
    refused_at(write(bytes), row, parts);
  }

  /// `run` must work; the warning holds `part`, or there is none.
  void accepted(const std::string& row, const std::string& bytes, const std::string& part = "") {
    const ProcessResult result = run(write(bytes));
    EXPECT_EQ(result.exit_code, 0) << row << ": " << result.err;
    if (part.empty()) {
      EXPECT_EQ(result.err, "") << row;
    }
    EXPECT_NE(result.err.find(part), std::string::npos) << row << ": " << result.err;
    check_memory(result, row);
  }

  void check_memory(const ProcessResult& result, const std::string& row) const {
    // A child's peak is at least what this process, which made the file, had when it started the child.
    rusage own = {};
    getrusage(RUSAGE_SELF, &own);
    const int64_t least = std::max(sound_rss_, own.ru_maxrss * int64_t{1024});
    if (kMemoryIsReal) {
      EXPECT_LT(result.max_rss, least + kMemoryGrowth) << row;
    }
  }

  gguf::TempFolder folder_;
  int64_t sound_rss_ = 0;
};

std::string in_place(BuiltFile file, size_t at, const std::string& bytes) {
  file.bytes.replace(at, bytes.size(), bytes);
  return file.bytes;
}

// ---- header, keys, values ----

TEST_F(HostileModel, G01ToG08Headers) {
  const BuiltFile built = TextModel().build();
  accepted("sound", built.bytes);
  refused("G01", "", {"empty file"});
  refused("G02", "GGUF", {"truncated", "version"});
  const struct {
    const char* magic;
    const char* part;
  } magics[] = {{"FUGG", "reversed"}, {"GGML", "GGML"}, {"ggjt", "ggjt"}};
  for (const auto& row : magics) refused("G04", in_place(built, 0, row.magic), {row.part});
  for (const uint32_t version : {0u, 1u, 4u, kMax32})
    refused("G05", built.with("version", version), {"version at byte 4 is " + std::to_string(version)});
  accepted("G05", built.with("version", 2u));
  refused("G06", built.with("version", 0x03000000u), {"big-endian"});
  for (const uint64_t n : {kMax64, uint64_t{1} << 63, (uint64_t{1} << 61) / 11}) {
    refused("G07", built.with("n_tensors", n), {"number of tensors at byte 8 is " + std::to_string(n)});
    refused("G08", built.with("n_kv", n), {"number of keys at byte 16 is " + std::to_string(n)});
  }
  refused("G07", built.with("n_tensors", uint64_t{22}), {});
  refused("G07", built.with("n_tensors", uint64_t{20}), {});
  refused("G07", built.with("n_tensors", uint64_t{0}), {"token_embd.weight"});
  refused("G08", built.with("n_kv", uint64_t{kMax32}), {"4294967295"});
  for (const uint64_t n : {uint64_t{21}, uint64_t{19}, uint64_t{0}}) refused("G08", built.with("n_kv", n), {});
  const BuiltFile no_keys = gguf::FileBuilder().build();
  refused("G08", no_keys.bytes, {"general.architecture is missing"});
}

TEST_F(HostileModel, G03EveryPrefix) {
  // Whole processes are too slow for thousands of prefixes: the reader alone, on a file that shrinks.
  const BuiltFile built = TextModel().build();
  const std::string path = write(built.bytes);
  const size_t data = built.at.at("data");
  for (size_t length = built.bytes.size() - 1; length > 0;
       length -= length > data ? std::min<size_t>(997, length - data) : 1) {
    std::filesystem::resize_file(path, length);
    try {
      gguf::File::open(path);
      ADD_FAILURE() << "G03: accepted a prefix of " << length << " bytes";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kModel) << "G03";
    }
  }
  refused("G03", built.bytes.substr(0, data - 40), {});
  refused("G61", built.bytes.substr(0, built.bytes.size() - 1), {"truncated", "blk.1.ffn_down.weight"});
  refused("G61", built.bytes.substr(0, (data + built.bytes.size()) / 2), {"truncated"});
}

TEST_F(HostileModel, G09ToG19KeysAndValues) {
  const BuiltFile built = TextModel().build();
  const std::string first = "key general.architecture ";
  for (const uint64_t n : {kMax64, uint64_t{1} << 63, uint64_t{built.bytes.size()}, (uint64_t{1} << 30) + 1}) {
    refused("G09", built.with(first + "length", n), {"length of key 0 at byte 24 is " + std::to_string(n)});
    refused("G14", built.with(first + "value", n),
            {"string length of key \"general.architecture\"", std::to_string(n)});
  }
  refused("G09", TextModel().u32(std::string(65536, 'k'), 1).build().bytes, {"65536", "65535"});
  refused("G10", built.with(first + "length", uint64_t{0}), {"length of key 0 at byte 24 is 0"});
  refused("G11", TextModel().u32(std::string("a\0b", 3), 1).build().bytes, {"a\\x00b", "NUL"});
  refused("G11", TextModel().u32("a\xFF\x1b[2J", 1).build().bytes, {"a\\xff\\x1b[2J", "UTF-8"});
  accepted("G11", TextModel().u32("UPPER\x1b[2J", 1).build().bytes);
  for (const uint32_t type : {13u, 255u, 0x80000000u, kMax32}) {
    refused("G13", built.with(first + "type", type),
            {"value type of key \"general.architecture\"", std::to_string(type)});
    refused("G17", built.with("key tokenizer.ggml.tokens value", type), {"array element type", std::to_string(type)});
  }
  refused("G15", TextModel().text("general.architecture", std::string_view("llama\0x", 7)).build().bytes,
          {"llama\\x00x"});
  const size_t count_at = built.at.at("key tokenizer.ggml.scores value") + 4;
  for (const uint64_t n : {kMax64, uint64_t{1} << 61, (uint64_t{1} << 30) + 1}) {
    refused("G18", in_place(built, count_at, raw(n)),
            {"array length of key \"tokenizer.ggml.scores\"", std::to_string(n)});
  }
  refused(
      "G18",
      TextModel().key("tokenizer.ggml.tokens", ValueType::kArray, raw_array(ValueType::kString, 0, "")).build().bytes,
      {"tokenizer.ggml.tokens"});
  accepted("G18", TextModel().key("list", ValueType::kArray, raw_array(ValueType::kUint8, 0, "")).build().bytes);
  gguf::FileBuilder claims;
  claims.key("list", ValueType::kArray, raw_array(ValueType::kString, uint64_t{1} << 40, raw(uint64_t{0})));
  refused("G19", claims.build().bytes, {"array length of key \"list\"", "1099511627776", "8 bytes remain"});
}

TEST_F(HostileModel, MetadataAreBounded) {
  // 300 MiB of text in a hole of the file: a view to the reader, but copied by who prints it.
  gguf::FileBuilder builder;
  builder.key("text", ValueType::kString, raw(uint64_t{300} << 20));
  const std::string path = write(builder.build().bytes);
  std::filesystem::resize_file(path, uint64_t{301} << 20);
  refused_at(path, "metadata", {"key \"text\"", "limit of 268435456"});
}

TEST_F(HostileModel, G21ToG23AlignmentAndArchitecture) {
  const BuiltFile built = TextModel().build();
  for (const uint32_t n : {0u, 1u, 3u, 13u, 7u, 1u << 31, kMax32}) {
    refused("G21", built.with("key general.alignment value", n), {"\"general.alignment\"", "is " + std::to_string(n)});
  }
  for (const auto type : {ValueType::kInt32, ValueType::kUint64, ValueType::kString, ValueType::kArray}) {
    refused("G22", built.with("key general.alignment type", static_cast<uint32_t>(type)),
            {"\"general.alignment\"", "uint32"});
  }
  refused("G23", TextModel().remove_key("general.architecture").build().bytes, {"general.architecture is missing"});
  refused("G23", TextModel().u32("general.architecture", 7).build().bytes, {"general.architecture is 7"});
  for (const std::string& name : {std::string(), std::string("nosuch"), std::string(1 << 20, 'a')}) {
    refused("G23", TextModel().text("general.architecture", name).build().bytes,
            {"general.architecture is \"", "llama", "gemma3"});
  }
}

// ---- hyperparameters ----

TEST_F(HostileModel, G24ToG33Integers) {
  const struct {
    const char *row, *key;
    std::vector<uint32_t> values;
  } rows[] = {
      {"G24", "block_count", {0, 3, 513, 1u << 31, kMax32}},
      {"G25", "embedding_length", {0, 63, 96, kMax32}},
      {"G26", "attention.head_count", {0, 3, kMax32}},
      {"G27", "attention.head_count_kv", {0, 3, 8, kMax32}},
      {"G28", "rope.dimension_count", {0, 3, 18, kMax32}},
      {"G31", "context_length", {0, kMax32}},
      {"G32", "expert_count", {1u << 31}},
      {"G33", "feed_forward_length", {0, 128, kMax32}},
  };
  for (const auto& row : rows) {
    for (const uint32_t value : row.values) {
      const std::string key = std::string("llama.") + row.key;
      refused(row.row + (" " + key) + " = " + std::to_string(value), TextModel().u32(key, value).build().bytes, {});
    }
  }
  refused("G24", TextModel().text("llama.block_count", "2").build().bytes, {"llama.block_count is \"2\""});
  refused("G24", TextModel().f32("llama.block_count", 2.5F).build().bytes, {"llama.block_count is 2.5"});
  const auto per_layer = [](const std::vector<uint32_t>& values) {
    std::string items;
    for (const uint32_t value : values) items += raw(value);
    return TextModel()
        .key("llama.attention.head_count_kv", ValueType::kArray, raw_array(ValueType::kUint32, values.size(), items))
        .build()
        .bytes;
  };
  accepted("G27", per_layer({2, 2}));
  refused("G27", per_layer({2}), {"llama.attention.head_count_kv is an array of 1"});
  refused("G27", per_layer({2, 0}), {"llama.attention.head_count_kv is 0"});
  accepted("G31", TextModel().u32("llama.context_length", (1u << 31) - 1).build().bytes);
  refused("G32", TextModel().u32("llama.expert_count", 2).u32("llama.expert_used_count", 3).build().bytes,
          {"llama.expert_used_count is 3"});
  TextModel no_experts;
  no_experts.u32("llama.expert_count", 0);
  for (const char* name : {"blk.0.ffn_gate", "blk.0.ffn_up", "blk.0.ffn_down"}) {
    no_experts.remove_tensor(std::string(name) + ".weight")
        .tensor(std::string(name) + "_exps.weight", "F32", {64, 64, 2});
  }
  refused("G32", no_experts.build().bytes, {"tensor blk.0.ffn_gate.weight is missing"});
}

TEST_F(HostileModel, G29ToG34Numbers) {
  const float nan = NAN, infinity = INFINITY;
  for (const float value : {0.0F, -1.0F, nan, infinity, 1e-40F}) {
    refused("G29", TextModel().f32("llama.rope.freq_base", value).build().bytes, {"llama.rope.freq_base is"});
  }
  for (const float value : {0.0F, -1.0F, nan, infinity, 1.0F}) {
    refused("G30", TextModel().f32("llama.attention.layer_norm_rms_epsilon", value).build().bytes,
            {"llama.attention.layer_norm_rms_epsilon is"});
  }
  for (const std::string key :
       {"general.architecture", "llama.block_count", "llama.context_length", "llama.embedding_length",
        "llama.feed_forward_length", "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon",
        "tokenizer.ggml.model", "tokenizer.ggml.tokens"}) {
    refused("G34", TextModel().remove_key(key).build().bytes, {key, "missing"});
  }
}

// ---- vocabulary ----

TEST_F(HostileModel, G36ToG45Vocabulary) {
  Strings tokens = TextModel().tokens();
  accepted("G36", TextModel()
                      .tokens({"a"})
                      .remove_key("tokenizer.ggml.bos_token_id")
                      .remove_key("tokenizer.ggml.eos_token_id")
                      .build()
                      .bytes);
  accepted("G37", TextModel().tokens(Strings(tokens.begin(), tokens.end() - 1)).build().bytes);
  tokens.push_back("more");
  refused("G37", TextModel().tokens(tokens).build().bytes, {"tokenizer.ggml.tokens is an array of 289", "288 rows"});
  for (const uint64_t n : {uint64_t{287}, uint64_t{289}}) {
    const std::string zeros(n * 4, '\0');
    refused("G38",
            TextModel()
                .key("tokenizer.ggml.scores", ValueType::kArray, raw_array(ValueType::kFloat32, n, zeros))
                .build()
                .bytes,
            {"tokenizer.ggml.scores", std::to_string(n)});
    refused("G38",
            TextModel()
                .key("tokenizer.ggml.token_type", ValueType::kArray, raw_array(ValueType::kInt32, n, zeros))
                .build()
                .bytes,
            {"tokenizer.ggml.token_type", std::to_string(n)});
  }
  const BuiltFile built = TextModel().build();
  const size_t type_at = built.at.at("key tokenizer.ggml.token_type value") + 12 + 4 * 270;
  for (const int32_t type : {7, -1, std::numeric_limits<int32_t>::max()}) {
    refused("G39", in_place(built, type_at, raw(type)), {"tokenizer.ggml.token_type[270]", std::to_string(type)});
  }
  accepted("G39", in_place(built, type_at, raw(0)));
  tokens.pop_back();
  tokens[280] = "\xFF\xFE";
  tokens[281] = "";
  accepted("G41", TextModel().tokens(tokens).build().bytes);
  tokens[280] = std::string(size_t{1} << 26, 'x');
  refused("G41", TextModel().tokens(tokens).build().bytes, {"tokenizer.ggml.tokens", "67108864"});
  TextModel special = TextModel().tokens({std::string(1025, 'x'), "a", "b"});
  refused("G41", special.build().bytes, {"tokenizer.ggml.tokens[0]", "special token of 1025 bytes", "1024"});
  for (const std::string name : {"bos", "eos", "unknown", "eot", "eom"}) {
    const std::string key = "tokenizer.ggml." + name + "_token_id";
    refused("G42", TextModel().u32(key, 288).build().bytes, {key, "288"});
    accepted("G42", TextModel().u32(key, kMax32).build().bytes);  // none
    accepted("G42", TextModel().key(key, ValueType::kInt32, raw(-1)).build().bytes);
    refused("G42", TextModel().text(key, "1").build().bytes, {key, "integer"});
  }
  accepted("G43", TextModel().u32("tokenizer.ggml.bos_token_id", kMax32).build().bytes);
  refused("G45", TextModel().text("tokenizer.ggml.model", "nosuch").build().bytes,
          {"tokenizer.ggml.model is \"nosuch\""});
  accepted("G47", TextModel().text("tokenizer.chat_template", std::string(size_t{1} << 24, '{')).build().bytes);
}

TEST_F(HostileModel, G44Merges) {
  const auto with_merges = [](const Strings& merges) {
    std::string items;
    for (const std::string& merge : merges) items += raw_string(merge);
    return TextModel()
        .text("tokenizer.ggml.model", "gpt2")
        .text("tokenizer.ggml.pre", "gpt-2")
        .key("tokenizer.ggml.merges", ValueType::kArray, raw_array(ValueType::kString, merges.size(), items))
        .build()
        .bytes;
  };
  accepted("G44", with_merges({"a b", "unknown halves", "two  blanks"}));
  accepted("G44", with_merges({}));
  for (const std::string merge : {"ab", "", "a "})
    refused("G44", with_merges({"a b", merge}), {"tokenizer.ggml.merges[1]"});
  Strings junk;
  for (int i = 0; i < 1 << 18; ++i) junk.push_back(fmt::format("x{} y", i));
  const ProcessResult result = run(write(with_merges(junk)));  // a quarter of what is allowed, in memory of its own
  EXPECT_EQ(result.exit_code, 0) << "G44: " << result.err;
  const std::string pre = TextModel()
                              .text("tokenizer.ggml.model", "gpt2")
                              .text("tokenizer.ggml.pre", "nosuch")
                              .key("tokenizer.ggml.merges", ValueType::kArray, raw_array(ValueType::kString, 0, ""))
                              .build()
                              .bytes;
  accepted("G45", pre, "tokenizer.ggml.pre \"nosuch\" is unknown");
}

// ---- tensors ----

TEST_F(HostileModel, G48ToG58TensorTable) {
  const BuiltFile built = TextModel().build();
  const std::string q = "tensor blk.0.attn_q.weight ";
  refused("G48", built.with(q + "name length", kMax64), {"name length of tensor", "18446744073709551615"});
  refused("G48", built.with(q + "name length", uint64_t{65}), {});
  refused("G48", built.with(q + "name length", uint64_t{0}), {"name length of tensor", "is 0"});
  refused("G48", TextModel().tensor(std::string("a\0b", 3), "F32", {1}).build().bytes, {"a\\x00b", "NUL"});
  refused("G48", in_place(built, built.at.at("tensor blk.0.attn_v.weight name"), "blk.0.attn_k.weight"),
          {"\"blk.0.attn_k.weight\" occurs twice"});
  for (const uint32_t n : {0u, 5u, 255u, kMax32}) {
    refused("G49", built.with(q + "n_dims", n),
            {"number of dimensions of tensor \"blk.0.attn_q.weight\"", "is " + std::to_string(n)});
  }
  refused("G50", built.with(q + "dim 1", uint64_t{0}), {"dimension of tensor \"blk.0.attn_q.weight\"", "is 0"});
  std::string smallest = "GGUF" + raw(3u) + raw(uint64_t{1}) + raw(uint64_t{0}) + raw(uint64_t{0}) + raw(2u) +
                         raw(uint64_t{1}) + raw(uint64_t{0});
  refused("G50", smallest + std::string(88 - smallest.size(), '\0'), {"name length"});
  for (const uint64_t n : {uint64_t{1} << 63, kMax64}) {
    refused("G51", built.with(q + "dim 0", n), {"tensor \"blk.0.attn_q.weight\""});
    refused("G51", built.with(q + "dim 1", n), {"tensor \"blk.0.attn_q.weight\""});
  }
  gguf::FileBuilder wraps;
  wraps.tensor("w", {4, (1 << 30) - 1, (1 << 30) + 1}, 0, "data");
  refused("G53", wraps.build().bytes, {"tensor \"w\"", "18446744073709551600"});
  refused("G55", built.with(q + "dim 0", uint64_t{31}),
          {"row length of tensor \"blk.0.attn_q.weight\"", "is 31", "multiple of 32"});
  for (const uint32_t type : {4u, 5u, 31u, 33u, 36u, 38u, 43u, 0x7FFFFFFFu, 0x80000000u, kMax32}) {
    refused("G56", built.with(q + "type", type),
            {"type of tensor \"blk.0.attn_q.weight\"", "is " + std::to_string(type), "unsupported"});
  }
  refused("G57", built.with(q + "type", 0u), {"tensor \"blk.0.attn_q.weight\"", "F32"});
  refused("G57", built.with("tensor blk.1.ffn_down.weight type", 8u), {"tensor \"blk.1.ffn_down.weight\"", "Q8_0"});
  uint64_t offset = 0;
  std::memcpy(&offset, built.bytes.data() + built.at.at(q + "offset"), 8);
  for (const uint64_t n : {offset + 1, offset - 32, kMax64 - 31, uint64_t{1} << 63,
                           uint64_t{built.bytes.size()} / 32 * 32, kMax64 - 4095}) {
    refused("G58", built.with(q + "offset", n), {"offset of tensor \"", std::to_string(n)});
  }
}

TEST_F(HostileModel, G60ToG63Layout) {
  const BuiltFile built = TextModel().build();
  const auto offset_at = [&](const std::string& name) { return built.at.at("tensor " + name + " offset"); };
  const auto offset_of = [&](const std::string& name) { return built.bytes.substr(offset_at(name), 8); };
  const std::string k = "blk.0.attn_k.weight", v = "blk.0.attn_v.weight", last = "blk.1.ffn_down.weight";
  std::string swapped = in_place(built, offset_at(k), offset_of(v));
  swapped.replace(offset_at(v), 8, offset_of(k));
  accepted("G60 out of order", swapped);
  uint64_t last_offset = 0;
  std::memcpy(&last_offset, offset_of(last).data(), 8);
  std::string gap = in_place(built, offset_at(last), raw(last_offset + 4096));
  gap.insert(built.at.at("tensor " + last + " data"), 4096, 'g');
  accepted("G60 gap", gap);
  accepted("G62", built.bytes + "x");
  accepted("G62", built.bytes + std::string(1 << 20, 'x'), "bytes after the last tensor");
  ASSERT_EQ(built.bytes[built.at.at("data") - 1], '\0');
  accepted("G63", in_place(built, built.at.at("data") - 1, "x"));
  const std::string path = write(built.bytes);
  std::filesystem::resize_file(path, uint64_t{3} << 30);
  EXPECT_EQ(run(path).exit_code, 0) << "G70: a sparse file of 3 GiB";
}

TEST_F(HostileModel, G64AndG65MissingAndMisshapen) {
  refused("G64", TextModel().remove_tensor("token_embd.weight").build().bytes, {"token_embd.weight is missing"});
  refused("G64", TextModel().remove_tensor("blk.1.attn_q.weight").build().bytes, {"blk.1.attn_q.weight is missing"});
  accepted("G64 tied", TextModel().remove_tensor("output.weight").build().bytes);
  const std::string down = "blk.0.ffn_down.weight";
  refused("G65", TextModel().tensor(down, "Q4_0", {64, 256}).build().bytes, {down + " is [64, 256]", "[256, 64]"});
  refused("G65", TextModel().tensor(down, "Q4_0", {256, 63}).build().bytes, {down + " is [256, 63]", "[256, 64]"});
  refused("G65", TextModel().tensor(down, "Q4_0", {256, 32, 2}).build().bytes,
          {down + " is [256, 32, 2]", "[256, 64]"});
}

TEST_F(HostileModel, G67AnyBlockBytes) {
  for (const gguf::Type& type : gguf::types()) {
    for (const int fill : {0xFF, 0x7F}) {
      const std::string bytes = TextModel()
                                    .tensor("blk.0.ffn_down.weight", type.name, {256, 64}, fill)
                                    .tensor("output.weight", "F32", {64, 288}, fill)
                                    .build()
                                    .bytes;
      if (type.kind == gguf::TypeKind::kData) refused("G67", bytes, {"cannot be a weight"});
      else accepted(std::string("G67 ") + type.name, bytes);
    }
  }
}

// ---- what stands behind the path, and when ----

TEST_F(HostileModel, G69AFileThatChangesWhileItRuns) {
  const std::string bytes = TextModel().u32("llama.context_length", 1 << 20).build().bytes;
  // Embeddings are read from the file as tokens come; the text goes on until the file is gone from under it.
  const std::string path = folder_.path("model.gguf");
  const Strings run = {LAMINA_BINARY, "run", path, "-p", "ab", "-c", "100000", "-q", "-t", "2"};
  std::string ids;
  for (int i = 0; i < 2000; ++i) ids += std::to_string(i % 288) + " ";
  const std::string tokens = folder_.write("tokens", ids);
  const Strings logits = {LAMINA_BINARY, "logits", path, "--tokens", tokens, "--out", "/dev/stdout", "-b", "1", "-q"};
  const std::string other = TextModel().u32("llama.context_length", 1 << 19).build().bytes;
  const auto empty = [&] { std::filesystem::resize_file(path, 0); };
  const auto overwrite = [&] { write(other); };  // what "cp other model.gguf" does: size and place stay
  for (const std::function<void()>& change : {std::function<void()>(empty), std::function<void()>(overwrite)}) {
    for (const Strings& words : {run, logits}) {
      write(bytes);
      const ProcessResult result = run_process(words, {.after_output = change});
      EXPECT_EQ(result.exit_code, 3) << result.err;
      EXPECT_TRUE(is_one_line(result.err)) << result.err;
      EXPECT_NE(result.err.find("model.gguf: the file was truncated, changed"), std::string::npos) << result.err;
    }
  }
}

TEST_F(HostileModel, G69AFileThatIsRemovedOrRenamedOverHarmsNothing) {
  const std::string bytes = TextModel().u32("llama.context_length", 4096).build().bytes, path = write(bytes);
  const auto said = [&](const std::function<void()>& change) {
    write(bytes);
    const ProcessResult result =
        run_process({LAMINA_BINARY, "run", path, "-p", "ab", "-n", "3000", "-q", "-t", "2"}, {.after_output = change});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };
  const std::string want = said({});
  EXPECT_EQ(said([&] { std::filesystem::remove(path); }), want);
  EXPECT_EQ(said([&] { std::filesystem::rename(folder_.write("other", "no model"), path); }), want);
}

TEST_F(HostileModel, G70PathsThatAreNoFile) {
  ASSERT_EQ(mkfifo(folder_.path("fifo").c_str(), 0600), 0);
  ASSERT_EQ(symlink("loop", folder_.path("loop").c_str()), 0);
  for (const std::string& path : {folder_.path(""), folder_.path("fifo"), folder_.path("loop"), folder_.path("none"),
                                  std::string("/dev/zero"), std::string("/dev/random"), std::string("/dev/null")}) {
    refused_at(path, "G70 " + path, {});
  }
}

TEST_F(HostileModel, G72OtherKindsOfFile) {
  for (const std::string kind : {"adapter", "imatrix", "mmproj", "vocab"}) {
    refused("G72", TextModel().text("general.type", kind).build().bytes, {"general.type is \"" + kind + "\""});
  }
  accepted("G72", TextModel().text("general.type", "model").build().bytes);
}

}  // namespace
}  // namespace lamina

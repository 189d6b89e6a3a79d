// `lamina inspect` as users run it.
// In: files made by FileBuilder, and the built binary. Out: its text, its JSON and its exit codes.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/gguf/file_builder.h"
#include "tests/tools/process.h"

namespace lamina::gguf {
namespace {

ProcessResult inspect(const std::string& arguments) { return run_shell("inspect " + arguments); }

FileBuilder model() {
  FileBuilder builder;
  builder.text("general.architecture", "nosuch").text("general.name", "a\x1b[2J\xFF");
  std::string numbers;
  for (int i = 0; i < 20; ++i) numbers += raw(i);
  builder.key("list", ValueType::kArray, raw_array(ValueType::kInt32, 20, numbers));
  builder.key("flags", ValueType::kArray, raw_array(ValueType::kBool, 2, std::string("\x01\x00", 2)));
  builder.key("nested", ValueType::kArray,
              raw_array(ValueType::kArray, 1, raw_array(ValueType::kFloat32, 1, raw(1e-5f))));
  builder.tensor("blk.0.w", {32, 2}, 0, std::string(256, 'x')).tensor("blk.0.q", {32}, 8, std::string(34, 'x'));
  return builder;
}

TEST(Inspect, ShowsAnyArchitecture) {
  const TempFolder folder;
  const ProcessResult result = inspect("--tensors " + folder.write("m.gguf", model().build().bytes));
  EXPECT_EQ(result.exit_code, 0);
  for (const char* text : {"GGUF version 3", "nosuch", "a\\x1b[2J\\xff", "0, 1, 2, 3, 4, 5, ... 20 items",
                           "[true, false]", "[[1e-05]]", "96 (96)", "blk.0.w", "32 x 2", "Q8_0"}) {
    EXPECT_NE(result.out.find(text), std::string::npos) << text << "\n in:\n" << result.out;
  }
}

TEST(Inspect, PrintsOneJsonObject) {
  const TempFolder folder;
  const ProcessResult result = inspect("--json " + folder.write("m.gguf", model().build().bytes));
  EXPECT_EQ(result.exit_code, 0);
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["version"], 3);
  EXPECT_EQ(json["n_parameters"], 96);
  EXPECT_EQ(json["metadata"]["general.name"], "a\x1b[2J\xEF\xBF\xBD");
  EXPECT_EQ(json["metadata"]["list"].size(), 20u);
  EXPECT_EQ(json["metadata"]["flags"], nlohmann::json::parse("[true, false]"));
  EXPECT_EQ(json["metadata"]["nested"][0][0], double{1e-5f});
  EXPECT_EQ(json["types"]["Q8_0"]["bytes"], 34);
  EXPECT_EQ(json["tensors"][0]["name"], "blk.0.w");
  EXPECT_EQ(json["tensors"][0]["shape"], nlohmann::json::parse("[32, 2]"));
}

TEST(Inspect, ShowsFilesWithoutTensors) {
  const TempFolder folder;
  const std::string path = folder.write("m.gguf", FileBuilder().build().bytes);
  EXPECT_EQ(inspect(path).exit_code, 0);
  const auto json = nlohmann::json::parse(inspect("--json " + path).out);
  EXPECT_EQ(json["metadata"], nlohmann::json::object());
  EXPECT_EQ(json["tensors"], nlohmann::json::array());
}

TEST(Inspect, RefusesInOneLineWithExitCode3) {
  const TempFolder folder;
  const ProcessResult result = inspect(folder.write("m.gguf", "<html>"));
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(std::ranges::count(result.out, '\n'), 1);
  EXPECT_NE(result.out.find("HTML"), std::string::npos);
  EXPECT_EQ(inspect("").exit_code, 2);
}

}  // namespace
}  // namespace lamina::gguf

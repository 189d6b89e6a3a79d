// `lamina ops` by running the binary, and the roofs that it compares with. In: the small model of the engine's tests.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/gguf/file_builder.h"
#include "tests/tools/process.h"

namespace lamina {
namespace {

const std::string kModel = LAMINA_SOURCE_DIR "/tests/data/engine/chains.gguf";

ProcessResult lamina(std::vector<std::string> words) {
  words.insert(words.begin(), LAMINA_BINARY);
  return run_process(words);
}

TEST(Ops, MeasuresEachOpOfAModel) {
  const gguf::TempFolder folder;
  const std::string plot = folder.path("roofs.svg");
  const ProcessResult result = lamina({"ops", kModel, "-p", "1", "-o", "json", "--plot", plot, "-t", "1"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const auto rows = nlohmann::json::parse(result.out);
  ASSERT_GE(rows.size(), 5u);
  bool has_linear = false;
  for (const auto& row : rows) {
    EXPECT_GT(row.at("ns"), 0) << row;
    EXPECT_GT(row.at("bytes"), 0) << row;
    EXPECT_GT(row.at("roof_percent"), 0) << row;
    EXPECT_DOUBLE_EQ(row.at("gflop_s").get<double>() * row.at("ns").get<double>(), row.at("flop").get<double>()) << row;
    has_linear |= row.at("op").get<std::string>().starts_with("linear");
  }
  EXPECT_TRUE(has_linear);
  std::ifstream file(plot);
  const std::string svg((std::istreambuf_iterator<char>(file)), {});
  EXPECT_TRUE(svg.starts_with("<svg ")) << svg.substr(0, 100);
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  for (const std::string part : {"int8", "float32", "memory", "attend"}) EXPECT_NE(svg.find(part), std::string::npos);
}

TEST(Ops, ComparesFusedWithSeparateNorms) {
  const ProcessResult result = lamina({"ops", kModel, "--fusion", "-p", "1", "-d", "3"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("linear norm"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("whole step of the model"), std::string::npos) << result.out;
}

TEST(Ops, RefusesWhatIsNoTypeOfWeights) {
  for (const std::string types : {"Q4_0,fast", "I8", ","}) {
    const ProcessResult result = lamina({"ops", "--types", types});
    EXPECT_EQ(result.exit_code, 2) << types;
    EXPECT_NE(result.err.find("--types"), std::string::npos) << result.err;
  }
  EXPECT_EQ(lamina({"ops", kModel, "--types", "Q4_0"}).exit_code, 2);
  EXPECT_EQ(lamina({"ops", "/no/such/file.gguf"}).exit_code, 3);
}

}  // namespace
}  // namespace lamina

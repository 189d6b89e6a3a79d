// `lamina ops` by running the binary, and the roofs that it compares with. In: the small model of the engine's tests.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_device.h"
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

TEST(Ops, LadderHasEachRungOnceForEachTypeAndRows) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "with the thread sanitizer its program is killed, likely at the minute of CPU time that tests allow";
#endif
  const ProcessResult result = lamina({"ops", "--ladder", "--types", "Q4_0,F16", "-p", "2", "-t", "1", "-o", "json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto rows = nlohmann::json::parse(result.out);
  std::vector<std::string> steps, expected;
  for (const std::string type : {"Q4_0", "F16"}) {
    expected.push_back(type + " reference 1");
    for (const std::string& isa : cpu_isas())
      for (const char* n_rows : {" 1", " 2"}) expected.push_back(fmt::format("{} {}{}", type, isa, n_rows));
  }
  std::map<std::string, double> ns;
  for (const auto& row : rows) {
    const std::string type = row.at("type"), rung = row.at("rung");
    const uint32_t n_rows = row.at("rows");
    ns[steps.emplace_back(fmt::format("{} {} {}", type, rung, n_rows))] = row.at("ns");
    EXPECT_EQ(row.at("flop"), 2.0 * 2048 * 4096 * n_rows);
    // 18 bytes for 32 codes, or two a weight; float32 in and out.
    const double bytes_of_32 = type == "F16" ? 64 : 18;
    EXPECT_EQ(row.at("bytes"), 2048.0 * 4096 / 32 * bytes_of_32 + n_rows * (2048 + 4096) * 4) << row;
    EXPECT_EQ(row.at("read_percent").is_null(), rung == "reference");
    EXPECT_EQ(row.at("peak_percent").is_null(), rung == "reference");
    // Nothing stands before the first rung; the second has one row of it, and no other.
    EXPECT_EQ(row.at("gain").is_null(), rung == "reference" || (rung == "scalar" && n_rows == 2)) << row;
  }
  EXPECT_EQ(steps, expected);
  for (const auto& row : rows) {
    const std::string type = row.at("type"), rung = row.at("rung");
    const double own = row.at("ns");
    EXPECT_DOUBLE_EQ(row.at("cost_of_rows"), own / ns.at(type + " " + rung + " 1"));
    if (rung == "scalar" && row.at("rows") == 1) {
      EXPECT_DOUBLE_EQ(row.at("gain"), ns.at(type + " reference 1") / own);
    }
  }
}

TEST(Ops, LadderGoesUpToTheRowsOfThePrompt) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "with the thread sanitizer its program is killed, likely at the minute of CPU time that tests allow";
#endif
  const ProcessResult result = lamina({"ops", "--ladder", "--types", "Q8_0", "-p", "1", "-t", "1"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  size_t lines = 0;
  std::istringstream text(result.out);
  for (std::string line; std::getline(text, line);) lines += line.starts_with("| Q8_0 ");
  EXPECT_EQ(lines, 1 + cpu_isas().size());  // one row each
  for (const std::string& isa : cpu_isas()) EXPECT_NE(result.out.find("peaks of " + isa + ":"), std::string::npos);
}

TEST(Ops, LadderRefusesWhatItDoesNotMeasure) {
  EXPECT_EQ(lamina({"ops", kModel, "--ladder"}).exit_code, 2);
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"-d", "4"}, {"--fusion"}, {"--device", "cpu"}, {"--plot", "x.svg"}}) {
    std::vector<std::string> words = {"ops", "--ladder"};
    words.insert(words.end(), more.begin(), more.end());
    EXPECT_EQ(lamina(words).exit_code, 2) << more[0];
  }
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

// `lamina bench` over many configurations: lists and ranges, its formats, failures in between, comparison and picture.
// Nothing here depends on how fast the machine is.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/gguf/file_builder.h"
#include "tests/tools/process.h"

namespace lamina {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;
using nlohmann::json;

const std::string kModel = LAMINA_SOURCE_DIR "/tests/data/engine/chains.gguf";
const std::string kOther = LAMINA_SOURCE_DIR "/tests/data/archs/llama-dense.gguf";

ProcessResult bench(Words words, const ProcessOptions& options = {}) {
  words.insert(words.begin(), {LAMINA_BINARY, "bench"});
  return run_process(words, options);
}

std::vector<json> rows_of(const ProcessResult& result) {
  std::vector<json> rows;
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) rows.push_back(json::parse(line));
  return rows;
}

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t i = text.find(part); i != std::string::npos; i = text.find(part, i + 1)) ++n;
  return n;
}

TEST(BenchLists, RunAllCombinations) {
  const auto rows = rows_of(bench({kModel, kOther, "-p", "4,8-16+4", "-n", "2", "-n", "3", "-d", "0,1", "-b", "2-8*4",
                                   "-t", "1-2", "-r", "1", "-o", "jsonl"}));
  ASSERT_EQ(rows.size(), 2u * 6 * 2 * 2 * 2);
  std::vector<json> tests;  // of the first configuration
  for (size_t i = 0; i < 6; ++i) tests.push_back({rows[i].at("n_prompt"), rows[i].at("n_gen")});
  EXPECT_EQ(tests, (std::vector<json>{{4, 0}, {8, 0}, {12, 0}, {16, 0}, {0, 2}, {0, 3}}));
  EXPECT_EQ(rows[6].at("n_depth"), 1);
  EXPECT_EQ(rows[12].at("n_threads"), 2);
  EXPECT_EQ(rows[24].at("n_batch"), 8);
  EXPECT_EQ(rows[47].at("model_filename"), kModel);
  EXPECT_EQ(rows[48].at("model_filename"), kOther);
}

TEST(BenchLists, AreRefusedWhenWrong) {
  for (const std::string list : {"", "a", "1,", "-4", "5-4", "1-9+0", "1-9*1", "0-9*2", "1-9x2", "1-9+", "99999999999",
                                 "99999999999999999999999", "1-5000"}) {
    const ProcessResult result = bench({kModel, "-p=" + list});
    EXPECT_EQ(result.exit_code, 2) << list << result.err;
    EXPECT_EQ(count(result.err, "\n"), 1u) << result.err;
    EXPECT_EQ(result.out, "");
  }
  EXPECT_EQ(bench({kModel, "-b", "0"}).exit_code, 2);
  EXPECT_EQ(bench({kModel, "-t", "0"}).exit_code, 2);
}

TEST(BenchFormats, HaveMedianSpreadAndTimeToTheFirstToken) {
  const auto rows = rows_of(bench({kModel, "-p", "8", "-n", "3", "-r", "5", "-o", "jsonl"}));
  ASSERT_EQ(rows.size(), 2u);
  for (const json& row : rows) {
    auto rates = row.at("samples_ts").get<std::vector<double>>();
    ASSERT_EQ(rates.size(), 5u);
    std::ranges::sort(rates);
    EXPECT_EQ(row.at("median_ts"), rates[2]);
    EXPECT_EQ(row.at("min_ts"), rates[0]);
    EXPECT_EQ(row.at("max_ts"), rates[4]);
  }
  EXPECT_NEAR(rows[0].at("first_token_ms").get<double>(), 8e3 / rows[0].at("median_ts").get<double>(), 1e-6);
  EXPECT_TRUE(rows[1].at("first_token_ms").is_null());
}

TEST(BenchFormats, CsvHasLlamaBenchsOrderAndQuoting) {
  gguf::TempFolder folder;
  const std::string quoted = folder.path("a\"b,c.gguf");
  fs::copy_file(kModel, quoted);
  const ProcessResult result = bench({quoted, "-p", "4", "-n", "0", "-r", "1", "-t", "1", "-o", "csv"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::istringstream lines(result.out);
  std::string titles, values;
  std::getline(lines, titles);
  std::getline(lines, values);
  // The order of research/cli.md 2.3, without the fields that mean nothing here.
  EXPECT_TRUE(
      titles.starts_with("build_commit,cpu_info,backends,model_filename,model_type,model_size,model_n_params,n_batch,"
                         "n_threads,type_k,type_v,n_prompt,n_gen,n_depth,test_time,avg_ns,stddev_ns,avg_ts,stddev_ts,"))
      << titles;
  EXPECT_EQ(titles.find("samples"), std::string::npos);
  EXPECT_NE(values.find("a\"\"b,c.gguf\",\""), std::string::npos) << values;
  EXPECT_NE(values.find("\"512\",\"1\",\"f16\",\"f16\",\"4\",\"0\",\"0\",\""), std::string::npos) << values;
  EXPECT_EQ(count(values, "\",\""), static_cast<size_t>(std::ranges::count(titles, ',')));
}

TEST(BenchFormats, TableShowsTheBatchWhereItIsNotTheUsual) {
  EXPECT_EQ(bench({kModel, "-p", "4", "-n", "0", "-r", "1"}).out.find("n_batch"), std::string::npos);
  EXPECT_NE(bench({kModel, "-p", "4", "-n", "0", "-r", "1", "-b", "2"}).out.find("| n_batch |"), std::string::npos);
}

TEST(BenchSweep, GoesOnBehindAFailure) {
  const ProcessResult result =
      bench({kModel, "no-such.gguf", kOther, "-p", "4", "-n", "0", "-r", "1", "-t", "1", "-d", "3", "-o", "json"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(json::parse(result.out).size(), 2u);
  EXPECT_NE(result.err.find("no-such.gguf, 1 threads, batch 512, depth 3: "), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("1 failures in 3 configurations"), std::string::npos) << result.err;
}

TEST(BenchSweep, OfOneConfigurationFailsAsItDoes) {
  const ProcessResult result = bench({"no-such.gguf", "-o", "json"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(json::parse(result.out).size(), 0u);
  EXPECT_EQ(bench({"no-such.gguf"}).out, "");
}

TEST(BenchSweep, ClosesItsJsonWhenInterrupted) {
  const ProcessResult result = bench({kModel, "-p", "500", "-n", "0", "-r", "1000", "-d", "1-500", "-o", "json"},
                                     {.signal_after_output = SIGINT});
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_TRUE(json::parse(result.out).is_array()) << result.out;
}

TEST(BenchSweep, EndsWhenNobodyReads) {
  const ProcessResult result = bench({kModel, kOther, "-p", "4", "-n", "0"}, {.stdout_path = "/dev/full"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(count(result.err, "\n"), 1u) << result.err;
}

TEST(BenchCompare, JudgesByRangesAndMedian) {
  gguf::TempFolder folder;
  json old = {
      {"model_filename", "/elsewhere/chains.gguf"}, {"n_batch", 512}, {"n_threads", 1}, {"n_gen", 0}, {"n_depth", 0}};
  std::string lines;
  const auto add = [&](int n_prompt, const std::vector<double>& rates) {
    old["n_prompt"] = n_prompt;
    old["samples_ts"] = rates;
    lines += old.dump() + "\n";
  };
  add(4, {1e-3, 2e-3, 3e-3, 4e-3});  // no machine is as slow,
  add(5, {1e12, 2e12, 3e12, 4e12});  // or as fast
  add(6, {1e-3, 2e-3, 3e-3, 1e12});  // or outside this range
  add(7, {1e-3, 2e-3, 3e-3});        // too few
  const std::string path = folder.write("old.jsonl", lines);
  const Words words{kModel, "-p", "4-8", "-n", "0", "-r", "4", "-t", "1", "--compare", path};
  Words as_json = words;
  as_json.insert(as_json.end(), {"-o", "jsonl"});
  const ProcessResult result = bench(as_json);
  const auto rows = rows_of(result);
  ASSERT_EQ(rows.size(), 5u) << result.err;
  const Words want{"faster", "slower", "same", "unsure", "new"};
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(rows[i].at("verdict"), want[i]) << rows[i];
  EXPECT_GT(rows[0].at("change_percent"), 100);
  const std::string table = bench(words).out;
  EXPECT_NE(table.find("% slower |"), std::string::npos) << table;
  EXPECT_NE(table.find("no repetition of one run lies within the other's range"), std::string::npos) << table;
}

TEST(BenchCompare, ReadsWhatJsonlWrites) {
  gguf::TempFolder folder;
  const Words words{kModel, "-p", "4", "-n", "2", "-r", "1", "-o", "jsonl"};
  Words again = words;
  again.insert(again.end(), {"--compare", folder.write("old.jsonl", bench(words).out)});
  for (const json& row : rows_of(bench(again))) EXPECT_EQ(row.at("verdict"), "unsure");
}

TEST(BenchCompare, RefusesWhatIsNoOlderRun) {
  gguf::TempFolder folder;
  for (const std::string text : {"not json\n", "[]\n", "{\"model_filename\": 1}\n"}) {
    const ProcessResult result = bench({kModel, "--compare", folder.write("old.jsonl", "\n" + text)});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.err.find("line 2"), std::string::npos) << result.err;
    EXPECT_EQ(count(result.err, "\n"), 1u) << result.err;
  }
}

TEST(BenchPlot, HasABarForEachRow) {
  gguf::TempFolder folder;
  const std::string path = folder.path("p.svg");
  const ProcessResult result = bench({kModel, "-p", "4,8", "-n", "2", "-r", "2", "-t", "1", "--plot", path});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::ifstream file(path);
  const std::string svg{std::istreambuf_iterator<char>(file), {}};
  EXPECT_TRUE(svg.starts_with("<svg xmlns=")) << svg.substr(0, 80);
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_EQ(count(svg, "class=\"bar\""), 3u);
  for (const std::string label : {"pp4, 1 threads, batch 512<", "pp8,", "tg2,", "Prompt processing", "Generation"}) {
    EXPECT_NE(svg.find(label), std::string::npos) << label;
  }
  EXPECT_EQ(bench({kModel, "-p", "4", "-n", "0", "-r", "1", "--plot", "/no/such/folder/p.svg"}).exit_code, 1);
}

}  // namespace
}  // namespace lamina

// The binary as its users see it: exit codes, what stands on which stream, and what is left behind.
// The model is tests/make_text_model.py's: "a" is continued with "bcdefghij" and an end, "x" with "yzxyzx..." for ever.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/tools/process.h"

namespace lamina {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

const std::string kModel = LAMINA_SOURCE_DIR "/tests/data/engine/chains.gguf";
constexpr size_t kVocab = 286;

ProcessResult lamina(Words words, const ProcessOptions& options = {}) {
  words.insert(words.begin(), LAMINA_BINARY);
  return run_process(words, options);
}

/// One line, that begins as all messages do.
bool is_one_message(const std::string& text) {
  return text.starts_with("lamina: ") && std::count(text.begin(), text.end(), '\n') == 1 && text.back() == '\n';
}

/// A folder of its own for a test, gone afterwards.
class Folder {
 public:
  Folder() {
    char name[] = "/tmp/lamina-cli-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~Folder() { fs::remove_all(path_); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
    return file(name);
  }
  Words names() const {
    Words names;
    for (const auto& entry : fs::directory_iterator(path_)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  fs::path path_;
};

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Cli, ShowsHelpOnStdout) {
  const struct {
    Words words;
    int most_lines;
  } cases[] = {{{}, 40}, {{"--help"}, 40}, {{"run", "--help"}, 60}};
  for (const auto& row : cases) {
    const ProcessResult result = lamina(row.words);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_NE(result.out.find("Usage: lamina"), std::string::npos);
    EXPECT_LE(std::count(result.out.begin(), result.out.end(), '\n'), row.most_lines);
    EXPECT_EQ(result.err, "");
  }
  EXPECT_TRUE(lamina({"--version"}).out.starts_with("lamina "));
}

TEST(Cli, NamesTheMistakeInOneLine) {
  Folder folder;
  const std::string text = folder.write("t.txt", "1 2");
  const struct {
    Words words;
    int exit_code;
    std::string part;
  } cases[] = {
      {{"fly"}, 2, "'fly'"},
      {{"--fly"}, 2, "'--fly'"},
      {{"run"}, 2, "MODEL"},
      {{"run", kModel}, 2, "-p"},
      {{"run", kModel, "-p", "a", "-f", text}, 2, "-p"},
      {{"run", kModel, "-p", "a", "--top-z", "40"}, 2, "'--top-z'"},
      {{"run", kModel, "-p", "a", "--temp", "nan"}, 2, "--temp: 'nan'"},
      {{"run", kModel, "-p", "a", "--temp", "-1"}, 2, "--temp: '-1'"},
      {{"run", kModel, "-p", "a", "--top-k", "1.5"}, 2, "--top-k = 1.5"},
      {{"run", kModel, "-p", "a", "--top-p", "1.1"}, 2, "--top-p: '1.1'"},
      {{"run", kModel, "-p", "a", "--min-p", "x"}, 2, "--min-p: 'x'"},
      {{"run", kModel, "-p", "a", "--repeat-penalty", "0"}, 2, "--repeat-penalty: '0'"},
      {{"run", kModel, "-p", "a", "--repeat-last-n", "-2"}, 2, "--repeat-last-n: '-2'"},
      {{"run", kModel, "-p", "a", "--presence-penalty", "1e9"}, 2, "--presence-penalty: '1e9'"},
      {{"run", kModel, "-p", "a", "--frequency-penalty", "inf"}, 2, "--frequency-penalty: 'inf'"},
      {{"run", kModel, "-p", "a", "--seed", "99999999999999999999"}, 2, "--seed: '99999999999999999999'"},
      {{"run", kModel, "-p", "a", "--stop", ""}, 2, "--stop"},
      {{"run", kModel, "-p", "a", "--stop", "a\xFF"}, 2, "--stop"},
      {{"run", kModel, "-p", "a", "--logprobs", "0"}, 2, "--logprobs"},
      {{"run", kModel, "-p", "a", "-n", "many"}, 2, "many"},
      {{"run", kModel, "-p", "a", "-t", "0"}, 2, "--threads"},
      {{"run", kModel, "-p", "a", "--device", "abacus"}, 2, "'abacus'"},
      {{"run", kModel, "-p", "a", "--device", "cuda"}, 4, "'cuda'"},
      {{"run", kModel, "-f", folder.file("none")}, 2, "No such file"},
      {{"run", kModel, "-p", "aaaaaaaaa", "-c", "5"}, 2, "10 tokens"},
      {{"run", "no-such.gguf", "-p", "a"}, 3, "no-such.gguf"},
      {{"run", "/tmp", "-p", "a"}, 3, "directory"},
      {{"run", text, "-p", "a"}, 3, "t.txt"},
      {{"bench", kModel, "-p", "0", "-n", "0"}, 2, "-p 0"},
      {{"bench", kModel, "-o", "xml"}, 2, "xml"},
      {{"logits", kModel, "--tokens", text}, 2, "--out"},
      {{"logits", kModel, "--tokens", folder.file("none"), "--out", folder.file("o")}, 3, "No such file"},
      {{"logits", kModel, "--tokens", text, "--out", folder.file("no/such/folder")}, 1, "No such file"},
  };
  for (const auto& row : cases) {
    const ProcessResult result = lamina(row.words);
    EXPECT_EQ(result.exit_code, row.exit_code) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_TRUE(is_one_message(result.err)) << result.err;
    EXPECT_NE(result.err.find(row.part), std::string::npos) << result.err;
  }
}

TEST(Cli, FindsFetchedModelsByName) {
  Folder cache;
  const ProcessOptions options{.environment = {"XDG_CACHE_HOME=" + cache.file("")}};
  const ProcessResult missing = lamina({"run", "smollm2", "-p", "a"}, options);
  EXPECT_EQ(missing.exit_code, 3);
  EXPECT_NE(missing.err.find("lamina pull smollm2"), std::string::npos) << missing.err;
  fs::create_directory(cache.file("lamina"));
  fs::copy_file(kModel, cache.file("lamina/SmolLM2-135M-Instruct.Q4_1.gguf"));
  EXPECT_EQ(lamina({"run", "smollm2", "-p", "a"}, options).out, "bcdefghij\n");
}

TEST(Run, PutsOnlyTextOnStdout) {
  const ProcessResult quiet = lamina({"run", kModel, "-p", "a"});
  EXPECT_EQ(quiet.exit_code, 0);
  EXPECT_EQ(quiet.out, "bcdefghij\n");
  EXPECT_EQ(quiet.err, "");
  const ProcessResult verbose = lamina({"run", kModel, "-p", "a", "-v"});
  EXPECT_EQ(verbose.out, "bcdefghij\n");
  EXPECT_NE(verbose.err.find("tokens/s"), std::string::npos);
}

TEST(Run, TakesThePromptFromEachSource) {
  Folder folder;
  const std::string file = folder.write("prompt", "a");
  EXPECT_EQ(lamina({"run", kModel, "-p", "-"}, {.input = "a"}).out, "bcdefghij\n");
  EXPECT_EQ(lamina({"run", kModel, "-f", file}).out, "bcdefghij\n");
  EXPECT_EQ(lamina({"run", kModel, "-f", "-"}, {.input = "a"}).out, "bcdefghij\n");
  EXPECT_EQ(lamina({"run", kModel, "-p", ""}).out, "abcdefghij\n");  // from the token that begins a text
  EXPECT_EQ(lamina({"run", kModel, "-e", "-p", "\\n\\\\a"}).out, "bcdefghij\n");
  EXPECT_EQ(lamina({"run", kModel, "-p", "x<s>", "-n", "2", "--parse-special"}).out, "ab\n");
}

TEST(Run, EndsWhereItIsTold) {
  EXPECT_EQ(lamina({"run", kModel, "-p", "a", "-n", "3"}).out, "bcd\n");
  EXPECT_EQ(lamina({"run", kModel, "-p", "a", "-n", "0"}).out, "");
  EXPECT_EQ(lamina({"run", kModel, "-p", "k", "-n", "4", "--temp", "0"}).out, "€k\n");
  EXPECT_EQ(lamina({"run", kModel, "-p", "k", "-n", "2"}).out, "\xEF\xBF\xBD\n");
  const ProcessResult full = lamina({"run", kModel, "-p", "x", "-c", "8"});
  EXPECT_EQ(full.exit_code, 0);
  EXPECT_EQ(full.out, "yzxyzxy\n");
  EXPECT_TRUE(is_one_message(full.err)) << full.err;
  EXPECT_NE(full.err.find("context"), std::string::npos);
}

TEST(Run, KeepsKeysAndValuesInEitherType) {
  const std::vector<std::string> say = {"run", kModel, "-p", "abc", "-n", "8"};
  const auto with = [&](const char* type) {
    std::vector<std::string> all = say;
    all.insert(all.end(), {"--kv-type", type});
    return lamina(all);
  };
  EXPECT_EQ(with("f16").out, lamina(say).out);
  EXPECT_EQ(with("q8_0").exit_code, 0);
  EXPECT_EQ(with("q4_0").exit_code, 2);
  EXPECT_NE(with("q4_0").err.find("q4_0"), std::string::npos);
  EXPECT_EQ(lamina({"verify", kModel, "--kv-type", "q8_0"}).exit_code, 0);
}

TEST(Run, EndsBeforeAStopText) {
  EXPECT_EQ(lamina({"run", kModel, "--stop", "efg", "-p", "a", "--stop", "ij"}).out, "bcd\n");
}

TEST(Run, SamplesWhenAskedTheSameOnEveryInstructionSet) {
  const Words flags = {"--temp", "30", "--top-k", "0", "--top-p", "1", "--min-p", "0", "-n", "30"};
  const auto said = [&](const Words& more, const Words& environment = {}) {
    Words words = {"run", kModel, "-p", "a"};
    words.insert(words.end(), more.begin(), more.end());
    words.insert(words.end(), flags.begin(), flags.end());
    return lamina(words, {.environment = environment}).out;
  };
  const std::string want = said({"-s", "7"});
  EXPECT_EQ(said({"-s", "7"}), want);
  EXPECT_EQ(said({"-s", "7"}, {"LAMINA_ISA=scalar"}), want);
  EXPECT_EQ(said({"-s", "7", "-t", "1", "-b", "1"}), want);
  EXPECT_NE(said({"-s", "8"}), want);
  EXPECT_NE(said({}), said({}));  // a random seed each time
}

TEST(Run, StaysGreedyWithPenaltiesOrTemperatureZero) {
  EXPECT_EQ(lamina({"run", kModel, "-p", "a", "--temp", "0", "--top-k", "5", "-s", "1"}).out, "bcdefghij\n");
  // The chain x y z x ... is left when its tokens have become less likely than others.
  const Words greedy = {"run", kModel, "-p", "x", "-n", "12"};
  Words penalised = greedy;
  penalised.insert(penalised.end(), {"--frequency-penalty", "40"});
  EXPECT_EQ(lamina(greedy).out, "yzxyzxyzxyzx\n");
  const std::string out = lamina(penalised).out;
  EXPECT_EQ(lamina(penalised).out, out);
  EXPECT_NE(out, "yzxyzxyzxyzx\n");
}

TEST(Run, GivesLogProbabilitiesOnStderr) {
  const ProcessResult result = lamina({"run", kModel, "-p", "a", "-n", "3", "--logprobs", "1000"});
  EXPECT_EQ(result.out, "bcd\n");
  std::istringstream lines(result.err);
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line);
    text += json["token"];
    EXPECT_EQ(json["bytes"].size(), 1u);
    EXPECT_EQ(json["top_logprobs"].size(), kVocab);
    EXPECT_EQ(json["top_logprobs"][0]["id"], json["id"]);
    double sum = 0;
    for (const auto& entry : json["top_logprobs"]) sum += std::exp(entry["logprob"].get<double>());
    EXPECT_NEAR(sum, 1, 1e-9);
  }
  EXPECT_EQ(text, "bcd");
}

TEST(Run, WarnsOfAContextBeyondTheModels) {
  const ProcessResult result = lamina({"run", kModel, "-p", "a", "-c", "1000"});
  EXPECT_EQ(result.out, "bcdefghij\n");
  EXPECT_NE(result.err.find("1000"), std::string::npos) << result.err;
  EXPECT_EQ(lamina({"run", kModel, "-p", "a", "-c", "1000", "-q"}).err, "");
}

TEST(Run, SaysTheSameForAnyThreadsAndBatch) {
  const std::string want = lamina({"run", kModel, "-p", "xaxbxcxdx", "-n", "40"}).out;
  EXPECT_EQ(lamina({"run", kModel, "-p", "xaxbxcxdx", "-n", "40", "-b", "1", "-t", "1"}).out, want);
  EXPECT_EQ(lamina({"run", kModel, "-p", "xaxbxcxdx", "-n", "40", "-b", "3", "-t", "3"}).out, want);
}

TEST(Run, StopsForASignalAndKeepsItsText) {
  const struct { int signal, exit_code; } cases[] = {{SIGINT, 130}, {SIGTERM, 143}};
  for (const auto& row : cases) {
    const ProcessResult result =
        lamina({"run", kModel, "-p", "x", "-q", "-c", "200000"}, {.signal_after_output = row.signal});
    EXPECT_EQ(result.exit_code, row.exit_code);
    EXPECT_TRUE(result.out.starts_with("yzx") || std::string("yzx\n").starts_with(result.out) || result.out == "yz\n" ||
                result.out == "y\n")
        << result.out;
    EXPECT_EQ(result.out.back(), '\n');
    EXPECT_EQ(result.err, "");
  }
}

TEST(Run, ReportsAnOutputThatCannotBeWritten) {
  for (const Words& words : {Words{"run", kModel, "-p", "a"}, Words{}, Words{"--version"}, Words{"devices"},
                             Words{"tokenize", kModel, "a"}, Words{"inspect", kModel}, Words{"verify", kModel},
                             Words{"inspect", kModel, "--json"}, Words{"pull", "--list"}}) {
    const ProcessResult result = lamina(words, {.stdout_path = "/dev/full"});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_TRUE(is_one_message(result.err)) << result.err;
    EXPECT_NE(result.err.find("standard output: No space left"), std::string::npos) << result.err;
  }
  const ProcessResult closed = lamina({"run", kModel, "-p", "x", "-q", "-c", "200000"}, {.close_stdout = true});
  EXPECT_EQ(closed.exit_code, 1);
  EXPECT_TRUE(is_one_message(closed.err)) << closed.err;
}

TEST(Cli, ClosedStreamsAreErrorsAndHitNoFile) {
  Folder folder;
  const ProcessResult closed = lamina({"run", kModel, "-p", "a"}, {.closed_stream = 1});
  EXPECT_EQ(closed.exit_code, 1);
  EXPECT_TRUE(is_one_message(closed.err)) << closed.err;
  EXPECT_NE(closed.err.find("standard output"), std::string::npos) << closed.err;
  const ProcessResult no_input = lamina({"run", kModel, "-p", "-"}, {.closed_stream = 0});
  EXPECT_EQ(no_input.exit_code, 2);
  EXPECT_NE(no_input.err.find("standard input"), std::string::npos) << no_input.err;
  // What would have been said on standard error must not end up in the file that is written.
  const std::string out = folder.file("out"), tokens = folder.write("t.txt", "1 2");
  EXPECT_EQ(lamina({"logits", kModel, "--tokens", tokens, "--out", out, "-c", "1000"}, {.closed_stream = 2}).exit_code,
            0);
  EXPECT_EQ(fs::file_size(out), 2 * kVocab * sizeof(float));
  EXPECT_EQ(lamina({"run", kModel, "-p", "a"}, {.closed_stream = 2}).out, "bcdefghij\n");
}

TEST(Cli, OverridesMetadata) {
  const auto run = [](const Words& options) {
    Words words = {"run", kModel, "-p", "x", "-n", "2"};
    words.insert(words.end(), options.begin(), options.end());
    return lamina(words);
  };
  EXPECT_EQ(run({}).out, "yz\n");
  // y becomes the end of the text; the second of two overrides counts.
  EXPECT_EQ(run({"--override-kv", "tokenizer.ggml.eos_token_id=int:284"}).out, "");
  EXPECT_EQ(run({"--override-kv", "tokenizer.ggml.eos_token_id=int:284", "--override-kv",
                 "tokenizer.ggml.eos_token_id=int:2"})
                .out,
            "yz\n");
  const struct {
    std::string text, part;
  } metadata[] = {{"llama.block_count=int:3", "blk.2."},
                  {"llama.block_count=int:-3", "llama.block_count is -3"},
                  {"llama.block_count=float:2.5", "llama.block_count is 2.5"},
                  {"llama.block_count=bool:true", "llama.block_count is true"},
                  {"general.architecture=str:no:such=one", "\"no:such=one\""},
                  {"llama.rope.freq_base=float:0.5", "llama.rope.freq_base is 0.5"},
                  {"tokenizer.ggml.add_bos_token=int:1", "add_bos_token is not a boolean"}};
  for (const auto& row : metadata) {
    const ProcessResult result = run({"--override-kv", row.text});
    EXPECT_EQ(result.exit_code, 3) << row.text;
    EXPECT_TRUE(is_one_message(result.err)) << result.err;
    EXPECT_NE(result.err.find(row.part), std::string::npos) << result.err;
  }
  const struct {
    std::string text, part;
  } usage[] = {{"", "KEY=TYPE:VALUE"},      {"key", "KEY=TYPE:VALUE"},     {"=int:1", "KEY=TYPE:VALUE"},
               {"key=1", "KEY=TYPE:VALUE"}, {"key=long:1", "type 'long'"}, {"key=int:", "'' is not an integer"},
               {"key=int:1x", "'1x'"},      {"key=int:1.5", "'1.5'"},      {"key=int:9223372036854775808", "64 bits"},
               {"key=float:one", "'one'"},  {"key=bool:1", "'1'"}};
  for (const auto& row : usage) {
    const ProcessResult result = run({"--override-kv", row.text});
    EXPECT_EQ(result.exit_code, 2) << row.text << result.err;
    EXPECT_TRUE(is_one_message(result.err)) << result.err;
    EXPECT_NE(result.err.find(row.part), std::string::npos) << result.err;
  }
  EXPECT_EQ(lamina({"tokenize", kModel, "a", "--add-special"}).out, "[1, 260]\n");
  EXPECT_EQ(
      lamina({"tokenize", kModel, "a", "--add-special", "--override-kv", "tokenizer.ggml.add_bos_token=bool:false"})
          .out,
      "[260]\n");
}

TEST(Cli, RopeOptionsChangeTheFrequencies) {
  const auto ropes = [](const Words& options) {
    Words words = {"inspect", kModel, "--program"};
    words.insert(words.end(), options.begin(), options.end());
    const std::string text = lamina(words).out;
    const size_t at = text.find("rope 0: ");
    return text.substr(at, text.find('\n', at) - at);
  };
  // 16 dimensions: frequencies from 1 to base^(-14/16).
  EXPECT_NE(ropes({}).find("magnitude 1, frequencies 1 .. 0.000316228"), std::string::npos) << ropes({});
  EXPECT_NE(ropes({"--rope-freq-base", "65536"}).find("frequencies 1 .. 6.10352e-05"), std::string::npos);
  EXPECT_NE(ropes({"--rope-scale", "4"}).find("magnitude 1, frequencies 0.25 .. 7.90569e-05"), std::string::npos);
  EXPECT_NE(ropes({"--rope-scaling", "none", "--rope-scale", "4"}).find("frequencies 1 .. 0.000316228"),
            std::string::npos);
  // YaRN leaves fast pairs alone and multiplies cos and sin by 1 + 0.1 ln(4).
  EXPECT_NE(ropes({"--rope-scaling", "yarn", "--rope-scale", "4"}).find("magnitude 1.13863, frequencies 1 .. "),
            std::string::npos);
  for (const Words& words : {Words{"--rope-scaling", "su"}, Words{"--rope-scale", "0"}, Words{"--rope-freq-base", "x"},
                             Words{"--rope-scale", "-1"}}) {
    Words all = {"run", kModel, "-p", "x"};
    all.insert(all.end(), words.begin(), words.end());
    const ProcessResult result = lamina(all);
    EXPECT_EQ(result.exit_code, 2) << words[1];
    EXPECT_NE(result.err.find(words[0]), std::string::npos) << result.err;
  }
}

TEST(Logits, WritesARowForEachToken) {
  Folder folder;
  const std::string tokens = folder.write("t.txt", " 1 260\n261\t262 ");
  const std::string out = folder.file("out");
  const ProcessResult result = lamina({"logits", kModel, "--tokens", tokens, "--out", out});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out + result.err, "");
  const std::string bytes = read_file(out);
  ASSERT_EQ(bytes.size(), 4 * kVocab * sizeof(float));
  std::vector<float> logits(4 * kVocab);
  std::memcpy(logits.data(), bytes.data(), bytes.size());
  for (const size_t row : {0u, 1u, 2u, 3u}) {
    const auto first = logits.begin() + static_cast<ptrdiff_t>(row * kVocab);
    EXPECT_EQ(std::max_element(first, first + kVocab) - first, static_cast<ptrdiff_t>(260 + row));  // a, b, c, d
  }
  EXPECT_EQ(folder.names(), (Words{"out", "t.txt"}));
}

TEST(Logits, RefusesBadIdsAndLeavesNothing) {
  Folder folder;
  const std::string out = folder.file("out");
  const struct {
    std::string tokens, position, value;
  } cases[] = {{"1 2 286", "2", "286"}, {"1 -3", "1", "-3"},   {"99999999999", "0", "99999999999"},
               {"1 two", "1", "two"},   {"1 2.5", "1", "2.5"}, {"1,2", "0", "1,2"},
               {" \n", "no token", ""}};
  for (const auto& row : cases) {
    const std::string tokens = folder.write("t.txt", row.tokens);
    const ProcessResult result = lamina({"logits", kModel, "--tokens", tokens, "--out", out});
    EXPECT_EQ(result.exit_code, 3) << row.tokens;
    EXPECT_TRUE(is_one_message(result.err)) << result.err;
    EXPECT_NE(result.err.find(row.position), std::string::npos) << result.err;
    EXPECT_NE(result.err.find(row.value), std::string::npos) << result.err;
    EXPECT_EQ(folder.names(), Words{"t.txt"});
  }
}

TEST(Logits, RaisesTheContextToWhatTheTokensNeed) {
  Folder folder;
  std::string ids;
  for (int i = 0; i < 600; ++i) ids += std::to_string(i % static_cast<int>(kVocab)) + " ";
  const std::string tokens = folder.write("t.txt", ids);
  std::string first;
  for (const std::string batch : {"512", "1", "77"}) {
    const std::string out = folder.file("out" + batch);
    const ProcessResult result = lamina({"logits", kModel, "--tokens", tokens, "--out", out, "-b", batch, "-q"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const std::string bytes = read_file(out);
    EXPECT_EQ(bytes.size(), 600 * kVocab * sizeof(float));
    if (first.empty()) first = bytes;
    EXPECT_TRUE(bytes == first) << "-b " << batch;
  }
}

TEST(Logits, WritesDirectlyToWhatIsNoFile) {
  EXPECT_EQ(lamina({"logits", kModel, "--tokens", "-", "--out", "/dev/null"}, {.input = "1 2"}).exit_code, 0);
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  const ProcessResult full = lamina({"logits", kModel, "--tokens", "-", "--out", "/dev/full"}, {.input = "1 2"});
  EXPECT_EQ(full.exit_code, 1);
  EXPECT_TRUE(is_one_message(full.err)) << full.err;
}

TEST(Devices, ReportsTheInstructionSet) {
  const ProcessResult result = lamina({"devices", "--json"}, {.environment = {"LAMINA_ISA=scalar"}});
  EXPECT_EQ(result.exit_code, 0);
  const auto devices = nlohmann::json::parse(result.out).at("devices");
  EXPECT_EQ(devices.at(0).at("isa"), "scalar");
  EXPECT_GE(devices.at(0).at("threads"), 1);
  EXPECT_GT(devices.at(0).at("memory_available"), 0);
  EXPECT_EQ(lamina({"devices"}, {.environment = {"LAMINA_ISA=fast"}}).exit_code, 2);
}

TEST(Verify, SaysThatAllOpsAgree) {
  for (const std::string isa : {"scalar", "avx2", "avxvnni", "avx512"}) {
    const ProcessResult result = lamina({"verify", kModel}, {.environment = {"LAMINA_ISA=" + isa}});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_TRUE(result.out.starts_with("all ")) << result.out;
    EXPECT_NE(result.out.find("for 14 tokens"), std::string::npos) << result.out;
  }
  const ProcessResult text = lamina({"verify", kModel, "-p", "xyz"});
  EXPECT_NE(text.out.find("for 4 tokens"), std::string::npos) << text.out;  // with bos
  EXPECT_EQ(lamina({"verify", kModel, "-p", "xyz", "-c", "2"}).exit_code, 2);
}

TEST(Bench, PrintsLlamaBenchsTableAndJson) {
  const ProcessResult table = lamina({"bench", kModel, "-p", "16", "-n", "4", "-d", "3", "-r", "2"});
  EXPECT_EQ(table.exit_code, 0) << table.err;
  for (const std::string part : {"| model ", "| t/s |", " pp16 @ d3 |", " tg4 @ d3 |", "GB/s", "\nbuild: "}) {
    std::string squeezed;
    std::unique_copy(table.out.begin(), table.out.end(), std::back_inserter(squeezed),
                     [](char a, char b) { return a == ' ' && b == ' '; });
    EXPECT_NE(squeezed.find(part), std::string::npos) << part << " in\n" << table.out;
  }
  const ProcessResult text = lamina({"bench", kModel, "-p", "0", "-n", "4", "-r", "3", "-o", "json", "-t", "1"});
  const auto rows = nlohmann::json::parse(text.out);
  ASSERT_EQ(rows.size(), 1u);
  const auto& row = rows[0];
  EXPECT_EQ(row.at("n_gen"), 4);
  EXPECT_EQ(row.at("n_prompt"), 0);
  EXPECT_EQ(row.at("n_threads"), 1);
  EXPECT_EQ(row.at("samples_ns").size(), 3u);
  EXPECT_GT(row.at("avg_ts"), 0);
  EXPECT_GT(row.at("gb_s"), 0);
}

}  // namespace
}  // namespace lamina

// `lamina perplexity` as its users see it: llama-perplexity's lines on standard output, counts and the time left on
// standard error, and the comparison with a base of logits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "tests/text_model.h"
#include "tests/tools/process.h"

namespace lamina {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

const std::string kModel = LAMINA_SOURCE_DIR "/tests/data/engine/chains.gguf";

/// The verb on a text of 300 letters that the model does not foresee; they are 301 tokens with BOS.
class PerplexityVerb : public testing::Test {
 protected:
  PerplexityVerb() {
    std::string text;
    for (size_t i = 0; i < 300; ++i) text += "abcdefghijxyz"[i * i % 13];
    text_ = folder_.write("t.txt", text);
  }

  ProcessResult perplexity(Words words) const {
    words.insert(words.begin(), {LAMINA_BINARY, "perplexity", kModel, "-f", text_});
    return run_process(words);
  }

  nlohmann::json json(Words words) const {
    words.insert(words.end(), {"-o", "json"});
    const ProcessResult result = perplexity(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out);
  }

  /// Writes a base for -c 64 of a text that the model foresees: what it does not lies below the layout's cut at e^-16.
  std::string write_base() {
    std::string text;
    for (size_t i = 0; i < 300; ++i) text += "xyz"[i % 3];
    text_ = folder_.write("t.txt", text);
    const std::string base = folder_.path("base");
    EXPECT_EQ(perplexity({"-c", "64", "--kl-base", base}).exit_code, 0);
    return base;
  }

  gguf::TempFolder folder_;
  std::string text_;
};

TEST_F(PerplexityVerb, PrintsLlamaPerplexitysLines) {
  const ProcessResult result = perplexity({"-c", "64", "-b", "128"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(std::regex_match(
      result.out, std::regex(R"((\[[1-4]\]\d+\.\d{4},){4}\n\nFinal estimate: PPL = \d+\.\d{4} \+/- \d+\.\d{5}\n)")))
      << result.out;
  EXPECT_NE(result.err.find("301 tokens, each chunk begins with BOS"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("over 4 chunks, n_ctx=64, batch_size=128, n_seq=2"), std::string::npos) << result.err;
  EXPECT_TRUE(std::regex_search(result.err, std::regex(R"(\d+\.\d\d seconds per pass - ETA \d+\.\d\d minutes)")));
  EXPECT_EQ(perplexity({"-c", "64", "-q"}).err, "");
}

TEST_F(PerplexityVerb, OfAModelWithUniformLogitsIsTheSizeOfItsVocabulary) {
  const std::string model =
      folder_.write("uniform.gguf", TextModel().tensor("output.weight", "F32", {64, 288}, 0).build().bytes);
  const ProcessResult result = run_process({LAMINA_BINARY, "perplexity", model, "-f", text_, "-c", "37", "-q"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("[1]288.0000,[2]288.0000,"), std::string::npos) << result.out;
  EXPECT_TRUE(result.out.ends_with("Final estimate: PPL = 288.0000 +/- 0.00000\n")) << result.out;
}

TEST_F(PerplexityVerb, GivesTheSameForAnyThreadsAndBatch) {
  const std::string want = perplexity({"-c", "50"}).out;
  EXPECT_NE(want.find("Final estimate"), std::string::npos);
  EXPECT_EQ(perplexity({"-c", "50", "-t", "1", "-b", "7"}).out, want);
  EXPECT_EQ(perplexity({"-c", "50", "-t", "3", "-b", "170"}).out, want);
}

TEST_F(PerplexityVerb, GivesOneJsonObject) {
  const auto result = json({"-c", "32", "--chunks", "3"});
  EXPECT_EQ(result.at("n_tokens"), 301);
  EXPECT_EQ(result.at("n_chunk"), 3);
  EXPECT_EQ(result.at("n_scored"), 3 * 15);
  EXPECT_EQ(result.at("add_bos"), true);
  EXPECT_EQ(result.at("running_ppl").size(), 3u);
  EXPECT_EQ(result.at("running_ppl").back(), result.at("ppl"));
  EXPECT_EQ(json({"-c", "32", "--ppl-stride", "8"}).at("n_scored"), (301 - 32 + 7) / 8 * 8);
}

TEST_F(PerplexityVerb, RefusesATextThatIsTooShort) {
  const ProcessResult result = perplexity({"-c", "151"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_NE(result.err.find("301 tokens"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("302"), std::string::npos) << result.err;
}

TEST_F(PerplexityVerb, ComparesAModelWithItself) {
  const std::string base = write_base();
  const auto plain = json({"-c", "64"});
  EXPECT_FALSE(plain.contains("kl_divergence"));
  // Header and a row for each of the 31 scored tokens of 4 chunks: 2 * 286 + 8 bytes.
  EXPECT_EQ(fs::file_size(base), 20 + 4 * 64 * 4 + 4 * 31 * (2 * 286 + 8));
  EXPECT_EQ(std::distance(fs::directory_iterator(fs::path(base).parent_path()), {}), 2);  // and the text

  const auto compared = json({"-c", "64", "--kl-base", base, "-b", "256"});
  const auto& kl = compared.at("kl_divergence");
  EXPECT_EQ(compared.at("ppl"), plain.at("ppl"));
  EXPECT_NEAR(kl.at("kl").at("value"), 0, 1e-4);  // 16-bit steps, and what lies below e^-16
  EXPECT_NEAR(kl.at("delta_p").at("value"), 0, 1e-4);
  EXPECT_NEAR(kl.at("base_ppl").at("value"), plain.at("ppl"), 1e-3);
  EXPECT_EQ(kl.at("same_top").at("value"), 1);
}

TEST_F(PerplexityVerb, PrintsLlamaPerplexitysTables) {
  const std::string base = write_base();
  const ProcessResult result = perplexity({"-c", "64", "--kl-base", base, "--chunks", "2"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::string number = R"( +-?\d+\.\d+ ± +\d+\.\d+)";
  EXPECT_TRUE(std::regex_search(
      result.out,
      std::regex("\nchunk             PPL               ln\\(PPL\\(Q\\)/PPL\\(base\\)\\)          KL Divergence"
                 "              Δp RMS            Same top p\n   1" +
                 number + number + number + number + " %" + number + " %\n   2 ")))
      << result.out;
  for (const std::string line :
       {"====== Perplexity statistics ======\nMean PPL(Q)                   : ", "\nCor(ln(PPL(Q)), ln(PPL(base))): ",
        "\nMaximum KLD: ", "\n99.9%   KLD: ", "\nMedian  KLD: ", "\nMean    Δp: ", "\nRMS Δp    : ",
        "\nSame top p: 100.000 ± 0.000 %\n", "\nFinal estimate: PPL = "}) {
    EXPECT_NE(result.out.find(line), std::string::npos) << line << " in\n" << result.out;
  }
}

TEST_F(PerplexityVerb, RefusesABaseThatDoesNotFit) {
  const std::string base = write_base();
  const ProcessResult other = perplexity({"-c", "32", "--kl-base", base});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_NE(other.err.find("-c 64, not 32"), std::string::npos) << other.err;
  EXPECT_EQ(perplexity({"-c", "64", "--kl-base", text_}).exit_code, 3);
  EXPECT_EQ(perplexity({"-c", "64", "--kl-base", base, "--ppl-stride", "8"}).exit_code, 2);
}

TEST_F(PerplexityVerb, LeavesNoHalfBase) {
  const std::string base = folder_.path("base");
  Words words{LAMINA_BINARY, "perplexity", kModel, "-f", text_, "-c", "20", "--kl-base", base};
  EXPECT_EQ(run_process(words, {.stdout_path = "/dev/full"}).exit_code, 1);  // behind the first chunk
  EXPECT_FALSE(fs::exists(base));
  EXPECT_EQ(std::distance(fs::directory_iterator(fs::path(base).parent_path()), {}), 1);  // the text
}

}  // namespace
}  // namespace lamina

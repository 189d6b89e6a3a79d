// `lamina tokenize` as users run it.
// In: small vocabularies, texts and files of lines. Out: its ids, its messages and its exit codes.
#include <gtest/gtest.h>

#include "tests/model/vocabulary_builder.h"
#include "tests/tools/process.h"

namespace lamina {
namespace {

class Tokenize : public testing::Test {
 protected:
  ProcessResult run(const std::string& arguments) { return run_shell("tokenize " + arguments); }

  void expect(const std::string& arguments, int exit_code, const std::string& out) {
    const ProcessResult result = run(arguments);
    EXPECT_EQ(result.exit_code, exit_code) << arguments;
    EXPECT_EQ(result.out, out) << arguments;
  }

  gguf::TempFolder folder_;
  std::string model_ = folder_.write("model.gguf", [] {
    VocabularyBuilder builder = bpe_vocabulary();
    builder.id("bos_token_id", 7).flag("add_bos_token", true);
    builder.add("<|x|>", kControl);
    return builder.bytes();
  }());
};

TEST_F(Tokenize, PrintsOneArray) {
  expect(model_ + " 'hello'", 0, "[259]\n");
  expect(model_ + " ''", 0, "[]\n");
  expect(model_ + " a --add-special", 0, "[7, 97]\n");
  expect(model_ + " 'a<|x|>' --parse-special", 0, "[97, 267]\n");
  expect(model_ + " '<|x|>'", 0, "[60, 124, 120, 124, 62]\n");
}

TEST_F(Tokenize, TakesLinesOfJson) {
  const std::string lines = folder_.write("lines.jsonl", R"({"text": "a", "other": [1]})"
                                                         "\n"
                                                         R"({"text": ""})"
                                                         "\n"
                                                         R"({"text": "\u0000\n"})");
  const std::string ids = "[97]\n[]\n[0, 10]\n";
  expect(model_ + " --jsonl " + lines, 0, ids);
  expect(model_ + " --jsonl - < " + lines, 0, ids);
}

TEST_F(Tokenize, NamesTheLineThatIsWrong) {
  for (const char* bad : {"{\"text\": \"a\"", "{\"text\": 1}", "[]", "", "{\"text\": \"\xFF\"}"}) {
    const ProcessResult result =
        run(model_ + " --jsonl " + folder_.write("bad.jsonl", std::string("{\"text\": \"a\"}\n") + bad + "\n"));
    EXPECT_EQ(result.exit_code, 3) << bad;
    EXPECT_NE(result.out.find("[97]\n"), std::string::npos) << bad;
    EXPECT_NE(result.out.find("line 2"), std::string::npos) << result.out;
  }
}

TEST_F(Tokenize, RefusesWhatItCannotDo) {
  EXPECT_EQ(run(model_).exit_code, 2);
  EXPECT_EQ(run(model_ + " a --jsonl b").exit_code, 2);
  EXPECT_EQ(run(folder_.path("nosuch.gguf") + " a").exit_code, 3);
  EXPECT_EQ(run(model_ + " --jsonl " + folder_.path("nosuch.jsonl")).exit_code, 3);
  EXPECT_EQ(run(model_ + " --jsonl " + folder_.path("")).exit_code, 3);
  VocabularyBuilder none;
  none.model = "none";
  EXPECT_EQ(run(folder_.write("none.gguf", none.bytes()) + " a").exit_code, 3);
}

}  // namespace
}  // namespace lamina

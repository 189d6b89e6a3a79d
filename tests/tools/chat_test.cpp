// `lamina chat` as its users see it, in a pipe and on a terminal. The model is tests/make_text_model.py's with other
// names for some of its tokens, so that it answers each message of a Mistral dialogue with "bcdefghij" and an end, or
// with "yzyzyz..." for ever.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <string>
#include <vector>

#include "tests/model/vocabulary_builder.h"
#include "tests/tools/process.h"
#include "tests/tools/pseudo_terminal.h"

namespace lamina {
namespace {

using Words = std::vector<std::string>;
using Names = std::map<std::string, std::string>;

const std::string kTextModel = LAMINA_SOURCE_DIR "/tests/data/engine/chains.gguf";
const Names kAnswers = {{"a", "[/INST]"}};  // whose successor is b
const Names kAnswersForEver = {{"x", "[/INST]"}};

/// The model as a file of its own; `names` replace those of its tokens.
class ChatModel {
 public:
  explicit ChatModel(Names names, Names texts = {}) {
    names.merge(Names{{"u", "[SYSTEM_PROMPT]"}, {"v", "[/SYSTEM_PROMPT]"}, {"w", "[INST]"}});
    VocabularyBuilder builder;
    builder.model = "llama";
    builder.add("<unk>", kUnknown);
    builder.add("<s>", kControl);
    builder.add("</s>", kControl);
    for (int byte = 0; byte < 256; ++byte) builder.add(fmt::format("<0x{:02X}>", byte), kByte);
    builder.add("▁");
    for (char letter = 'a'; letter <= 'z'; ++letter) {
      const std::string name(1, letter);
      if (names.contains(name)) {
        builder.add(names[name], kControl);
      } else {
        builder.add(texts.contains(name) ? texts[name] : name);
      }
    }
    builder.flag("add_bos_token", true).flag("add_space_prefix", false).id("bos_token_id", 1).id("eos_token_id", 2);
    gguf::FileBuilder& file = builder.file;
    file.text("general.architecture", "llama").u32("llama.context_length", 512).u32("llama.embedding_length", 64);
    file.u32("llama.block_count", 2).u32("llama.feed_forward_length", 96).u32("llama.rope.dimension_count", 16);
    file.u32("llama.attention.head_count", 4).u32("llama.attention.head_count_kv", 2);
    file.key("llama.attention.layer_norm_rms_epsilon", gguf::ValueType::kFloat32, gguf::raw(1e-5f));
    file.text("tokenizer.chat_template",
              "{{ bos_token }}[SYSTEM_PROMPT]{{ s }}[/SYSTEM_PROMPT][INST]{{ m }}[/INST]{{ a }}{{ eos_token }}");
    const gguf::File original = gguf::File::open(kTextModel);
    for (const gguf::Tensor& tensor : original.tensors()) {
      file.tensor(tensor.name, tensor.shape, static_cast<uint32_t>(tensor.type->id),
                  std::string(reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size()));
    }
    path_ = folder_.write("chat.gguf", builder.bytes());
  }

  Words command(const Words& options) const {
    Words words = {LAMINA_BINARY, "chat", path_, "--temp", "0"};
    words.insert(words.end(), options.begin(), options.end());
    return words;
  }
  ProcessResult chat(const Words& options, const ProcessOptions& process) const {
    return run_process(command(options), process);
  }
  const std::string& path() const { return path_; }

 private:
  gguf::TempFolder folder_;
  std::string path_;
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// The numbers N of the lines "prompt N tokens".
std::vector<int> tokens_run(const std::string& text) {
  const std::string before = "prompt ";
  std::vector<int> counts;
  for (size_t pos = 0; (pos = text.find(before, pos)) != std::string::npos;) {
    pos += before.size();
    counts.push_back(std::stoi(text.substr(pos)));
  }
  return counts;
}

TEST(Chat, AnswersEachLineOfAPipe) {
  const ProcessResult result = ChatModel(kAnswers).chat({}, {.input = "hi\n\nho"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "bcdefghij\nbcdefghij\n");
  EXPECT_EQ(result.err, "");
  const ProcessResult nothing = ChatModel(kAnswers).chat({}, {});
  EXPECT_EQ(nothing.exit_code, 0);
  EXPECT_EQ(nothing.out + nothing.err, "");
}

TEST(Chat, RunsOnlyWhatIsNew) {
  // <s> [INST] h i [/INST], then what ends the answer and the next message: </s> [INST] h o [/INST].
  const ProcessResult result = ChatModel(kAnswers).chat({"-v"}, {.input = "hi\nho\nhello\n"});
  EXPECT_EQ(tokens_run(result.err), (std::vector<int>{5, 5, 8})) << result.err;
  // A system message is run once: <s> [SYSTEM_PROMPT] k k [/SYSTEM_PROMPT] [INST] h i [/INST].
  const ProcessResult with_system = ChatModel(kAnswers).chat({"-v", "--system", "kk"}, {.input = "hi\nho\n"});
  EXPECT_EQ(tokens_run(with_system.err), (std::vector<int>{9, 5})) << with_system.err;
}

TEST(Chat, EndsAnAnswerAtItsLimit) {
  EXPECT_EQ(ChatModel(kAnswers).chat({"-n", "3"}, {.input = "hi\nho\n"}).out, "bcd\nbcd\n");
}

TEST(Chat, ForgetsTheOldestTurnsOfAFullContext) {
  // A turn takes 14 tokens: [INST] h i [/INST] b c d e f g h i j </s>. The third message would make 37 of 40.
  const ProcessResult result =
      ChatModel(kAnswers).chat({"-v", "-c", "40", "--system", "kk"}, {.input = "hi\nhi\nhi\nhi\n"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "bcdefghij\nbcdefghij\nbcdefghij\nbcdefghij\n");
  EXPECT_TRUE(has(result.err, "context of 40 tokens")) << result.err;
  EXPECT_TRUE(has(result.err, "forgot 2 of 3 turns")) << result.err;
  // What is left begins with the same system message, so that only the last token has to be run again.
  EXPECT_EQ(tokens_run(result.err), (std::vector<int>{9, 5, 1, 5})) << result.err;
}

TEST(Chat, EndsAnAnswerThatFillsTheContext) {
  const ProcessResult result = ChatModel(kAnswersForEver).chat({"-c", "16"}, {.input = "hi\nhi\n"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "yzyzyzyz\nyzyzyzyz\n");  // 12 tokens, of which [/INST] has no text
  EXPECT_TRUE(has(result.err, "context of 16 tokens is full")) << result.err;
  EXPECT_TRUE(has(result.err, "forgot 1 of 2 turns")) << result.err;
}

TEST(Chat, RefusesAMessageLongerThanTheContext) {
  const ProcessResult result = ChatModel(kAnswers).chat({"-c", "16"}, {.input = "hi\n" + std::string(20, 'h') + "\n"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.out, "bcdefghij\n");
  EXPECT_TRUE(has(result.err, "23 tokens do not fit the context of 16")) << result.err;
}

TEST(Chat, LeavesForASignalInAPipe) {
  const struct { int signal, exit_code; } cases[] = {{SIGINT, 130}, {SIGTERM, 143}};
  for (const auto& row : cases) {
    const ProcessResult result =
        ChatModel(kAnswersForEver)
            .chat({"-q", "-c", "200000"}, {.input = "hi\nhi\n", .signal_after_output = row.signal});
    EXPECT_EQ(result.exit_code, row.exit_code);
    EXPECT_TRUE(result.out.starts_with("y")) << result.out;
    EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 1);
    EXPECT_EQ(result.err, "");
  }
}

TEST(Chat, SaysThatTheTemplateIsMissing) {
  const ProcessResult result = run_process({LAMINA_BINARY, "chat", kTextModel, "-n", "1"}, {.input = "hi\n"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(has(result.err, "template is missing")) << result.err;
  EXPECT_TRUE(has(result.err, "chatml")) << result.err;
}

TEST(Chat, TalksOnATerminal) {
  const ChatModel model(kAnswers);
  PseudoTerminal terminal(model.command({}));
  ASSERT_TRUE(terminal.sees(">>> ")) << terminal.screen();
  EXPECT_TRUE(has(terminal.screen(), "llama 98K F16, context 512"));
  for (int turn = 0; turn < 2; ++turn) {
    terminal.type("hi\n");
    EXPECT_TRUE(terminal.sees("bcdefghij\r\n")) << terminal.screen();
    EXPECT_TRUE(terminal.sees("tokens/s")) << terminal.screen();
    EXPECT_TRUE(terminal.sees(">>> ")) << terminal.screen();
  }
  terminal.type("\x04");  // Ctrl-D
  EXPECT_EQ(terminal.exit_code(), 0);
}

TEST(Chat, StopsAnAnswerForCtrlCAndLeavesForTheNext) {
  const ChatModel model(kAnswersForEver);
  PseudoTerminal terminal(model.command({"-q", "-c", "200000"}));
  for (int turn = 0; turn < 2; ++turn) {
    ASSERT_TRUE(terminal.sees(">>> ")) << terminal.screen();
    terminal.type("hi\n");
    ASSERT_TRUE(terminal.sees("yzyzyzyz")) << terminal.screen();
    terminal.type("\x03");  // Ctrl-C
  }
  ASSERT_TRUE(terminal.sees(">>> ")) << terminal.screen();
  terminal.type("\x03");
  EXPECT_EQ(terminal.exit_code(), 130);
}

TEST(Chat, ReturnsToThePromptWhenAMessageIsTooLong) {
  const ChatModel model(kAnswers);
  PseudoTerminal terminal(model.command({"-q", "-c", "16"}));
  ASSERT_TRUE(terminal.sees(">>> ")) << terminal.screen();
  terminal.type(std::string(20, 'h') + "\n");
  EXPECT_TRUE(terminal.sees("23 tokens do not fit the context of 16")) << terminal.screen();
  EXPECT_TRUE(terminal.sees(">>> ")) << terminal.screen();
  terminal.type("hi\n");
  EXPECT_TRUE(terminal.sees("bcdefghij\r\n")) << terminal.screen();
}

TEST(Chat, KeepsControlCharactersOfAModelFromTheTerminal) {
  const ChatModel model(kAnswers, {{"c", "\x1b]0;t\a"}, {"d", "\xC2\x9B"}, {"e", "\t\r"}});
  const Words run = {LAMINA_BINARY, "run", model.path(), "--chat", "-p", "hi", "-q"};
  EXPECT_EQ(run_process(run).out, "b\x1b]0;t\a\xC2\x9B\t\rfghij\n");
  PseudoTerminal terminal(run);
  EXPECT_EQ(terminal.exit_code(), 0);
  EXPECT_EQ(terminal.screen(), "b\\x1b]0;t\\x07\\x9b\t\\x0dfghij\r\n");
}

TEST(Run, AnswersOneMessage) {
  const ChatModel model(kAnswers);
  const auto run = [&](Words options) {
    options.insert(options.begin(), {LAMINA_BINARY, "run", model.path(), "-p", "hi"});
    return run_process(options);
  };
  EXPECT_EQ(run({"--chat"}).out, "bcdefghij\n");
  EXPECT_EQ(tokens_run(run({"--chat", "-v"}).err), std::vector<int>{5});
  EXPECT_EQ(tokens_run(run({"--chat", "-v", "--system", "kk"}).err), std::vector<int>{9});
  EXPECT_EQ(run({"--system", "kk"}).exit_code, 2);
  EXPECT_EQ(run({"--chat", "--parse-special"}).exit_code, 2);
}

}  // namespace
}  // namespace lamina

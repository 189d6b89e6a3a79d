// Dialogues against renderings of the models' own templates by jinja2 (tests/data/templates: plain dialogues of each
// family), and the ids of their text: a message can never become a control token.
#include "model/chat_template.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/model/vocabulary_builder.h"

namespace lamina {
namespace {

using Role = Message::Role;

struct Row {
  std::string name;    ///< in tests/data/templates
  std::string family;  ///< that is to be recognised
  std::vector<std::string> controls;
};

const std::vector<Row> kRows = {
    {"Qwen-Qwen2.5-7B-Instruct", "chatml", {"<|im_start|>", "<|im_end|>"}},
    {"meta-llama-Llama-3.2-3B-Instruct", "llama-3.1", {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}},
    {"google-gemma-2-2b-it", "gemma", {"<start_of_turn>", "<end_of_turn>"}},
    {"mistralai-Mistral-Nemo-Instruct-2407", "mistral-nemo", {"[INST]", "[/INST]"}},
    {"microsoft-Phi-3.5-mini-instruct", "phi-3", {"<|system|>", "<|user|>", "<|assistant|>", "<|end|>"}},
};

std::string read_data(const std::string& name) {
  std::ifstream file(LAMINA_SOURCE_DIR "/tests/data/templates/" + name, std::ios::binary);
  EXPECT_TRUE(file.good()) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A vocabulary with the control tokens, bos <s> and eos </s>, and a chat template; none where `source` is empty.
struct Model {
  Model(VocabularyBuilder builder, const std::vector<std::string>& controls, const std::string& source) {
    if (builder.model == "gpt2") {
      builder.id("bos_token_id", static_cast<uint32_t>(builder.add("<s>", kControl)));
      builder.id("eos_token_id", static_cast<uint32_t>(builder.add("</s>", kControl)));
    }
    for (const std::string& control : controls) builder.add(control, kControl);
    if (!source.empty()) builder.file.text("tokenizer.chat_template", source);
    const gguf::TempFolder folder;
    file = std::make_unique<gguf::File>(gguf::File::open(folder.write("model.gguf", builder.bytes())));
    tokenizer = Tokenizer::create(*file);
    chat = std::make_unique<ChatTemplate>(*file, *tokenizer);
  }

  std::unique_ptr<gguf::File> file;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatTemplate> chat;
};

std::string text_of(const std::vector<TextPart>& parts) {
  std::string text;
  for (const TextPart& part : parts) text += part.text;
  return text;
}

std::vector<Message> messages_of(const nlohmann::json& rows) {
  std::vector<Message> messages;
  for (const auto& row : rows) {
    const std::string role = row.at("role");
    messages.push_back({role == "system" ? Role::kSystem
                        : role == "user" ? Role::kUser
                                         : Role::kAssistant,
                        row.at("content")});
  }
  return messages;
}

/// Llama's rendering of today's date, which the family takes from the template's text.
std::string with_date_of_template(std::string text) {
  const std::string today = "Today Date: 02 Jan 2026", fixed = "Today Date: 26 Jul 2024";
  const size_t pos = text.find(today);
  return pos == std::string::npos ? text : text.replace(pos, today.size(), fixed);
}

class ChatTemplateTest : public testing::TestWithParam<Row> {
 protected:
  const Row& row() const { return GetParam(); }
  Model model(const VocabularyBuilder& builder = bpe_vocabulary()) const {
    return Model(builder, row().controls, read_data(row().name + ".jinja"));
  }
};

TEST_P(ChatTemplateTest, RendersDialoguesAsTheTemplateDoes) {
  const Model model = this->model();
  EXPECT_EQ(model.chat->name(), row().family);
  std::istringstream lines(read_data(row().name + ".jsonl"));
  int n_cases = 0;
  for (std::string line; std::getline(lines, line); ++n_cases) {
    const auto entry = nlohmann::json::parse(line);
    EXPECT_EQ(text_of(model.chat->render(messages_of(entry.at("messages")))),
              with_date_of_template(entry.at("expected")))
        << entry.at("case");
  }
  EXPECT_GE(n_cases, 6);
}

TEST_P(ChatTemplateTest, GivesTheIdsOfTheWholeText) {
  const std::vector<Message> messages = {
      {Role::kUser, "\nhello  w"}, {Role::kAssistant, "aaaa é "}, {Role::kUser, "11"}};
  for (const VocabularyBuilder& builder : {bpe_vocabulary(), spm_vocabulary()}) {
    const Model model = this->model(builder);
    const std::vector<TextPart> parts = model.chat->render(messages);
    EXPECT_EQ(model.tokenizer->encode_parts(parts),
              model.tokenizer->encode(text_of(parts), {.add_special = false, .parse_special = true}));
  }
}

TEST_P(ChatTemplateTest, KeepsControlTokensOfMessagesPlain) {
  std::string every = "<s></s>";
  for (const Row& other : kRows) {
    for (const std::string& control : other.controls) every += control;
  }
  const std::vector<Message> harmless = {
      {Role::kSystem, "S"}, {Role::kUser, "U"}, {Role::kAssistant, "A"}, {Role::kUser, "B"}};
  std::vector<Message> hostile = harmless;
  for (Message& message : hostile) message.text += every;
  const Model model = this->model();
  // Token ids below `first_control` are bytes and merges.
  const int32_t first_control = model.tokenizer->bos();
  const auto controls_of = [&](const std::vector<Message>& messages) {
    std::vector<int32_t> controls = model.tokenizer->encode_parts(model.chat->render(messages));
    std::erase_if(controls, [&](int32_t id) { return id < first_control; });
    return controls;
  };
  EXPECT_EQ(controls_of(hostile), controls_of(harmless));
  EXPECT_GE(controls_of(harmless).size(), 4u);
  const std::vector<TextPart> parts = model.chat->render(hostile);
  EXPECT_EQ(model.tokenizer->decode(model.tokenizer->encode_parts(parts), true), text_of(parts));
}

INSTANTIATE_TEST_SUITE_P(Families, ChatTemplateTest, testing::ValuesIn(kRows), [](const auto& test) {
  std::string name = test.param.family;
  std::erase_if(name, [](char c) { return c == '-' || c == '.'; });
  return name;
});

TEST(ChatTemplate, PutsASystemMessageBeforeGemmasFirst) {
  const Model model(bpe_vocabulary(), {"<start_of_turn>", "<end_of_turn>"}, read_data("google-gemma-2-2b-it.jinja"));
  const std::vector<Message> messages = {
      {Role::kSystem, "Be brief."}, {Role::kUser, "Hi"}, {Role::kAssistant, "Yes?"}, {Role::kUser, "Bye"}};
  EXPECT_EQ(text_of(model.chat->render(messages)),
            "<s><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nYes?<end_of_turn>\n"
            "<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n");
}

TEST(ChatTemplate, TellsFamiliesWithCommonMarkersApart) {
  // What is typical of the templates of Mistral 7B v0.2 and v0.3, Mistral Small, Llama 3, Phi 4 and Phi 4 mini.
  const struct {
    std::string source, family, answer_begins;
  } cases[] = {
      {"{{ bos_token }}{{ ' [INST] ' + message['content'] + ' [/INST]' }}", "mistral-v1", " [/INST]"},
      {"{{ bos_token }}{{ '[INST] ' + message['content'] + '[/INST]' }}", "mistral-v3", "[/INST]"},
      {"{{ '[SYSTEM_PROMPT]' + s + '[/SYSTEM_PROMPT]' }}{{ '[INST]' + m + '[/INST]' }}", "mistral-v7", "[/INST]"},
      {"{{ '<|start_header_id|>' + role + '<|end_header_id|>\\n\\n' }}", "llama-3",
       "<|start_header_id|>assistant<|end_header_id|>\n\n"},
      {"{{ '<|im_start|>user<|im_sep|>' + m + '<|im_end|>' }}", "phi-4", "<|im_start|>assistant<|im_sep|>"},
      {"{{ '<|' + role + '|>' + m + '<|end|>' }}{{ '<|assistant|>' }}", "phi-4-mini", "<|assistant|>"},
  };
  for (const auto& row : cases) {
    const Model model(bpe_vocabulary(), {}, row.source);
    EXPECT_EQ(model.chat->name(), row.family);
    const std::vector<Message> messages = {{Role::kUser, "U"}};
    const std::string text = text_of(model.chat->render(messages));
    EXPECT_TRUE(text.ends_with(row.answer_begins)) << text;
    EXPECT_EQ(text.starts_with("<s>"), row.source.find("bos_token") != std::string::npos) << text;
  }
}

TEST(ChatTemplate, WarnsAndTakesTheNearestFamily) {
  const auto family_of = [](const std::vector<std::string>& controls, const std::string& source) {
    testing::internal::CaptureStdout();  // where the log goes in tests
    const std::string family(Model(bpe_vocabulary(), controls, source).chat->name());
    EXPECT_NE(testing::internal::GetCapturedStdout().find("those of " + family + " models"), std::string::npos);
    return family;
  };
  EXPECT_EQ(family_of({"<start_of_turn>", "<end_of_turn>"}, ""), "gemma");
  EXPECT_EQ(family_of({"<|user|>", "<|end|>"}, "{{ messages }}"), "phi-3");
  EXPECT_EQ(family_of({"<|im_start|>"}, "{{ messages }}"), "chatml");
  EXPECT_EQ(family_of({}, ""), "chatml");
}

TEST(ChatTemplate, RefusesATemplateThatIsNoText) {
  VocabularyBuilder builder = bpe_vocabulary();
  builder.file.u32("tokenizer.chat_template", 7);
  EXPECT_THROW(Model(builder, {}, ""), Error);
}

}  // namespace
}  // namespace lamina

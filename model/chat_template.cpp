// The table of families, each from the template of one of its models (tests/data/templates holds one of each kind).
// A Jinja interpreter, which runs the template itself, is to replace them.
#include "model/chat_template.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <utility>

#include "model/vocabulary.h"

namespace lamina {
namespace {

/// What stands around a message.
struct Around {
  std::string_view open, close;
};

enum class SystemPlace {
  kOwnTurn,
  kFirstUser,  ///< before the first user message
  kLastUser,   ///< before the last one
};

}  // namespace

struct ChatFamily {
  std::string_view name;
  std::array<std::string_view, 2> markers;  ///< all of them stand in the template
  SystemPlace place;
  Around system, user, assistant;
  bool trims = false;          ///< messages lose the white space at their ends
  bool always_system = false;  ///< a system turn even where there is no system text
};

namespace {

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\n\v\f\r";
  const size_t begin = text.find_first_not_of(kBlanks);
  return begin == std::string_view::npos ? "" : text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

/// The system text that a template holds itself for dialogues without one: what stands between `around` with no
/// expression in it. Nothing when there is none.
std::optional<std::string> literal_system(std::string_view source, const Around& around) {
  std::string text;  // with the escaped line ends of string literals as line ends
  for (size_t i = 0; i < source.size(); ++i) {
    const bool line_end = source.substr(i, 2) == "\\n";
    text += line_end ? '\n' : source[i];
    i += line_end ? 1 : 0;
  }
  size_t pos = 0;
  while ((pos = text.find(around.open, pos)) != std::string::npos) {
    pos += around.open.size();
    const size_t expression = text.find_first_of("'\"{}", pos);
    const std::string literal = text.substr(pos, expression - pos);
    if (const size_t end = literal.find(around.close); end != std::string::npos) return literal.substr(0, end);
    if (expression == std::string::npos) break;
    pos = expression;
  }
  return std::nullopt;
}

// The first row whose markers are all there counts. Llama 3.1's date is the one that its template takes where it cannot
// ask for today's.
const ChatFamily kFamilies[] = {
    {.name = "mistral-v7",
     .markers = {"[SYSTEM_PROMPT]"},
     .place = SystemPlace::kOwnTurn,
     .system = {"[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"},
     .user = {"[INST]", "[/INST]"},
     .assistant = {"", "</s>"}},
    {.name = "mistral-v1",
     .markers = {" [/INST]"},
     .place = SystemPlace::kFirstUser,
     .system = {"", "\n\n"},
     .user = {"[INST] ", " [/INST]"},
     .assistant = {"", "</s>"}},
    {.name = "mistral-v3",
     .markers = {"[INST] "},
     .place = SystemPlace::kLastUser,
     .system = {"", "\n\n"},
     .user = {"[INST] ", "[/INST]"},
     .assistant = {"", "</s>"}},
    {.name = "mistral-nemo",
     .markers = {"[INST]"},
     .place = SystemPlace::kLastUser,
     .system = {"", "\n\n"},
     .user = {"[INST]", "[/INST]"},
     .assistant = {"", "</s>"}},
    {.name = "llama-3.1",
     .markers = {"Cutting Knowledge Date"},
     .place = SystemPlace::kOwnTurn,
     .system = {"<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n"
                "Today Date: 26 Jul 2024\n\n",
                "<|eot_id|>"},
     .user = {"<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"},
     .assistant = {"<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"},
     .trims = true,
     .always_system = true},
    {.name = "llama-3",
     .markers = {"<|start_header_id|>"},
     .place = SystemPlace::kOwnTurn,
     .system = {"<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>"},
     .user = {"<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"},
     .assistant = {"<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"},
     .trims = true},
    {.name = "gemma",  // Gemma 2 refuses system messages; this is what Gemma 3 does with them
     .markers = {"<start_of_turn>"},
     .place = SystemPlace::kFirstUser,
     .system = {"", "\n\n"},
     .user = {"<start_of_turn>user\n", "<end_of_turn>\n"},
     .assistant = {"<start_of_turn>model\n", "<end_of_turn>\n"},
     .trims = true},
    {.name = "phi-4",
     .markers = {"<|im_sep|>"},
     .place = SystemPlace::kOwnTurn,
     .system = {"<|im_start|>system<|im_sep|>", "<|im_end|>"},
     .user = {"<|im_start|>user<|im_sep|>", "<|im_end|>"},
     .assistant = {"<|im_start|>assistant<|im_sep|>", "<|im_end|>"}},
    {.name = "chatml",
     .markers = {"<|im_start|>"},
     .place = SystemPlace::kOwnTurn,
     .system = {"<|im_start|>system\n", "<|im_end|>\n"},
     .user = {"<|im_start|>user\n", "<|im_end|>\n"},
     .assistant = {"<|im_start|>assistant\n", "<|im_end|>\n"}},
    {.name = "phi-3",
     .markers = {"<|user|>", "<|end|>"},
     .place = SystemPlace::kOwnTurn,
     .system = {"<|system|>\n", "<|end|>\n"},
     .user = {"<|user|>\n", "<|end|>\n"},
     .assistant = {"<|assistant|>\n", "<|end|>\n"}},
    {.name = "phi-4-mini",
     .markers = {"<|assistant|>", "<|end|>"},
     .place = SystemPlace::kOwnTurn,
     .system = {"<|system|>", "<|end|>"},
     .user = {"<|user|>", "<|end|>"},
     .assistant = {"<|assistant|>", "<|end|>"}},
};

const ChatFamily* find_family(std::string_view source) {
  const auto* found = std::find_if(std::begin(kFamilies), std::end(kFamilies), [&](const ChatFamily& family) {
    return contains(source, family.markers[0]) && contains(source, family.markers[1]);
  });
  return found == std::end(kFamilies) ? nullptr : found;
}

const ChatFamily* nearest_family(const Tokenizer& tokenizer) {
  const auto is_token = [&](std::string_view text) {
    return tokenizer.encode(text, {.add_special = false, .parse_special = true}).size() <= 1;  // "" is no obstacle
  };
  const auto* found = std::find_if(std::begin(kFamilies), std::end(kFamilies), [&](const ChatFamily& family) {
    return is_token(family.markers[0]) && is_token(family.markers[1]);
  });
  return found == std::end(kFamilies) ? find_family("<|im_start|>") : found;
}

}  // namespace

ChatTemplate::ChatTemplate(const gguf::File& file, const Tokenizer& tokenizer) {
  const std::string_view source = metadata_string(file, "tokenizer.chat_template", "");
  family_ = find_family(source);
  if (family_ == nullptr) {
    family_ = nearest_family(tokenizer);
    spdlog::warn("the model's chat template is {}: its messages are written as those of {} models",
                 source.empty() ? "missing" : "of an unknown family", name());
  }
  const bool begins_with_bos = source.empty() ? tokenizer.adds_bos() : contains(source, "bos_token");
  if (begins_with_bos && tokenizer.bos() >= 0) bos_ = tokenizer.piece(tokenizer.bos(), true);
  if (family_->always_system) {
    default_system_ = "";
  } else if (family_->place == SystemPlace::kOwnTurn) {
    default_system_ = literal_system(source, family_->system);
  }
}

std::string_view ChatTemplate::name() const { return family_->name; }

std::vector<TextPart> ChatTemplate::render(std::span<const Message> messages) const {
  std::vector<TextPart> parts;
  const auto add = [&](std::string_view text, bool parse_special) {
    if (!text.empty()) parts.push_back({std::string(text), parse_special});
  };
  const auto add_message = [&](const Around& around, std::string_view text) {
    add(around.open, true);
    add(family_->trims ? trimmed(text) : text, false);
    add(around.close, true);
  };
  add(bos_, true);
  std::optional<std::string> system = default_system_;
  if (!messages.empty() && messages[0].role == Message::Role::kSystem) {
    system = messages[0].text;
    messages = messages.subspan(1);
  }
  const bool own_turn = family_->place == SystemPlace::kOwnTurn;
  if (system && own_turn) add_message(family_->system, *system);
  const size_t system_at = family_->place == SystemPlace::kFirstUser ? 0 : messages.size() - 1;
  for (size_t i = 0; i < messages.size(); ++i) {
    Around around = messages[i].role == Message::Role::kUser ? family_->user : family_->assistant;
    if (system && !own_turn && i == system_at) {
      add(std::exchange(around.open, ""), true);
      add_message(family_->system, *system);
    }
    add_message(around, messages[i].text);
  }
  add(family_->assistant.open, true);
  return parts;
}

}  // namespace lamina

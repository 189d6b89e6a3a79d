// A dialogue as the text that a model was trained on. In: a model's `tokenizer.chat_template`, messages. Out: parts of
// one text, those of the template apart from those of the messages, for Tokenizer::encode_parts: what a user writes can
// never become a control token. The template is not run: it is recognised as one of a table of families.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/file.h"
#include "model/tokenizer.h"

namespace lamina {

struct Message {
  enum class Role { kSystem, kUser, kAssistant };
  Role role;
  std::string text;
};

struct ChatFamily;

class ChatTemplate {
 public:
  /// Recognises the template of `file`. A file without one, or with an unknown one, warns and gets that of the family
  /// whose control tokens its vocabulary has, or ChatML. Throws Error(kModel) when the key is not a string.
  ChatTemplate(const gguf::File& file, const Tokenizer& tokenizer);

  /// The family: "chatml", "llama-3", ...
  std::string_view name() const;

  /// The dialogue so far, up to where the next answer begins. `messages`: perhaps a system message, then user and
  /// assistant in turn, a user's last.
  std::vector<TextPart> render(std::span<const Message> messages) const;

 private:
  const ChatFamily* family_;
  std::string bos_;                            ///< the text's first token; empty when there is none
  std::optional<std::string> default_system_;  ///< where the dialogue has no system message
};

}  // namespace lamina

// Reads the vocabulary of a GGUF file and checks it: see vocabulary.h.
// In: the tokenizer.ggml.* metadata. Out: a Vocabulary, or an Error(kModel) that names key and value.
#include "model/vocabulary.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <string>

#include "gguf/error.h"

namespace lamina {
namespace {

// A token with one of these texts ends a generation and is a control token, whatever type the file gives it (converters
// give wrong ones). From the tokenizer_config.json files of the model families.
constexpr auto kEndTexts = std::to_array<std::string_view>({"<|eot_id|>",
                                                            "<|im_end|>",
                                                            "<|end|>",
                                                            "<|return|>",
                                                            "<|call|>",
                                                            "<|calls|>",
                                                            "<|flush|>",
                                                            "<end_of_turn>",
                                                            "<turn|>",
                                                            "<|tool_response>",
                                                            "<|endoftext|>",
                                                            "</s>",
                                                            "<|eom_id|>",
                                                            "<|end_of_text|>",
                                                            "<EOT>",
                                                            "_<EOT>",
                                                            "[EOT]",
                                                            "[EOS]",
                                                            "<eos>",
                                                            "<｜end▁of▁sentence｜>",
                                                            "<end_of_utterance>",
                                                            "[e~["});

// Tokens of fill-in-the-middle prompts: control tokens as well.
constexpr auto kInfillTexts = std::to_array<std::string_view>(
    {"<|fim_prefix|>",  "<|fim_suffix|>", "<|fim_middle|>",  "<|fim_pad|>",    "<|repo_name|>", "<|file_sep|>",
     "<fim_prefix>",    "<fim_suffix>",   "<fim_middle>",    "<fim_pad>",      "<fim-prefix>",  "<fim-suffix>",
     "<fim-middle>",    "<fim-pad>",      "<PRE>",           "<SUF>",          "<MID>",         "▁<PRE>",
     "▁<SUF>",          "▁<MID>",         "<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", "<|code_prefix|>",
     "<|code_suffix|>", "<|code_middle|>"});

[[noreturn]] void refuse(const gguf::File& file, std::string_view key, std::string_view why) {
  fail(ErrorKind::kModel, "{}: {} {}", printable(file.path(), 200), printable(key), why);
}

/// The token id under `key`: nothing when the key is missing, -1 when it says "none" (all bits set).
std::optional<int32_t> metadata_token(const gguf::File& file, std::string_view key, int32_t n_tokens) {
  const gguf::Value* value = file.find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* number = std::get_if<uint64_t>(value)) {
    if (*number < static_cast<uint64_t>(n_tokens)) return static_cast<int32_t>(*number);
    if (*number == UINT32_MAX) return -1;
    refuse(file, key, fmt::format("is {}, but there are {} tokens", *number, n_tokens));
  }
  if (const auto* number = std::get_if<int64_t>(value)) {
    if (*number >= -1 && *number < n_tokens) return static_cast<int32_t>(*number);
    refuse(file, key, fmt::format("is {}, but there are {} tokens", *number, n_tokens));
  }
  refuse(file, key, "is not an integer");
}

const gguf::Array* metadata_array(const gguf::File& file, std::string_view key) {
  const gguf::Value* value = file.find(key);
  if (value == nullptr) return nullptr;
  const auto* array = std::get_if<gguf::Array>(value);
  if (array == nullptr) refuse(file, key, "is not an array");
  return array;
}

/// The array under `key`, which has one item a token; nullptr when it is missing.
const gguf::Array* metadata_per_token(const gguf::File& file, std::string_view key, int32_t n_tokens) {
  const gguf::Array* array = metadata_array(file, key);
  if (array != nullptr && array->size() != static_cast<size_t>(n_tokens)) {
    refuse(file, key, fmt::format("has {} items, but there are {} tokens", array->size(), n_tokens));
  }
  return array;
}

std::vector<TokenType> read_types(const gguf::File& file, int32_t n_tokens) {
  constexpr std::string_view kKey = "tokenizer.ggml.token_type";
  std::vector<TokenType> types(n_tokens, TokenType::kNormal);
  const gguf::Array* array = metadata_per_token(file, kKey, n_tokens);
  if (array == nullptr) return types;
  const auto take = [&](const auto& items) {
    for (int32_t i = 0; i < n_tokens; ++i) {
      if (static_cast<uint64_t>(items[i]) > static_cast<uint64_t>(TokenType::kByte)) {
        refuse(file, fmt::format("{}[{}]", kKey, i), fmt::format("is {}, not 0 to 6", items[i]));
      }
      types[i] = static_cast<TokenType>(items[i]);
    }
  };
  if (const auto* items = std::get_if<std::vector<int64_t>>(&array->items)) {
    take(*items);
  } else if (const auto* unsigned_items = std::get_if<std::vector<uint64_t>>(&array->items)) {
    take(*unsigned_items);
  } else {
    refuse(file, kKey, "is not an array of integers");
  }
  return types;
}

std::vector<float> read_scores(const gguf::File& file, int32_t n_tokens) {
  constexpr std::string_view kKey = "tokenizer.ggml.scores";
  const gguf::Array* array = metadata_per_token(file, kKey, n_tokens);
  if (array == nullptr) return {};
  const auto* items = std::get_if<std::vector<double>>(&array->items);
  if (items == nullptr) refuse(file, kKey, "is not an array of floats");
  for (int32_t i = 0; i < n_tokens; ++i) {
    if (std::isnan((*items)[i])) refuse(file, fmt::format("{}[{}]", kKey, i), "is not a number");
  }
  return {items->begin(), items->end()};
}

/// Whether the file is one of the Phi-3 family, whose tokenizer.json gives its added tokens "rstrip"; GGUF has no key
/// for it.
bool is_phi3(const gguf::File& file) {
  std::string name(metadata_string(file, "general.name", ""));
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name.find("phi-3") != std::string::npos || name.find("phi3") != std::string::npos;
}

/// Whether `<mask>` takes the white space before it, as in the tokenizer.json of these models.
bool has_lstrip_mask(const gguf::File& file) {
  const std::string_view pre = metadata_string(file, "tokenizer.ggml.pre", "");
  return pre == "jina-v2-de" || pre == "jina-v2-es" || pre == "jina-v2-code";
}

}  // namespace

std::string_view metadata_string(const gguf::File& file, std::string_view key, std::string_view fallback) {
  const gguf::Value* value = file.find(key);
  if (value == nullptr) return fallback;
  const auto* text = std::get_if<std::string_view>(value);
  if (text == nullptr) refuse(file, key, "is not a string");
  return *text;
}

std::optional<bool> metadata_bool(const gguf::File& file, std::string_view key) {
  const gguf::Value* value = file.find(key);
  if (value == nullptr) return std::nullopt;
  const auto* flag = std::get_if<bool>(value);
  if (flag == nullptr) refuse(file, key, "is not a boolean");
  return *flag;
}

const std::vector<std::string_view>* metadata_strings(const gguf::File& file, std::string_view key) {
  const gguf::Array* array = metadata_array(file, key);
  if (array == nullptr) return nullptr;
  const auto* items = std::get_if<std::vector<std::string_view>>(&array->items);
  if (items == nullptr) refuse(file, key, "is not an array of strings");
  return items;
}

Vocabulary Vocabulary::read(const gguf::File& file, const VocabularyDefaults& defaults) {
  Vocabulary vocabulary;
  vocabulary.read_texts(file);
  const int32_t n_tokens = vocabulary.size();
  vocabulary.types_ = read_types(file, n_tokens);
  vocabulary.scores_ = read_scores(file, n_tokens);
  const auto token = [&](std::string_view key, int32_t fallback) {
    return metadata_token(file, key, n_tokens).value_or(fallback < n_tokens ? fallback : -1);
  };
  vocabulary.bos = token("tokenizer.ggml.bos_token_id", defaults.bos);
  vocabulary.eos = token("tokenizer.ggml.eos_token_id", defaults.eos);
  vocabulary.unknown = token("tokenizer.ggml.unknown_token_id", defaults.unknown);
  vocabulary.add_bos = metadata_bool(file, "tokenizer.ggml.add_bos_token").value_or(defaults.add_bos);
  vocabulary.add_eos = metadata_bool(file, "tokenizer.ggml.add_eos_token").value_or(false);
  vocabulary.add_space_prefix =
      metadata_bool(file, "tokenizer.ggml.add_space_prefix").value_or(defaults.add_space_prefix);
  vocabulary.is_end_.resize(n_tokens);
  for (const int32_t end :
       {vocabulary.eos, token("tokenizer.ggml.eot_token_id", -1), token("tokenizer.ggml.eom_token_id", -1)}) {
    if (end >= 0) vocabulary.is_end_[end] = true;
  }
  vocabulary.mark_special_texts();
  vocabulary.collect_added_tokens(file);
  return vocabulary;
}

void Vocabulary::read_texts(const gguf::File& file) {
  constexpr std::string_view kKey = "tokenizer.ggml.tokens";
  // Ten times what the largest vocabularies have: memory grows with both.
  constexpr size_t kMostTokens = size_t{1} << 22, kMostBytes = size_t{1} << 26;
  const auto* items = metadata_strings(file, kKey);
  if (items == nullptr) refuse(file, kKey, "is missing");
  if (items->empty() || items->size() > kMostTokens) {
    refuse(file, kKey, fmt::format("has {} items, not 1 to {}", items->size(), kMostTokens));
  }
  size_t n_bytes = 0;
  for (const std::string_view text : *items) n_bytes += text.size();
  if (n_bytes > kMostBytes) refuse(file, kKey, fmt::format("has {} bytes, the limit is {}", n_bytes, kMostBytes));
  texts_.reserve(items->size(), n_bytes);
  constexpr size_t kAhead = 8;
  for (size_t i = 0; i < items->size(); ++i) {
    texts_.prefetch((*items)[std::min(i + kAhead, items->size() - 1)]);
    texts_.add((*items)[i]);
  }
}

void Vocabulary::mark_special_texts() {
  for (const std::string_view text : kEndTexts) {
    const int32_t token = find(text);
    if (token < 0) continue;
    is_end_[token] = true;
    types_[token] = TokenType::kControl;
  }
  // gpt-oss: there <|end|> closes a message of several, and the answer goes on.
  if (const int32_t end = find("<|end|>"); end >= 0 && find("<|return|>") >= 0 && find("<|call|>") >= 0) {
    is_end_[end] = false;
  }
  for (const std::string_view text : kInfillTexts) {
    const int32_t token = find(text);
    if (token >= 0) types_[token] = TokenType::kControl;
  }
}

void Vocabulary::collect_added_tokens(const gguf::File& file) {
  // A text may begin with one at every position, and each byte takes some 50 bytes of memory.
  constexpr size_t kLongest = 1024, kMostBytes = size_t{1} << 22;
  size_t n_bytes = 0;
  const bool phi3 = is_phi3(file), lstrip_mask = has_lstrip_mask(file);
  for (int32_t i = 0; i < size(); ++i) {
    const bool control = type(i) == TokenType::kControl || type(i) == TokenType::kUnknown;
    if ((!control && type(i) != TokenType::kUserDefined) || text(i).empty()) continue;
    n_bytes += text(i).size();
    if (text(i).size() > kLongest || n_bytes > kMostBytes) {
      refuse(file, fmt::format("tokenizer.ggml.tokens[{}]", i),
             fmt::format("is a special token of {} bytes (all so far: {}), the limits are {} and {}", text(i).size(),
                         n_bytes, kLongest, kMostBytes));
    }
    const bool rstrip = phi3 && text(i) != "<unk>" && text(i) != "<s>" && text(i) != "<|endoftext|>";
    added_.add(text(i), {i, control, lstrip_mask && text(i) == "<mask>", rstrip});
  }
}

}  // namespace lamina

// `lamina tokenize MODEL (TEXT | --jsonl FILE)`: token ids of a text.
// In: a text, or with --jsonl one object {"text": ...} a line. Out on stdout: one JSON array of ids a text.
#include <fmt/format.h>

#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "gguf/error.h"
#include "gguf/file.h"
#include "model/tokenizer.h"
#include "tools/metadata_options.h"
#include "tools/model_options.h"
#include "tools/terminal.h"
#include "tools/verbs.h"

namespace lamina {
namespace {

struct TokenizeArguments {
  std::string model, text, jsonl;
  MetadataOptions metadata;
  EncodeOptions encode;
};

void print_ids(const std::vector<int32_t>& ids) {
  fmt::memory_buffer line;
  fmt::format_to(std::back_inserter(line), "[{}]\n", fmt::join(ids, ", "));
  print_stdout({line.data(), line.size()});
}

/// The value of "text" in one line of JSON; `name` and `number` say which line it is.
std::string text_of_line(const std::string& line, const std::string& name, size_t number) {
  try {
    const auto object = nlohmann::json::parse(line);
    if (object.is_object() && object.contains("text") && object["text"].is_string()) {
      return object["text"].get<std::string>();
    }
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorKind::kModel, "{}: line {} is not JSON: {}", printable(name, 200), number, printable(error.what(), 200));
  }
  fail(ErrorKind::kModel, "{}: line {} is not an object with a string \"text\"", printable(name, 200), number);
}

void tokenize(const TokenizeArguments& arguments) {
  gguf::File model = gguf::File::open(find_model(arguments.model));
  set_metadata(model, arguments.metadata);
  const auto tokenizer = Tokenizer::create(model);
  if (arguments.jsonl.empty()) {
    print_ids(tokenizer->encode(arguments.text, arguments.encode));
  } else {
    std::ifstream file;
    const bool is_stdin = arguments.jsonl == "-";
    if (!is_stdin) file.open(arguments.jsonl, std::ios::binary);
    std::istream& lines = is_stdin ? std::cin : file;
    std::string line;
    if (!lines || (!is_stdin && file.peek() == EOF && !file.eof())) {
      fail(ErrorKind::kModel, "{} cannot be read", printable(arguments.jsonl, 200));
    }
    for (size_t number = 1; std::getline(lines, line); ++number) {
      print_ids(tokenizer->encode(text_of_line(line, arguments.jsonl, number), arguments.encode));
    }
    if (lines.bad()) fail(ErrorKind::kModel, "{} cannot be read to its end", printable(arguments.jsonl, 200));
  }
  flush_stdout();
}

}  // namespace

void add_tokenize(CLI::App& app) {
  auto arguments = std::make_shared<TokenizeArguments>();
  CLI::App* verb = app.add_subcommand("tokenize", "Print the token ids of a text");
  verb->add_option("MODEL", arguments->model, "a GGUF file, or the name of a fetched model")->required();
  add_override_option(*verb, arguments->metadata);
  auto* text = verb->add_option("TEXT", arguments->text, "the text");
  auto* jsonl = verb->add_option("--jsonl", arguments->jsonl,
                                 "one {\"text\": ...} a line in, one array of ids a line out; - is stdin");
  jsonl->type_name("FILE")->excludes(text);
  verb->add_flag("--add-special", arguments->encode.add_special, "put bos and eos where the model asks for them");
  verb->add_flag("--parse-special", arguments->encode.parse_special, "control tokens in the text become their ids");
  verb->callback([arguments, text, jsonl] {
    if (text->empty() && jsonl->empty()) throw CLI::RequiredError("TEXT or --jsonl FILE");
    tokenize(*arguments);
  });
}

}  // namespace lamina

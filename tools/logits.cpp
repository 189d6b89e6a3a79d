// `lamina logits`: token ids in, raw logits out. In: ids separated by blanks. Out: float32 [n_tokens, n_vocab],
// little-endian, written as it is computed to a file beside --out that gets its name only when it is complete.

#include <bit>
#include <cctype>
#include <charconv>
#include <string>
#include <vector>

#include "engine/session.h"
#include "gguf/error.h"
#include "gguf/whole_file.h"
#include "tools/model_options.h"
#include "tools/signal_flag.h"
#include "tools/terminal.h"
#include "tools/verbs.h"

static_assert(std::endian::native == std::endian::little, "logits are written as they lie in memory");

namespace lamina {
namespace {

/// The ids in `text`; refuses what is no number or no id of any vocabulary, naming its position.
std::vector<int32_t> parse_ids(const std::string& text, const std::string& path) {
  std::vector<int32_t> ids;
  const auto is_blank = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  for (size_t begin = 0; begin < text.size();) {
    if (is_blank(text[begin])) {
      ++begin;
      continue;
    }
    size_t end = begin;
    while (end < text.size() && !is_blank(text[end])) ++end;
    const std::string word = text.substr(begin, end - begin);
    int32_t id = 0;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || stop != word.data() + word.size() || id < 0) {
      fail(ErrorKind::kModel, "'{}': '{}' at position {} is not a token id", printable(path), printable(word, 30),
           ids.size());
    }
    ids.push_back(id);
    begin = end;
  }
  if (ids.empty()) fail(ErrorKind::kModel, "'{}' holds no token ids", printable(path));
  return ids;
}

struct LogitsOptions {
  ModelOptions model;
  std::string tokens, out;
};

void write_logits(const LogitsOptions& options) {
  const std::vector<int32_t> ids = parse_ids(read_text(options.tokens, ErrorKind::kModel), options.tokens);
  const SignalFlag signals;
  const auto engine =
      load_engine(options.model,
                  {.n_ctx_least = static_cast<uint32_t>(ids.size()), .all_logits = true, .tokenizer = false}, signals);
  WholeFile out(options.out);
  Session session(*engine);
  const Feed feed{&session, ids, 0};
  evaluate(
      *engine, {&feed, 1},
      [&](size_t, uint32_t, std::span<const float> logits, int32_t) { out.write(std::as_bytes(logits)); },
      signals.flag());
  signals.check();
  out.finish();
}

}  // namespace

void add_logits(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("logits", "Write the logits after each token of a list of ids");
  const auto options = std::make_shared<LogitsOptions>();
  add_model_options(*verb, options->model);
  add_context_option(*verb, options->model);
  verb->add_option("--tokens", options->tokens, "file with token ids, separated by blanks (- : standard input)")
      ->required();
  verb->add_option("--out", options->out, "file for float32 [n_tokens, n_vocab], little-endian")->required();
  verb->callback([options] { write_logits(*options); });
}

}  // namespace lamina

// `lamina run`: continues a text. In: a prompt from -p, -f or standard input. Out: the continuation on standard output
// and nothing else there; rates, the reason of an early end and log-probabilities on standard error.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/generate.h"
#include "engine/logprobs.h"
#include "engine/utf8_stream.h"
#include "gguf/error.h"
#include "model/chat_template.h"
#include "tools/generation_report.h"
#include "tools/model_options.h"
#include "tools/sampling_options.h"
#include "tools/signal_flag.h"
#include "tools/terminal.h"
#include "tools/verbs.h"

namespace lamina {
namespace {

struct RunOptions {
  ModelOptions model;
  std::string prompt, prompt_file;
  bool has_prompt = false;  ///< -p was given, perhaps empty
  bool escapes = false;
  bool parse_special = false;
  bool chat = false;
  std::string system;
  bool has_system = false;  ///< --system was given, perhaps empty
  int64_t n_predict = -1;
  SamplingFlags sampling;
  std::vector<std::string> stop;
  size_t n_logprobs = 0;
};

/// Replaces \n \r \t \\ \' \" ; other backslashes stay.
std::string unescape(const std::string& text) {
  constexpr std::string_view kNames = "nrt\\'\"", kValues = "\n\r\t\\'\"";
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t which = text[i] == '\\' && i + 1 < text.size() ? kNames.find(text[i + 1]) : std::string_view::npos;
    if (which == std::string_view::npos) {
      out += text[i];
    } else {
      out += kValues[which];
      ++i;
    }
  }
  return out;
}

std::string read_prompt(const RunOptions& options) {
  if (options.has_prompt == !options.prompt_file.empty()) {
    fail(ErrorKind::kUsage, "run: give the prompt with one of -p TEXT, -p - (standard input) or -f FILE");
  }
  if (!options.has_prompt) return read_text(options.prompt_file, ErrorKind::kUsage);
  if (options.prompt == "-") return read_text("-", ErrorKind::kUsage);
  return options.escapes ? unescape(options.prompt) : options.prompt;
}

/// Ids of the prompt, with a beginning-of-text token where the model wants one or nothing else is there. No end token,
/// even where the file asks for one: the text goes on.
std::vector<int32_t> prompt_tokens(const Tokenizer& tokenizer, const std::string& prompt, bool parse_special) {
  std::vector<int32_t> tokens = tokenizer.encode(prompt, {.add_special = false, .parse_special = parse_special});
  const bool wants_bos = tokenizer.adds_bos() || tokens.empty();
  if (wants_bos && tokenizer.bos() >= 0) tokens.insert(tokens.begin(), tokenizer.bos());
  if (tokens.empty()) fail(ErrorKind::kUsage, "the prompt is empty, and the model has no token to begin a text with");
  return tokens;
}

/// Ids of a dialogue in which `prompt` is the first message to be answered.
std::vector<int32_t> chat_tokens(const Engine& engine, const RunOptions& options, const std::string& prompt) {
  std::vector<Message> messages;
  if (options.has_system) messages.push_back({Message::Role::kSystem, options.system});
  messages.push_back({Message::Role::kUser, prompt});
  return engine.tokenizer().encode_parts(ChatTemplate(engine.file(), engine.tokenizer()).render(messages));
}

/// {"id": ..., "token": text, "bytes": [...], "logprob": ...}; what of the bytes is no UTF-8 is U+FFFD in the text.
nlohmann::ordered_json logprob_json(const Tokenizer& tokenizer, const TokenLogprob& entry) {
  const std::string piece = tokenizer.piece(entry.token, true);
  Utf8Stream text;
  const std::string whole = text.push(piece);
  return {{"id", entry.token},
          {"token", whole + text.finish()},
          {"bytes", std::vector<uint8_t>(piece.begin(), piece.end())},
          {"logprob", entry.logprob}};
}

/// A line for `token` on standard error: its entry, and those of the n best tokens as "top_logprobs".
void print_logprobs(const Tokenizer& tokenizer, int32_t token, std::span<const float> logits, size_t n) {
  const std::vector<TokenLogprob> entries = log_probabilities(logits, token, n);
  nlohmann::ordered_json line = logprob_json(tokenizer, entries[0]);
  line["top_logprobs"] = nlohmann::ordered_json::array();
  for (size_t i = 1; i < entries.size(); ++i) line["top_logprobs"].push_back(logprob_json(tokenizer, entries[i]));
  fmt::print(stderr, "{}\n", line.dump());
}

void run_prompt(const RunOptions& options) {
  const std::string prompt = read_prompt(options);
  const SignalFlag signals;
  const auto engine = load_engine(options.model, {}, signals);
  std::vector<int32_t> tokens = options.chat ? chat_tokens(*engine, options, prompt)
                                             : prompt_tokens(engine->tokenizer(), prompt, options.parse_special);
  Sampler sampler(choose_sampling(options.sampling, engine->file(), asks_for_sampling(options.sampling)));
  GenerateOptions how{
      .n_predict = options.n_predict, .cancel = signals.flag(), .sampler = &sampler, .stop = options.stop};
  if (options.n_logprobs != 0) {
    how.on_token = [&](int32_t token, std::span<const float> logits) {
      print_logprobs(engine->tokenizer(), token, logits, options.n_logprobs);
    };
  }
  Session session(*engine);
  char last = '\n';
  const Generation result = generate(session, tokens, how, [&last](std::string_view text) {
    last = text.back();
    write_model_text(text);
  });
  if (last != '\n') write_stdout("\n");
  report_generation(result, *engine, options.model);
  if (result.reason == EndReason::kCancelled) signals.check();
}

}  // namespace

void add_run(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("run", "Continue a text");
  const auto options = std::make_shared<RunOptions>();
  add_model_options(*verb, options->model);
  add_context_option(*verb, options->model);
  CLI::Option* prompt = verb->add_option("-p,--prompt", options->prompt, "the text (- : standard input)");
  verb->add_option("-f,--file", options->prompt_file, "file that holds the text");
  verb->add_flag("-e,--escape", options->escapes, "replace \\n, \\r, \\t, \\\\, \\' and \\\" in -p");
  verb->add_option("-n,--n-predict", options->n_predict,
                   "tokens to make (default -1: until the text or the context ends)")
      ->check(CLI::Range(int64_t{-1}, int64_t{1} << 40));
  CLI::Option* special =
      verb->add_flag("--parse-special", options->parse_special, "control tokens written in the text count as such");
  CLI::Option* chat =
      verb->add_flag("--chat", options->chat, "the text is a message: answer it, by the model's template");
  chat->excludes(special);
  CLI::Option* system = verb->add_option("--system", options->system, "system message for --chat")->needs(chat);
  add_stop_option(*verb, options->stop);
  verb->add_option("--logprobs", options->n_logprobs, "a JSON line a token on stderr, with the N best")
      ->check(CLI::Range(1, 1000));
  add_sampling_options(*verb, options->sampling);
  verb->footer(
      "Greedy: the most probable token is taken, unless --temp, --top-k, --top-p, --min-p or --seed asks for "
      "sampling;\nthen the others take the model's values, or these. Order: penalties, top-k, top-p, min-p, "
      "temperature.");
  verb->callback([options, prompt, system] {
    options->has_prompt = prompt->count() > 0;
    options->has_system = system->count() > 0;
    run_prompt(*options);
  });
}

}  // namespace lamina

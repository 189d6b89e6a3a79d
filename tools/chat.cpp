// `lamina chat`: a dialogue, one line a message. In: lines of standard input. Out: the answers on standard output and
// nothing else there; on standard error the prompt and rates when somebody types, and what happens to a full context.
// Ctrl-C stops an answer and leaves at the prompt, end of input leaves.
#include <fmt/format.h>

#include <csignal>
#include <string>
#include <vector>

#include "engine/generate.h"
#include "engine/model_label.h"
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

struct ChatOptions {
  ModelOptions model;
  std::string system;
  bool has_system = false;  ///< --system was given, perhaps empty
  int64_t n_predict = -1;
  SamplingFlags sampling;
  std::vector<std::string> stop;
};

class Chat {
 public:
  Chat(Engine& engine, const ChatOptions& options)
      : engine_(engine),
        options_(options),
        template_(engine.file(), engine.tokenizer()),
        session_(engine),
        sampler_(choose_sampling(options.sampling, engine.file(), true)) {
    if (options.has_system) messages_.push_back({Message::Role::kSystem, options.system});
  }

  void run() {
    if (interactive_ && !options_.model.quiet) {
      fmt::print(stderr, "{}, context {}, messages as {}\nCtrl-C stops an answer, Ctrl-D leaves.\n",
                 printable(model_label(engine_.file())), engine_.n_ctx(), template_.name());
    }
    while (const std::optional<std::string> line = next_line()) {
      if (line->empty()) continue;
      messages_.push_back({Message::Role::kUser, *line});
      try {
        answer();
      } catch (const Error& error) {
        if (!interactive_ || error.kind() != ErrorKind::kUsage) throw;
        fmt::print(stderr, "lamina: {}\n", error.what());  // a message that is too long: the next may be shorter
        messages_.pop_back();
      }
    }
  }

 private:
  std::optional<std::string> next_line() const {
    if (interactive_) fmt::print(stderr, ">>> ");
    std::optional<std::string> line = read_line();
    if (interactive_ && !line) fmt::print(stderr, "\n");
    return line;
  }

  /// The whole dialogue; the session finds out what of it is new. A dialogue of more than three quarters of the context
  /// loses its oldest turns until it takes no more than half: after that many answers need no further loss.
  std::vector<int32_t> dialogue_tokens() {
    const auto tokens_of = [this] { return engine_.tokenizer().encode_parts(template_.render(messages_)); };
    std::vector<int32_t> tokens = tokens_of();
    const uint32_t n_ctx = engine_.n_ctx();
    if (tokens.size() <= n_ctx - n_ctx / 4) return tokens;
    const size_t first = options_.has_system ? 1 : 0;
    const size_t n_turns = (messages_.size() - first + 1) / 2;  // the last has no answer yet
    size_t n_dropped = 0;
    for (; tokens.size() > n_ctx / 2 && n_dropped + 1 < n_turns; ++n_dropped) {
      const auto oldest = messages_.begin() + static_cast<ptrdiff_t>(first);
      messages_.erase(oldest, oldest + 2);
      tokens = tokens_of();
    }
    if (n_dropped > 0 && !options_.model.quiet) {
      fmt::print(stderr, "lamina: the context of {} tokens is nearly full (raise it with -c): forgot {} of {} turns\n",
                 n_ctx, n_dropped, n_turns);
    }
    return tokens;
  }

  void answer() {
    std::vector<int32_t> tokens = dialogue_tokens();
    const SignalFlag signals;
    std::string said;
    const GenerateOptions how{
        .n_predict = options_.n_predict, .cancel = signals.flag(), .sampler = &sampler_, .stop = options_.stop};
    const Generation result = generate(session_, tokens, how, [&said](std::string_view text) {
      said += text;
      write_model_text(text);
    });
    if (!said.ends_with('\n')) write_stdout("\n");
    report_generation(result, engine_, options_.model);
    if (result.reason == EndReason::kCancelled) {
      if (!interactive_ || signals.signal() != SIGINT) signals.check();
      if (said.empty()) return messages_.pop_back();  // stopped before there was an answer: not asked
    }
    messages_.push_back({Message::Role::kAssistant, said});
  }

  Engine& engine_;
  const ChatOptions& options_;
  const ChatTemplate template_;
  Session session_;
  Sampler sampler_;
  std::vector<Message> messages_;
  const bool interactive_ = is_interactive();
};

}  // namespace

void add_chat(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("chat", "Talk with a model, one line a message");
  const auto options = std::make_shared<ChatOptions>();
  add_model_options(*verb, options->model);
  add_context_option(*verb, options->model);
  CLI::Option* system = verb->add_option("--system", options->system, "system message: what the model is to be");
  verb->add_option("-n,--n-predict", options->n_predict,
                   "tokens of an answer at most (default -1: until it or the context ends)")
      ->check(CLI::Range(int64_t{-1}, int64_t{1} << 40));
  add_stop_option(*verb, options->stop);
  add_sampling_options(*verb, options->sampling);
  verb->footer("Tokens are drawn, by the model's values or these, unless --temp is 0.");
  verb->callback([options, system] {
    options->has_system = system->count() > 0;
    const auto engine = load_engine(options->model, {}, SignalFlag());
    Chat(*engine, *options).run();
  });
}

}  // namespace lamina

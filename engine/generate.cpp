// One pass: evaluate the prefix, choose a token, append it, say it.
#include "engine/generate.h"

#include <chrono>

#include "engine/stop_stream.h"
#include "engine/utf8_stream.h"

namespace lamina {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Generation generate(Session& session, std::vector<int32_t>& tokens, const GenerateOptions& options,
                    const std::function<void(std::string_view text)>& emit) {
  using Clock = std::chrono::steady_clock;
  const Tokenizer& tokenizer = session.engine().tokenizer();
  Generation result;
  Utf8Stream characters;
  StopStream text(options.stop);
  const auto say = [&](const std::string& complete) {
    if (!complete.empty()) emit(complete);
  };

  const auto evaluate = [&] {
    const uint32_t n_vocab = session.engine().n_vocab();
    const bool all = static_cast<bool>(options.on_token);
    const uint32_t n_best = all ? 0 : options.sampler != nullptr ? options.sampler->n_best(tokens, n_vocab) : 1;
    return session.evaluate(tokens, options.cancel, n_best);
  };

  const auto prompt_start = Clock::now();
  bool running = evaluate();
  result.prompt_seconds = seconds_since(prompt_start);
  result.n_prompt = static_cast<uint32_t>(tokens.size()) - session.n_reused();

  const auto generate_start = Clock::now();
  while (true) {
    if (!running) {
      result.reason = EndReason::kCancelled;
      break;
    }
    if (options.n_predict >= 0 && result.n_generated >= options.n_predict) {
      result.reason = EndReason::kLimit;
      break;
    }
    const int32_t token = options.sampler != nullptr ? options.sampler->next(session) : session.argmax();
    if (tokenizer.is_end(token)) {
      result.reason = EndReason::kEndToken;
      break;
    }
    tokens.push_back(token);
    ++result.n_generated;
    if (options.on_token) options.on_token(token, session.logits());
    // A model's output may be padded beyond its vocabulary; such tokens have no text.
    if (token < tokenizer.n_tokens()) say(text.push(characters.push(tokenizer.piece(token, false))));
    if (text.stopped()) {
      result.reason = EndReason::kStop;
      break;
    }
    if (options.n_predict >= 0 && result.n_generated >= options.n_predict) continue;  // needs no further step
    if (tokens.size() > session.engine().n_ctx()) {
      result.reason = EndReason::kContext;
      break;
    }
    running = evaluate();
    if (running) ++result.n_steps;
  }
  result.generate_seconds = seconds_since(generate_start);
  say(text.push(characters.finish()));
  say(text.finish());
  return result;
}

}  // namespace lamina

// `lamina verify`: walks a model's program on a device and on the scalar reference and names the first op whose results
// differ. Out: on stdout that all ops agree, or the op and the numbers, with exit code 1.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "engine/trace.h"
#include "gguf/error.h"
#include "kernels/reference/reference_device.h"
#include "tools/model_options.h"
#include "tools/signal_flag.h"
#include "tools/terminal.h"
#include "tools/verbs.h"

namespace lamina {
namespace {

struct VerifyOptions {
  ModelOptions model;
  std::optional<std::string> prompt;
};

/// Without a prompt: enough tokens for a prompt that fills no tile of rows, and one more.
constexpr uint32_t kDefaultTokens = 14;

std::vector<int32_t> tokens_of(const VerifyOptions& options, const Engine& engine) {
  std::vector<int32_t> tokens;
  if (options.prompt) tokens = engine.tokenizer().encode(*options.prompt, {.add_special = true});
  const uint32_t n = std::min(kDefaultTokens, engine.n_ctx());
  for (uint32_t i = 0; !options.prompt && i < n; ++i) {
    tokens.push_back(static_cast<int32_t>(uint64_t{i} * 2654435761u % engine.n_vocab()));  // all over the vocabulary
  }
  if (tokens.empty()) fail(ErrorKind::kUsage, "verify: the text has no tokens");
  if (tokens.size() > engine.n_ctx()) {
    fail(ErrorKind::kUsage, "{} tokens do not fit the context of {} (raise it with -c)", tokens.size(), engine.n_ctx());
  }
  return tokens;
}

void verify(const VerifyOptions& options) {
  const SignalFlag signals;
  const auto engine = load_engine(options.model, {.tokenizer = options.prompt.has_value()}, signals);
  const std::vector<int32_t> tokens = tokens_of(options, *engine);
  const auto n_tokens = static_cast<uint32_t>(tokens.size());
  const Capacity capacity{
      .max_rows = n_tokens, .max_outputs = 1, .n_pages = pages_for(n_tokens), .kv_type = kv_type(options.model)};
  const Program& program = engine->program();
  const auto reference = make_reference_device()->compile(program, engine->file(), capacity, {});
  const auto found = find_difference(*engine, *reference, tokens, signals.flag());
  signals.check();
  const std::string device = engine->device().name();
  if (!found) {
    write_stdout(fmt::format("all {} ops agree: {} and the reference wrote the same bits for {} tokens\n",
                             program.ops.size(), device, n_tokens));
    return;
  }
  const TracedValue& got = found->got;
  write_stdout(
      fmt::format("op {} of {} differs, in a step of {} rows from position {}:\n"
                  "  {}\n"
                  "  {}, row {}, column {}: {} has {} ({:a}), the reference {} ({:a})\n"
                  "  {} of {} values differ; they should be equal in every bit\n",
                  got.op, program.ops.size(), found->n_rows, found->position, to_text(program, program.ops[got.op]),
                  name_of(program, got.place), got.row, got.col, device, got.value, got.value, found->expected,
                  found->expected, found->n_differ, found->n_values));
  fail(ErrorKind::kRuntime, "verify: op {} differs between {} and the reference", got.op, device);
}

}  // namespace

void add_verify(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("verify", "Compare a device with the scalar reference, op by op");
  const auto options = std::make_shared<VerifyOptions>();
  add_model_options(*verb, options->model);
  add_context_option(*verb, options->model);
  verb->add_option("-p,--prompt", options->prompt, "text to run (default: some tokens from all over the vocabulary)");
  verb->callback([options] { verify(*options); });
}

}  // namespace lamina

// Shared by `run` and `chat`.
#include "tools/generation_report.h"

#include <fmt/format.h>

#include "tools/terminal.h"

namespace lamina {
namespace {

double rate(uint32_t n, double seconds) { return seconds > 0 ? n / seconds : 0; }

}  // namespace

void report_generation(const Generation& result, const Engine& engine, const ModelOptions& options) {
  if (result.reason == EndReason::kContext && !options.quiet) {
    fmt::print(stderr, "lamina: the context of {} tokens is full (raise it with -c)\n", engine.n_ctx());
  }
  if (options.quiet || !(options.verbose || stderr_is_terminal())) return;
  fmt::print(stderr, "prompt {} tokens, {:.1f} tokens/s; generated {} tokens, {:.1f} tokens/s\n", result.n_prompt,
             rate(result.n_prompt, result.prompt_seconds), result.n_generated,
             rate(result.n_steps, result.generate_seconds));
}

}  // namespace lamina

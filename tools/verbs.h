// The verbs of the `lamina` binary. Each `add_*` registers one subcommand with its options; its callback does the work
// and throws lamina::Error on failure. One file per verb.
#pragma once
#include <CLI/CLI.hpp>

namespace lamina {

void add_bench(CLI::App& app);
void add_chat(CLI::App& app);
void add_devices(CLI::App& app);
void add_inspect(CLI::App& app);
void add_logits(CLI::App& app);
void add_ops(CLI::App& app);
void add_pull(CLI::App& app);
void add_perplexity(CLI::App& app);
void add_run(CLI::App& app);
void add_tokenize(CLI::App& app);
void add_verify(CLI::App& app);

}  // namespace lamina

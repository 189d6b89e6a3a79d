// Options that say how the next token is chosen and where a text ends: --temp, --top-k, ..., --stop. In: a verb's
// CLI::App, later the model's file. Out: SamplerOptions in which a flag goes before the model's `general.sampling.*`
// keys, and those before the built-in values.
#pragma once
#include <CLI/CLI.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/sampler.h"

namespace lamina {

/// What was given on the command line.
struct SamplingFlags {
  std::optional<double> temp, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty;
  std::optional<int32_t> top_k, repeat_last_n;
  std::optional<int64_t> seed;  ///< -1: a random one
};

/// Adds --temp, --top-k, --top-p, --min-p, --repeat-penalty, --repeat-last-n, --presence-penalty, --frequency-penalty
/// and -s/--seed to `verb`, with their limits.
void add_sampling_options(CLI::App& verb, SamplingFlags& flags);

/// Adds --stop, which may be given several times.
void add_stop_option(CLI::App& verb, std::vector<std::string>& stop);

/// Whether a flag is given that only means something where tokens are drawn: --temp, --top-k, --top-p, --min-p or
/// --seed. (--temp 0 says that they are not: choose_sampling.)
bool asks_for_sampling(const SamplingFlags& flags);

/// The options of a Sampler. Where tokens are drawn (`sampled`, and --temp is not 0), the model's and the built-in
/// values fill in what no flag gives; else the best token is taken, and only penalties given as flags change the
/// logits. Without a seed a random one is taken; it is logged at level info (-v).
SamplerOptions choose_sampling(const SamplingFlags& flags, const gguf::File& file, bool sampled);

}  // namespace lamina

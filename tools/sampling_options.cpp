// Parsing with ranges, and who wins.
#include "tools/sampling_options.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <random>

#include "engine/utf8_stream.h"
#include "gguf/error.h"

namespace lamina {
namespace {

constexpr SamplerLimit kSeedLimit{-1, 0x1p53};  // exact in a double

/// Refuses what is no number within the limit; NaN too, which CLI::Range lets pass.
CLI::Validator within(SamplerLimit limit) {
  return {[limit](const std::string& text) {
            double x = 0;
            if (CLI::detail::lexical_cast(text, x) && x >= limit.least && x <= limit.most) return std::string();
            return fmt::format("'{}' is not a number from {} to {}", printable(text), limit.least, limit.most);
          },
          ""};
}

}  // namespace

void add_sampling_options(CLI::App& verb, SamplingFlags& flags) {
  const SamplerOptions built_in;
  const auto add = [&verb](const char* names, auto& value, SamplerLimit limit, const std::string& what) {
    verb.add_option(names, value, what)->check(within(limit))->group("Sampling");
  };
  add("--temp", flags.temp, kTempLimit, fmt::format("temperature (default {}; 0: the best token)", built_in.temp));
  add("--top-k", flags.top_k, kTopKLimit, fmt::format("keep the K best tokens (default {}; 0: all)", built_in.top_k));
  add("--top-p", flags.top_p, kTopPLimit,
      fmt::format("keep the best tokens up to this probability (default {})", built_in.top_p));
  add("--min-p", flags.min_p, kMinPLimit,
      fmt::format("keep tokens with this share of the best one's (default {})", built_in.min_p));
  add("--repeat-penalty", flags.repeat_penalty, kRepeatPenaltyLimit, "divides logits of recent tokens (default 1)");
  add("--repeat-last-n", flags.repeat_last_n, kRepeatLastNLimit,
      fmt::format("how many tokens are recent (default {}; -1: all)", built_in.repeat_last_n));
  add("--presence-penalty", flags.presence_penalty, kPenaltyLimit, "subtracted from logits of recent tokens");
  add("--frequency-penalty", flags.frequency_penalty, kPenaltyLimit, "the same, for each time they occurred");
  verb.add_option("-s,--seed", flags.seed, "of the draws (default -1: a random one, said by -v)")
      ->check(within(kSeedLimit))
      ->group("Sampling");
}

void add_stop_option(CLI::App& verb, std::vector<std::string>& stop) {
  verb.add_option("--stop", stop, "end before this text; may be given several times")
      ->allow_extra_args(false)
      ->check([](const std::string& text) {
        if (text.empty()) return "the text is empty";
        return Utf8Stream().push(text) == text ? "" : "the text is not UTF-8";
      });
}

bool asks_for_sampling(const SamplingFlags& flags) {
  return flags.temp || flags.top_k || flags.top_p || flags.min_p || flags.seed;
}

SamplerOptions choose_sampling(const SamplingFlags& flags, const gguf::File& file, bool sampled) {
  sampled = sampled && flags.temp != 0;
  SamplerOptions options = sampled ? model_sampling(file) : SamplerOptions{.temp = 0};
  const auto set = [](auto& option, const auto& flag) {
    if (flag) option = *flag;
  };
  set(options.temp, flags.temp);
  set(options.top_k, flags.top_k);
  set(options.top_p, flags.top_p);
  set(options.min_p, flags.min_p);
  set(options.repeat_penalty, flags.repeat_penalty);
  set(options.repeat_last_n, flags.repeat_last_n);
  set(options.presence_penalty, flags.presence_penalty);
  set(options.frequency_penalty, flags.frequency_penalty);
  if (flags.seed.value_or(-1) >= 0) {
    options.seed = static_cast<uint64_t>(*flags.seed);
  } else if (sampled) {
    options.seed = std::random_device{}();
    spdlog::info("seed {}", options.seed);
  }
  return options;
}

}  // namespace lamina

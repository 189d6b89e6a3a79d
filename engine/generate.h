// The generation loop: a prompt's tokens in, text out piece by piece, until there is a reason to end.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/sampler.h"
#include "engine/session.h"

namespace lamina {

enum class EndReason {
  kEndToken,   ///< the model gave an end-of-generation token
  kStop,       ///< a stop text was made
  kLimit,      ///< n_predict tokens were made
  kContext,    ///< the context is full
  kCancelled,  ///< the cancel flag was set
};

struct GenerateOptions {
  int64_t n_predict = -1;                     ///< tokens to make; negative: no limit
  const std::atomic<bool>* cancel = nullptr;  ///< looked at between steps
  Sampler* sampler = nullptr;                 ///< chooses the tokens; none: the one with the highest logit
  std::vector<std::string> stop = {};         ///< texts before which the text ends, not empty, UTF-8
  /// Called with each token made and the logits [n_vocab] that it was chosen from; may be empty.
  std::function<void(int32_t token, std::span<const float> logits)> on_token = {};
};

/// How a generation went.
struct Generation {
  EndReason reason = EndReason::kLimit;
  uint32_t n_prompt = 0;     ///< tokens of the prompt that had to be run
  uint32_t n_generated = 0;  ///< tokens made, the end token not counted
  uint32_t n_steps = 0;      ///< of one token, after the prompt
  double prompt_seconds = 0;
  double generate_seconds = 0;  ///< of n_steps
};

/// Continues `tokens` (not empty; the new ones are appended) on `session`. `emit` gets whole characters only and is
/// called when there is some text; what it throws ends the generation.
Generation generate(Session& session, std::vector<int32_t>& tokens, const GenerateOptions& options,
                    const std::function<void(std::string_view text)>& emit);

}  // namespace lamina

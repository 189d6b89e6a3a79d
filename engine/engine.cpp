// Loading: file, config, program, sizes, then the device's part, which takes the time.
#include "engine/engine.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <limits>

#include "gguf/error.h"
#include "model/builder.h"
#include "model/config.h"

namespace lamina {
namespace {

/// Output rows of a step are chosen so that their logits take no more than this.
constexpr uint64_t kLogitsBytes = uint64_t{64} << 20;

uint32_t choose_context(const EngineOptions& options, const Config& config) {
  const uint32_t model_limit = config.n_ctx_train;
  const uint32_t asked = options.n_ctx != 0 ? options.n_ctx : default_n_ctx(config);
  const uint32_t n_ctx = std::max({asked, options.n_ctx_least, 1u});
  if (n_ctx > model_limit) {
    spdlog::warn("a context of {} is longer than the {} that the model was made for", n_ctx, model_limit);
  }
  return n_ctx;
}

Capacity choose_capacity(const EngineOptions& options, const Program& program, uint32_t n_ctx) {
  const uint64_t n_pages = uint64_t{options.n_sequence} * pages_for(n_ctx);
  if (n_pages > std::numeric_limits<uint32_t>::max()) {
    fail(ErrorKind::kUsage, "{} sequences of {} positions are too many", options.n_sequence, n_ctx);
  }
  Capacity capacity;
  capacity.n_pages = static_cast<uint32_t>(n_pages);
  capacity.kv_type = options.kv_type;
  capacity.max_rows = static_cast<uint32_t>(std::min<uint64_t>(options.n_batch, uint64_t{options.n_sequence} * n_ctx));
  capacity.max_outputs = std::min(options.n_sequence, capacity.max_rows);
  if (options.all_logits) {
    const uint64_t rows = std::max<uint64_t>(1, kLogitsBytes / (sizeof(float) * program.n_vocab));
    capacity.max_outputs = static_cast<uint32_t>(std::min<uint64_t>(capacity.max_rows, rows));
  }
  return capacity;
}

}  // namespace

Engine::Engine(gguf::File file, std::shared_ptr<Device> device, const EngineOptions& options)
    : device_(std::move(device)), file_(std::move(file)), pages_(0) {
  LAMINA_CHECK(options.n_batch > 0 && options.n_sequence > 0);
  for (const std::string& warning : file_.warnings()) spdlog::warn(warning);
  const Config config = read_config(file_);
  if (options.tokenizer) tokenizer_ = Tokenizer::create(file_);
  n_ctx_ = choose_context(options, config);
  program_ = build_program(file_, config, {.n_ctx = n_ctx_});
  capacity_ = choose_capacity(options, program_, n_ctx_);
  executable_ = device_->compile(program_, file_, capacity_, options.progress);
  file_.check_unchanged();
  pages_ = PagePool(capacity_.n_pages);  // now that the device has room for them
}

const Tokenizer& Engine::tokenizer() const {
  LAMINA_CHECK(tokenizer_ != nullptr);
  return *tokenizer_;
}

void Engine::run(const Step& step) {
  if (after_op_) executable_->trace(step, after_op_);
  else executable_->run(step);
  file_.check_unchanged();  // after the step: what follows from other bytes goes no further
  ++n_steps_;
}

}  // namespace lamina

// A name of models.txt means the file that `lamina pull` made of it.
// In: parsed options. Out: a path, a device, an Engine.
#include "tools/model_options.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "gguf/error.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/opencl/opencl_device.h"
#include "tools/listed_models.h"
#include "tools/terminal.h"

namespace lamina {

void add_device_option(CLI::App& verb, ModelOptions& options) {
  verb.add_option("--device", options.device, "auto (a GPU, else the CPU), cpu, opencl or opencl:N of `lamina devices`")
      ->capture_default_str();
}

void add_threads_option(CLI::App& verb, ModelOptions& options) {
  verb.add_option("-t,--threads", options.n_threads, "threads (default: what affinity and the cgroup allow)")
      ->check(CLI::Range(1, 1024));
}

void add_kv_option(CLI::App& verb, ModelOptions& options) {
  verb.add_option("--kv-type", options.kv_type, "how keys and values are kept: f16, or q8_0 in about half the memory")
      ->check(CLI::IsMember({"f16", "q8_0"}))
      ->capture_default_str();
}

KvType kv_type(const ModelOptions& options) { return options.kv_type == "q8_0" ? KvType::kQ8_0 : KvType::kF16; }

void add_log_options(CLI::App& verb, ModelOptions& options) {
  verb.add_flag("-v,--verbose", options.verbose, "say more on stderr");
  verb.add_flag("-q,--quiet", options.quiet, "only errors on stderr");
}

void add_model_options(CLI::App& verb, ModelOptions& options) {
  verb.add_option("MODEL", options.model, "a GGUF file, or the name of a fetched model")->required();
  add_device_option(verb, options);
  add_threads_option(verb, options);
  verb.add_option("-b,--batch", options.n_batch, "tokens of a prompt that run together")
      ->check(CLI::Range(1, 16384))
      ->capture_default_str();
  add_kv_option(verb, options);
  verb.add_flag("--plane-cache", options.plane_cache,
                fmt::format("keep the model as the kernels read it in {}, for a faster start next time",
                            (cache_folder() / "planes").string()));
  add_metadata_options(verb, options.metadata);
  add_log_options(verb, options);
}

void add_context_option(CLI::App& verb, ModelOptions& options) {
  verb.add_option("-c,--ctx", options.n_ctx, "positions of the context (default: the model's, at most 4096)")
      ->check(CLI::Range(1, 1 << 30));
}

std::string find_model(const std::string& model) {
  std::error_code ignored;
  if (std::filesystem::exists(model, ignored)) return model;
  const std::optional<ModelRow> row = find_listed(model);
  if (!row) return model;  // the reader says why it cannot be opened
  const std::filesystem::path path = cache_folder() / row->file;
  if (!std::filesystem::exists(path, ignored)) {
    fail(ErrorKind::kModel, "'{}' is not fetched yet ({} is missing): lamina pull {}", model, path.string(), model);
  }
  return path.string();
}

namespace {

std::shared_ptr<Device> make_cpu(const ModelOptions& options) {
  const std::string planes = options.plane_cache ? (cache_folder() / "planes").string() : "";
  return make_cpu_device({.n_threads = options.n_threads, .isa = {}, .plane_cache = planes});
}

/// `index`: -1: the first GPU, else the first device.
std::shared_ptr<Device> make_opencl(const ModelOptions& options, int index) {
  return make_opencl_device(
      {.index = index, .n_threads = options.n_threads, .kernel_cache = (cache_folder() / "kernels").string()});
}

}  // namespace

std::shared_ptr<Device> make_device(const ModelOptions& options) {
  const size_t colon = options.device.find(':');
  const std::string kind = options.device.substr(0, colon);
  const std::string number = colon == std::string::npos ? "" : options.device.substr(colon + 1);
  const bool numbered = !number.empty() && number.size() < 5 && std::all_of(number.begin(), number.end(), ::isdigit);
  if (options.device == "cpu") return make_cpu(options);
  if (options.device == "auto") {
    const auto has_gpu = [] {
      const std::vector<OpenClInfo> infos = opencl_devices();
      return std::any_of(infos.begin(), infos.end(), [](const OpenClInfo& info) { return info.is_gpu; });
    };
    return kv_type(options) == KvType::kF16 && has_gpu() ? make_opencl(options, -1) : make_cpu(options);
  }
  if (kind == "opencl" && (colon == std::string::npos || numbered))
    return make_opencl(options, numbered ? std::stoi(number) : -1);
  if (kind == "cuda" || kind == "bang") {
    fail(ErrorKind::kDevice, "device '{}' is not part of this build, which has: cpu, opencl",
         printable(options.device));
  }
  fail(ErrorKind::kUsage, "--device '{}' is unknown; there are: auto, cpu, opencl, opencl:N",
       printable(options.device));
}

std::unique_ptr<Engine> load_engine(const ModelOptions& options, EngineOptions sizes, const SignalFlag& signals) {
  if (options.quiet) spdlog::set_level(spdlog::level::err);
  if (options.verbose) spdlog::set_level(spdlog::level::info);
  sizes.n_batch = options.n_batch;
  sizes.kv_type = kv_type(options);
  if (options.n_ctx != 0) sizes.n_ctx = options.n_ctx;
  sizes.progress = loading_progress(signals, options.quiet);
  gguf::File file = gguf::File::open(find_model(options.model));
  set_metadata(file, options.metadata);
  return std::make_unique<Engine>(std::move(file), make_device(options), sizes);
}

}  // namespace lamina

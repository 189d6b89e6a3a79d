// models.txt is part of the binary (tools/model_list.h.in), so that names work wherever the binary is.
#include "tools/model_options.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "gguf/error.h"
#include "kernels/cpu/cpu_device.h"
#include "tools/model_list.h"
#include "tools/terminal.h"

namespace lamina {
namespace {

/// Where tools/fetch_model.sh puts files: ${XDG_CACHE_HOME:-~/.cache}/lamina.
std::filesystem::path cache_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache != '\0') return std::filesystem::path(cache) / "lamina";
  const char* home = std::getenv("HOME");
  return std::filesystem::path(home != nullptr ? home : "/") / ".cache" / "lamina";
}

/// The `file` column of a name in models.txt; empty for an unknown name.
std::string listed_file(const std::string& wanted) {
  std::istringstream lines{std::string(kModelList)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream columns(line);
    std::string name, file;
    if (columns >> name >> file && name == wanted) return file;
  }
  return {};
}

}  // namespace

void add_model_options(CLI::App& verb, ModelOptions& options) {
  verb.add_option("MODEL", options.model, "a GGUF file, or the name of a fetched model")->required();
  verb.add_option("-t,--threads", options.n_threads, "threads (default: what affinity and the cgroup allow)")
      ->check(CLI::Range(1, 1024));
  verb.add_option("-b,--batch", options.n_batch, "tokens of a prompt that run together")
      ->check(CLI::Range(1, 16384))
      ->capture_default_str();
  add_device_options(verb, options);
}

void add_device_options(CLI::App& verb, ModelOptions& options) {
  verb.add_option("--device", options.device, "auto or cpu")->capture_default_str();
  verb.add_flag("-v,--verbose", options.verbose, "say more on stderr");
  verb.add_flag("-q,--quiet", options.quiet, "only errors on stderr");
}

void add_context_option(CLI::App& verb, ModelOptions& options) {
  verb.add_option("-c,--ctx", options.n_ctx, "positions of the context (default: the model's, at most 4096)")
      ->check(CLI::Range(1, 1 << 30));
}

std::string find_model(const std::string& model) {
  std::error_code ignored;
  if (std::filesystem::exists(model, ignored)) return model;
  const std::string file = listed_file(model);
  if (file.empty()) return model;  // the reader says why it cannot be opened
  const std::filesystem::path path = cache_folder() / file;
  if (!std::filesystem::exists(path, ignored)) {
    fail(ErrorKind::kModel, "'{}' is not fetched yet ({} is missing): tools/fetch_model.sh {}", model, path.string(),
         model);
  }
  return path.string();
}

std::shared_ptr<Device> make_device(const ModelOptions& options) {
  const std::string kind = options.device.substr(0, options.device.find(':'));
  if (options.device == "auto" || options.device == "cpu") {
    return make_cpu_device({.n_threads = options.n_threads, .isa = {}});
  }
  if (kind == "opencl" || kind == "cuda" || kind == "bang") {
    fail(ErrorKind::kDevice, "device '{}' is not part of this build, which has: cpu", printable(options.device));
  }
  fail(ErrorKind::kUsage, "--device '{}' is unknown; there are: auto, cpu", printable(options.device));
}

std::unique_ptr<Engine> load_engine(const ModelOptions& options, EngineOptions sizes) {
  if (options.quiet) spdlog::set_level(spdlog::level::err);
  if (options.verbose) spdlog::set_level(spdlog::level::info);
  sizes.n_batch = options.n_batch;
  if (options.n_ctx != 0) sizes.n_ctx = options.n_ctx;
  if (!options.quiet) sizes.progress = loading_progress();
  return std::make_unique<Engine>(find_model(options.model), make_device(options), sizes);
}

}  // namespace lamina

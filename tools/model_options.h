// Options that verbs share: which model, on what device, with which sizes; and loading by them.
// In: a verb's CLI::App. Out: the parsed values, a model's path, a device, an Engine.
#pragma once
#include <CLI/CLI.hpp>

#include <cstdint>
#include <memory>
#include <string>

#include "engine/engine.h"
#include "tools/metadata_options.h"
#include "tools/signal_flag.h"

namespace lamina {

struct ModelOptions {
  std::string model;  ///< a path, or a name of models.txt
  std::string device = "auto";
  int n_threads = 0;
  uint32_t n_batch = 512;
  uint32_t n_ctx = 0;
  std::string kv_type = "f16";
  bool plane_cache = false;
  MetadataOptions metadata;
  bool verbose = false;
  bool quiet = false;
};

/// Adds MODEL, --device, -t, -b, --kv-type, --plane-cache, -v, -q and those of metadata_options.h to `verb`; or some of
/// them alone.
void add_model_options(CLI::App& verb, ModelOptions& options);
void add_device_option(CLI::App& verb, ModelOptions& options);
void add_threads_option(CLI::App& verb, ModelOptions& options);
void add_kv_option(CLI::App& verb, ModelOptions& options);
void add_log_options(CLI::App& verb, ModelOptions& options);

/// What --kv-type says.
KvType kv_type(const ModelOptions& options);

/// Adds -c.
void add_context_option(CLI::App& verb, ModelOptions& options);

/// The file that `model` means: a path, or the fetched file of a name in models.txt. Throws Error(kModel) when a known
/// name was not fetched yet.
std::string find_model(const std::string& model);

/// The device that --device and -t ask for. Throws Error(kUsage) for an unknown name, Error(kDevice) for one that is
/// not there.
std::shared_ptr<Device> make_device(const ModelOptions& options);

/// Sets the log's level from -v and -q, then loads the model; n_ctx, n_batch and progress of `sizes` come from
/// `options`. Throws Interrupted when a signal comes meanwhile.
std::unique_ptr<Engine> load_engine(const ModelOptions& options, EngineOptions sizes, const SignalFlag& signals);

}  // namespace lamina

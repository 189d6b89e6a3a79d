// `lamina bench`: speed of prompt processing and generation. In: models and settings, any of which may be lists; all
// combinations are run. Out: a row a test as it is done (bench_output.h), if asked with a verdict against an older run
// and as a picture. What fails is named on standard error, and the rest still runs.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <ctime>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/bench.h"
#include "engine/model_label.h"
#include "gguf/error.h"
#include "gguf/whole_file.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/pool.h"
#include "tools/bench_compare.h"
#include "tools/bench_output.h"
#include "tools/bench_plot.h"
#include "tools/cpu_info.h"
#include "tools/model_options.h"
#include "tools/number_list.h"
#include "tools/signal_flag.h"
#include "tools/verbs.h"

namespace lamina {
namespace {

constexpr uint32_t kMaxTokens = 1 << 24, kMaxBatch = 16384, kMaxThreads = 1024;

struct BenchOptions {
  ModelOptions model;  ///< what all configurations share
  std::vector<std::string> models;
  std::vector<std::string> n_prompt{"512"}, n_gen{"128"}, n_depth{"0"}, n_batch{"512"}, n_threads;
  uint32_t repetitions = 5;
  std::string format = "md", older, plot;
};

/// One loaded model and the tests that it is loaded for.
struct Configuration {
  ModelOptions model;
  uint32_t n_depth = 0;
  std::vector<BenchTest> tests;

  std::string name() const {
    return fmt::format("{}, {} threads, batch {}, depth {}", printable(model.model), model.n_threads, model.n_batch,
                       n_depth);
  }
};

std::vector<Configuration> configurations(const BenchOptions& options) {
  const auto prompts = parse_numbers(options.n_prompt, "-p", 0, kMaxTokens);
  const auto gens = parse_numbers(options.n_gen, "-n", 0, kMaxTokens);
  const auto depths = parse_numbers(options.n_depth, "-d", 0, kMaxTokens);
  const auto batches = parse_numbers(options.n_batch, "-b", 1, kMaxBatch);
  auto threads = parse_numbers(options.n_threads, "-t", 1, kMaxThreads);
  if (threads.empty()) threads.push_back(static_cast<uint32_t>(cpu_threads()));
  std::vector<Configuration> all;
  for (const std::string& model : options.models) {
    for (const uint32_t n_batch : batches) {
      for (const uint32_t n_threads : threads) {
        for (const uint32_t n_depth : depths) {
          Configuration one{options.model, n_depth, {}};
          one.model.model = model;
          one.model.n_batch = n_batch;
          one.model.n_threads = static_cast<int>(n_threads);
          for (const uint32_t n : prompts) {
            if (n > 0) one.tests.push_back({.n_prompt = n, .n_gen = 0, .n_depth = n_depth});
          }
          for (const uint32_t n : gens) {
            if (n > 0) one.tests.push_back({.n_prompt = 0, .n_gen = n, .n_depth = n_depth});
          }
          if (one.tests.empty()) fail(ErrorKind::kUsage, "bench: nothing to measure with -p 0 and -n 0");
          all.push_back(std::move(one));
        }
      }
    }
  }
  return all;
}

BenchModel describe(const Engine& engine, const Configuration& configuration, const std::string& cpu_info) {
  BenchModel model{.cpu_info = cpu_info,
                   .backend = engine.device().name(),
                   .filename = engine.file().path(),
                   .label = model_label(engine.file()),
                   .size = 0,
                   .n_params = n_params(engine.file()),
                   .n_batch = configuration.model.n_batch,
                   .n_threads = static_cast<uint32_t>(configuration.model.n_threads),
                   .kv_type = configuration.model.kv_type};
  for (char& c : model.backend) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  for (const gguf::Tensor& tensor : engine.file().tensors()) model.size += tensor.data.size();
  return model;
}

/// All configurations, one after the other.
class Sweep {
 public:
  explicit Sweep(const BenchOptions& options)
      : options_(options),
        configurations_(configurations(options)),
        output_({.format = options.format,
                 .n_batch = std::ranges::any_of(configurations_, [](const auto& c) { return c.model.n_batch != 512; }),
                 .compares = !options.older.empty()}) {
    if (!options.older.empty()) older_.emplace(options.older);
  }

  void run() {
    output_.begin();
    for (const Configuration& configuration : configurations_) {
      if (!run(configuration)) break;
    }
    output_.end();
    signals_.check();
    if (!options_.plot.empty() && !rows_.empty()) write_plot();
    if (n_failed_ > 0) {
      fail(ErrorKind::kRuntime, "bench: {} failures in {} configurations", n_failed_, configurations_.size());
    }
  }

 private:
  /// Does `work`; false when it fails, which is said with its name. A failure of the only configuration ends the run.
  template <class Work>
  bool attempt(const std::string& name, const Work& work) {
    try {
      work();
      return true;
    } catch (const std::exception& error) {
      if (configurations_.size() == 1) {
        output_.end();
        throw;
      }
      ++n_failed_;
      fmt::print(stderr, "lamina: bench: {}: {}\n", name, error.what());
      return false;
    }
  }

  /// False when a signal came.
  bool run(const Configuration& configuration) {
    EngineOptions sizes{.n_ctx = 0, .tokenizer = false};
    for (const BenchTest& test : configuration.tests) {
      sizes.n_ctx = std::max(sizes.n_ctx, test.n_depth + test.n_tokens());
    }
    std::unique_ptr<Engine> engine;
    const auto load = [&] { engine = load_engine(configuration.model, sizes, signals_); };
    try {
      if (!attempt(configuration.name(), load)) return true;
    } catch (const Interrupted&) {
      return false;
    }
    BenchRow row{.model = describe(*engine, configuration, cpu_info_)};
    for (const BenchTest& test : configuration.tests) {
      row.test_time = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
      const auto measure = [&] { row.result = run_bench(*engine, test, options_.repetitions, signals_.flag()); };
      if (!attempt(configuration.name() + ", " + test.name(), measure)) continue;
      if (row.result.nanoseconds.empty()) return false;
      summarize(row, *engine);
      output_.add(row);
      rows_.push_back(row);
    }
    return true;
  }

  /// What follows from the repetitions.
  void summarize(BenchRow& row, const Engine& engine) {
    row.nanoseconds = summary_of(row.result.nanoseconds);
    row.rate = summary_of(row.result.tokens_per_second);
    row.gb_s = row.bandwidth_percent = std::nullopt;
    if (row.result.test.n_gen > 0) add_bandwidth(row, engine);
    if (older_) row.comparison = older_->compare(row);
  }

  void add_bandwidth(BenchRow& row, const Engine& engine) {
    const double read = static_cast<double>(engine.executable().weight_bytes_per_token()) * row.rate.average;
    row.gb_s = read * 1e-9;
    if (engine.device().name() != "cpu") return;
    const auto [found, is_new] = bandwidths_.try_emplace(row.model.n_threads);
    if (is_new) found->second = cpu_read_bandwidth(static_cast<int>(row.model.n_threads));
    row.bandwidth_percent = 100 * read / found->second;
  }

  void write_plot() const {
    const std::string svg = bench_svg(rows_);
    WholeFile file(options_.plot);
    file.write(std::as_bytes(std::span(svg)));
    file.finish();
  }

  const BenchOptions& options_;
  std::vector<Configuration> configurations_;
  BenchOutput output_;
  std::optional<OlderRun> older_;
  std::string cpu_info_ = read_cpu().model;
  std::map<uint32_t, double> bandwidths_;  ///< by number of threads
  std::vector<BenchRow> rows_;
  size_t n_failed_ = 0;
  SignalFlag signals_;
};

}  // namespace

void add_bench(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("bench", "Measure the speed of prompt processing and generation");
  const auto options = std::make_shared<BenchOptions>();
  verb->add_option("MODEL", options->models, "GGUF files, or names of fetched models")->required();
  add_device_option(*verb, options->model);
  add_kv_option(*verb, options->model);
  add_log_options(*verb, options->model);
  const auto add_list = [&](const char* names, std::vector<std::string>& values, const char* meaning) {
    verb->add_option(names, values, meaning)
        ->type_name("LIST")
        ->default_str(values.empty() ? "" : values.front())
        ->allow_extra_args(false);
  };
  add_list("-p,--n-prompt", options->n_prompt, "tokens of the prompt tests (0: none)");
  add_list("-n,--n-gen", options->n_gen, "tokens of the generation tests (0: none)");
  add_list("-d,--n-depth", options->n_depth, "tokens before each test, not timed");
  add_list("-b,--batch", options->n_batch, "tokens of a prompt that run together");
  add_list("-t,--threads", options->n_threads, "threads (default: what affinity and the cgroup allow)");
  verb->add_option("-r,--repetitions", options->repetitions, "repetitions of each test")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  verb->add_option("-o,--output", options->format, "md, csv, json or jsonl")
      ->check(CLI::IsMember({"md", "csv", "json", "jsonl"}))
      ->capture_default_str();
  verb->add_option("--compare", options->older, "rows of an older run (from -o jsonl) for a verdict on each row");
  verb->add_option("--plot", options->plot, "write a picture of the rates to this file (SVG)");
  verb->footer(fmt::format(
      "A LIST is numbers and ranges with commas: 128,512 or 128-512+128 or 1-8*2; all combinations are run.\n"
      "Times are of the steps alone: no text, no sampling but argmax.\n"
      "--compare says {}.\n",
      kNoiseRule));
  verb->callback([options] { Sweep(*options).run(); });
}

}  // namespace lamina

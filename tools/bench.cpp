// `lamina bench`: speed of prompt processing and generation. Out: llama-bench's table (md) or its array of objects
// (json), with two more columns: the bandwidth at which weights were read while generating, and its share of what the
// machine can read.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/bench.h"
#include "engine/model_label.h"
#include "gguf/error.h"
#include "kernels/cpu/cpu_device.h"
#include "tools/model_options.h"
#include "tools/signal_flag.h"
#include "tools/terminal.h"
#include "tools/verbs.h"

namespace lamina {
namespace {

struct BenchOptions {
  ModelOptions model;
  std::string format = "md";
  uint32_t n_prompt = 512, n_gen = 128, n_depth = 0, repetitions = 5;
};

/// A result with all that its row shows.
struct Row {
  BenchResult result;
  std::string test_time;
  Mean nanoseconds, rate;
  std::optional<double> gb_s;               ///< generation only
  std::optional<double> bandwidth_percent;  ///< generation on the CPU only
};

std::string size_text(double bytes) {
  constexpr double kMib = 1024.0 * 1024.0;
  return bytes >= 1024 * kMib ? fmt::format("{:.2f} GiB", bytes / (1024 * kMib))
                              : fmt::format("{:.2f} MiB", bytes / kMib);
}

std::string params_text(double n) {
  return n >= 1e9 ? fmt::format("{:.2f} B", n / 1e9) : fmt::format("{:.2f} M", n / 1e6);
}

/// Writes rows as they come.
class Report {
 public:
  Report(const BenchOptions& options, const Engine& engine, int n_threads)
      : options_(options), engine_(engine), n_threads_(n_threads), label_(model_label(engine.file())) {}

  void begin() {
    if (options_.format == "json") {
      write_stdout("[");
      return;
    }
    write_stdout(
        fmt::format("| {:<30} | {:>10} | {:>10} | {:<10} | {:>7} | {:>15} | {:>20} | {:>7} | {:>6} |\n"
                    "| {:-<30} | {:->9}: | {:->9}: | {:-<10} | {:->6}: | {:->14}: | {:->19}: | {:->6}: | {:->5}: |\n",
                    "model", "size", "params", "backend", "threads", "test", "t/s", "GB/s", "% bw",  //
                    "", "", "", "", "", "", "", "", ""));
  }

  void add(const Row& row) {
    if (options_.format == "json") {
      write_stdout((first_ ? "\n  " : ",\n  ") +
                   json(row).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
      first_ = false;
      return;
    }
    const auto optional = [](const std::optional<double>& value) {
      return value ? fmt::format("{:.1f}", *value) : std::string();
    };
    // One column of "±" is two bytes: fmt pads by width, not by bytes.
    write_stdout(fmt::format("| {:<30} | {:>10} | {:>10} | {:<10} | {:>7} | {:>15} | {:>20} | {:>7} | {:>6} |\n",
                             label_, size_text(static_cast<double>(model_size())),
                             params_text(static_cast<double>(n_params(engine_.file()))), backend(), n_threads_,
                             row.result.test.name(),
                             fmt::format("{:.2f} ± {:.2f}", row.rate.average, row.rate.deviation), optional(row.gb_s),
                             optional(row.bandwidth_percent)));
  }

  void end() { write_stdout(options_.format == "json" ? "\n]\n" : "\nbuild: lamina " LAMINA_VERSION "\n"); }

 private:
  std::string backend() const {
    std::string name = engine_.device().name();
    for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    return name;
  }

  uint64_t model_size() const {
    uint64_t bytes = 0;
    for (const gguf::Tensor& tensor : engine_.file().tensors()) bytes += tensor.data.size();
    return bytes;
  }

  nlohmann::ordered_json json(const Row& row) const {
    const BenchTest& test = row.result.test;
    std::vector<int64_t> samples_ns;
    for (const double ns : row.result.nanoseconds) samples_ns.push_back(std::llround(ns));
    const auto optional = [](const std::optional<double>& value) {
      return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
    };
    return {{"build_commit", LAMINA_VERSION},
            {"backends", backend()},
            {"model_filename", engine_.file().path()},
            {"model_type", label_},
            {"model_size", model_size()},
            {"model_n_params", n_params(engine_.file())},
            {"n_batch", options_.model.n_batch},
            {"n_threads", n_threads_},
            {"type_k", "f16"},
            {"type_v", "f16"},
            {"n_prompt", test.n_prompt},
            {"n_gen", test.n_gen},
            {"n_depth", test.n_depth},
            {"test_time", row.test_time},
            {"avg_ns", std::llround(row.nanoseconds.average)},
            {"stddev_ns", std::llround(row.nanoseconds.deviation)},
            {"avg_ts", row.rate.average},
            {"stddev_ts", row.rate.deviation},
            {"gb_s", optional(row.gb_s)},
            {"bandwidth_percent", optional(row.bandwidth_percent)},
            {"samples_ns", samples_ns},
            {"samples_ts", row.result.tokens_per_second}};
  }

  const BenchOptions& options_;
  const Engine& engine_;
  int n_threads_;
  std::string label_;
  bool first_ = true;
};

void bench(const BenchOptions& options) {
  std::vector<BenchTest> tests;
  if (options.n_prompt > 0) tests.push_back({.n_prompt = options.n_prompt, .n_gen = 0, .n_depth = options.n_depth});
  if (options.n_gen > 0) tests.push_back({.n_prompt = 0, .n_gen = options.n_gen, .n_depth = options.n_depth});
  if (tests.empty()) fail(ErrorKind::kUsage, "bench: nothing to measure with -p 0 and -n 0");
  EngineOptions sizes{.n_ctx = 0, .tokenizer = false};
  for (const BenchTest& test : tests) sizes.n_ctx = std::max(sizes.n_ctx, test.n_depth + test.n_tokens());

  const auto engine = load_engine(options.model, sizes);
  const int n_threads = options.model.n_threads > 0 ? options.model.n_threads : cpu_threads();
  const bool on_cpu = engine->device().name() == "cpu";
  const double bandwidth = on_cpu && options.n_gen > 0 ? cpu_read_bandwidth(n_threads) : 0;
  const SignalFlag signals;
  Report report(options, *engine, n_threads);
  report.begin();
  for (const BenchTest& test : tests) {
    Row row;
    row.test_time = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
    row.result = run_bench(*engine, test, options.repetitions, signals.flag());
    if (row.result.nanoseconds.empty()) break;  // a signal came first
    row.nanoseconds = mean_of(row.result.nanoseconds);
    row.rate = mean_of(row.result.tokens_per_second);
    if (test.n_gen > 0) {
      const double read = static_cast<double>(engine->executable().weight_bytes_per_token()) * row.rate.average;
      row.gb_s = read * 1e-9;
      if (bandwidth > 0) row.bandwidth_percent = 100 * read / bandwidth;
    }
    report.add(row);
  }
  report.end();
  signals.check();
}

}  // namespace

void add_bench(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("bench", "Measure the speed of prompt processing and generation");
  const auto options = std::make_shared<BenchOptions>();
  add_model_options(*verb, options->model);
  verb->add_option("-p,--n-prompt", options->n_prompt, "tokens of the prompt test (0: none)")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  verb->add_option("-n,--n-gen", options->n_gen, "tokens of the generation test (0: none)")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  verb->add_option("-d,--n-depth", options->n_depth, "tokens before each test, not timed")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  verb->add_option("-r,--repetitions", options->repetitions, "repetitions of each test")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  verb->add_option("-o,--output", options->format, "md or json")
      ->check(CLI::IsMember({"md", "json"}))
      ->capture_default_str();
  verb->callback([options] { bench(*options); });
}

}  // namespace lamina

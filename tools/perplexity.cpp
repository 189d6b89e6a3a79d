// `lamina perplexity`: how well a model predicts a text, in llama-perplexity's lines. Out: a running value a chunk and
// the final estimate, or one JSON object; with --kl-base the file of logits that another run is compared with, or the
// tables of that comparison. Counts and the time left go to standard error.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/kl_divergence.h"
#include "engine/perplexity.h"
#include "gguf/error.h"
#include "gguf/whole_file.h"
#include "tools/model_options.h"
#include "tools/signal_flag.h"
#include "tools/terminal.h"
#include "tools/verbs.h"

namespace lamina {
namespace {

struct PerplexityOptions {
  ModelOptions model;
  ChunkOptions chunks;
  std::string text, kl_base;
  std::string format = "text";
};

Chunks read_chunks(const PerplexityOptions& options, const Tokenizer& tokenizer) {
  const std::string text = read_text(options.text, ErrorKind::kUsage);
  return {tokenizer.encode(text, {.add_special = true, .parse_special = true}),
          tokenizer.adds_bos() ? tokenizer.bos() : -1, options.chunks};
}

/// Seconds as the time left is told.
std::string minutes(double seconds) { return fmt::format("{:.2f} minutes", seconds / 60); }

/// Says on standard error what will be done, and how long it takes once that can be told.
class ProgressLines {
 public:
  ProgressLines(const PerplexityOptions& options, uint32_t n_chunk)
      : quiet_(options.model.quiet),
        rewrite_(stderr_is_terminal() && options.format == "json"),
        n_batch_(options.model.n_batch),
        n_chunk_(n_chunk) {}

  void begin(const Chunks& chunks, bool bos, uint32_t n_seq) {
    start_ = std::chrono::steady_clock::now();
    if (quiet_) return;
    fmt::print(stderr, "perplexity: {} tokens, {}\n", chunks.tokens().size(),
               bos ? "each chunk begins with BOS" : "no BOS");
    fmt::print(stderr, "perplexity: calculating perplexity over {} chunks, n_ctx={}, batch_size={}, n_seq={}\n",
               n_chunk_, chunks.n_ctx(), n_batch_, n_seq);
  }

  /// The first `n_done` chunks are done. On a terminal that shows no running values the line is kept up to date.
  void update(uint32_t n_done) {
    if (quiet_) return;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    const double left = seconds / n_done * (n_chunk_ - n_done);
    if (std::exchange(first_, false)) {
      fmt::print(stderr, "perplexity: {:.2f} seconds per pass - ETA {}\n", seconds, minutes(left));
    } else if (rewrite_) {
      fmt::print(stderr, "\rchunk {} of {}, {} left\x1b[K{}", n_done, n_chunk_, minutes(left), left > 0 ? "" : "\n");
    }
  }

 private:
  bool quiet_, rewrite_;
  uint32_t n_batch_, n_chunk_;
  bool first_ = true;
  std::chrono::steady_clock::time_point start_;
};

std::string kl_header() {
  return "\nchunk             PPL               ln(PPL(Q)/PPL(base))          KL Divergence              Δp RMS"
         "            Same top p\n";
}

std::string kl_line(uint32_t chunk, const KlStatistics& kl) {
  const Estimate ppl = kl.perplexity(), ratio = kl.log_ratio(), mean = kl.kl(), rms = kl.rms_delta_p(),
                 top = kl.same_top();
  return fmt::format(
      "{:4}    {:9.4f} ± {:9.4f}    {:10.5f} ± {:10.5f}    {:10.5f} ± {:10.5f}    {:6.3f} ± {:6.3f} %    {:6.3f} ± "
      "{:6.3f} %\n",
      chunk, ppl.value, ppl.error, ratio.value, ratio.error, mean.value, mean.error, 100 * rms.value, 100 * rms.error,
      100 * top.value, 100 * top.error);
}

struct Quantile {
  const char* name;
  double share;
};
constexpr Quantile kKlQuantiles[] = {{"Maximum", 1},   {"99.9%  ", .999}, {"99.0%  ", .99}, {"95.0%  ", .95},
                                     {"90.0%  ", .9},  {"Median ", .5},   {"10.0%  ", .1},  {" 5.0%  ", .05},
                                     {" 1.0%  ", .01}, {" 0.1%  ", .001}, {"Minimum", 0}};
constexpr Quantile kDeltaQuantiles[] = {{"Maximum", 1},  {"99.9%  ", .999}, {"99.0%  ", .99}, {"95.0%  ", .95},
                                        {"90.0%  ", .9}, {"75.0%  ", .75},  {"Median ", .5},  {"25.0%  ", .25},
                                        {"10.0%  ", .1}, {" 5.0%  ", .05},  {" 1.0%  ", .01}, {" 0.1%  ", .001},
                                        {"Minimum", 0}};

std::string kl_tables(const KlStatistics& kl) {
  const auto line = [](const char* name, Estimate e) {
    return fmt::format("{:<30}: {:10.6f} ± {:10.6f}\n", name, e.value, e.error);
  };
  std::string out = "\n====== Perplexity statistics ======\n";
  out += line("Mean PPL(Q)", kl.perplexity()) + line("Mean PPL(base)", kl.base_perplexity());
  out += fmt::format("Cor(ln(PPL(Q)), ln(PPL(base))): {:6.2f}%\n", 100 * kl.correlation());
  out += line("Mean ln(PPL(Q)/PPL(base))", kl.log_ratio()) + line("Mean PPL(Q)/PPL(base)", kl.ratio());
  out += line("Mean PPL(Q)-PPL(base)", kl.difference());
  out += "\n====== KL divergence statistics ======\n";
  out += fmt::format("Mean    KLD: {:10.6f} ± {:10.6f}\n", kl.kl().value, kl.kl().error);
  for (const auto& [name, share] : kKlQuantiles) out += fmt::format("{} KLD: {:10.6f}\n", name, kl.kl_quantile(share));
  const auto percent = [](const char* name, Estimate e) {
    return fmt::format("{}: {:6.3f} ± {:5.3f} %\n", name, 100 * e.value, 100 * e.error);
  };
  out += "\n====== Token probability statistics ======\n" + percent("Mean    Δp", kl.delta_p());
  for (const auto& [name, share] : kDeltaQuantiles) {
    out += fmt::format("{} Δp: {:6.3f}%\n", name, 100 * kl.delta_p_quantile(share));
  }
  return out + percent("RMS Δp    ", kl.rms_delta_p()) + percent("Same top p", kl.same_top());
}

nlohmann::ordered_json kl_json(const KlStatistics& kl) {
  const auto pair = [](Estimate e) { return nlohmann::ordered_json{{"value", e.value}, {"error", e.error}}; };
  return {{"base_ppl", pair(kl.base_perplexity())},
          {"ln_ppl_ratio", pair(kl.log_ratio())},
          {"ppl_ratio", pair(kl.ratio())},
          {"ppl_difference", pair(kl.difference())},
          {"correlation", kl.correlation()},
          {"kl", pair(kl.kl())},
          {"kl_max", kl.kl_quantile(1)},
          {"kl_median", kl.kl_quantile(.5)},
          {"delta_p", pair(kl.delta_p())},
          {"rms_delta_p", pair(kl.rms_delta_p())},
          {"same_top", pair(kl.same_top())}};
}

/// The run: what is summed, and what is printed of it.
class Run {
 public:
  Run(const PerplexityOptions& options, const Chunks& chunks) : options_(options), chunks_(chunks) {}

  void compare_with(KlBase& base) { base_ = &base; }
  void write_base_to(WholeFile& file) { out_ = &file; }

  /// Scores all chunks, n_seq together; false when interrupted.
  bool score(Engine& engine, uint32_t n_seq, ProgressLines& progress, const SignalFlag& signals) {
    if (out_ != nullptr) out_->write(kl_base_header(chunks_, engine.n_vocab()));
    if (base_ != nullptr && text()) write_stdout(kl_header());
    for (uint32_t first = 0; first < chunks_.n_chunk(); first += n_seq) {
      const uint32_t end = std::min(first + n_seq, chunks_.n_chunk());
      // Kept apart until all are there, so that sums do not depend on how chunks were mixed.
      std::vector<std::vector<TokenDivergence>> tokens(end - first);
      const auto sink = [&](const Scored& scored) { tokens[scored.chunk - first].push_back(measure(scored)); };
      if (!score_chunks(engine, chunks_, first, end, sink, signals.flag())) return false;
      for (uint32_t chunk = first; chunk < end; ++chunk) add(chunk, tokens[chunk - first]);
      progress.update(end);
    }
    return true;
  }

  void finish(bool bos) const {
    const Estimate ppl = perplexity_of(nll_);
    if (text()) {
      if (base_ != nullptr) write_stdout(kl_tables(kl_));
      write_stdout(fmt::format("{}\nFinal estimate: PPL = {:.4f} +/- {:.5f}\n", base_ == nullptr ? "\n" : "", ppl.value,
                               ppl.error));
      return;
    }
    nlohmann::ordered_json json{{"model_filename", options_.model.model},
                                {"text_filename", options_.text},
                                {"n_tokens", chunks_.tokens().size()},
                                {"add_bos", bos},
                                {"n_ctx", chunks_.n_ctx()},
                                {"stride", options_.chunks.stride},
                                {"n_chunk", chunks_.n_chunk()},
                                {"n_scored", nll_.n()},
                                {"ppl", ppl.value},
                                {"ppl_error", ppl.error},
                                {"running_ppl", running_}};
    if (base_ != nullptr) json["kl_divergence"] = kl_json(kl_);
    write_stdout(json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  }

 private:
  bool text() const { return options_.format == "text"; }

  TokenDivergence measure(const Scored& scored) {
    if (out_ != nullptr) out_->write(kl_base_row(scored));
    if (base_ != nullptr) return compare(scored, base_->log_probabilities(scored.chunk, scored.index));
    return {.nll = scored.nll()};
  }

  void add(uint32_t chunk, const std::vector<TokenDivergence>& tokens) {
    for (const TokenDivergence& token : tokens) {
      nll_.add(token.nll);
      if (base_ != nullptr) kl_.add(token);
    }
    running_.push_back(perplexity_of(nll_).value);
    if (!text()) return;
    write_stdout(base_ != nullptr ? kl_line(chunk + 1, kl_) : fmt::format("[{}]{:.4f},", chunk + 1, running_.back()));
  }

  const PerplexityOptions& options_;
  const Chunks& chunks_;
  KlBase* base_ = nullptr;
  WholeFile* out_ = nullptr;
  Sums nll_;
  KlStatistics kl_;
  std::vector<double> running_;  ///< after each chunk
};

void perplexity(PerplexityOptions options) {
  if (!options.kl_base.empty() && options.chunks.stride != 0) {
    fail(ErrorKind::kUsage, "perplexity: --kl-base files know no --ppl-stride");
  }
  std::optional<KlBase> base;
  if (!options.kl_base.empty() && std::filesystem::exists(options.kl_base)) {
    base.emplace(options.kl_base);
    if (base->n_ctx() != options.chunks.n_ctx) {
      fail(ErrorKind::kUsage, "perplexity: '{}' was made with -c {}, not {}", printable(options.kl_base), base->n_ctx(),
           options.chunks.n_ctx);
    }
    const uint32_t asked = options.chunks.max_chunks;
    options.chunks.max_chunks = asked != 0 ? std::min(asked, base->n_chunk()) : base->n_chunk();
  }
  // The text is checked before the weights load, which takes longer.
  const auto tokenizer = Tokenizer::create(gguf::File::open(find_model(options.model.model)));
  const Chunks chunks = read_chunks(options, *tokenizer);
  if (base) base->check_same_text(chunks);

  const bool writes_base = !options.kl_base.empty() && !base;
  const uint32_t n_ctx = chunks.n_ctx();
  // The rows of a base file are written in order, so its chunks run one by one.
  const uint32_t n_seq = writes_base ? 1 : std::clamp(options.model.n_batch / n_ctx, 1u, chunks.n_chunk());
  const SignalFlag signals;
  const auto engine = load_engine(
      options.model, {.n_ctx = n_ctx, .n_sequence = n_seq, .all_logits = true, .tokenizer = false}, signals);
  Run run(options, chunks);
  std::optional<WholeFile> out;
  if (writes_base) run.write_base_to(out.emplace(options.kl_base));
  if (base) {
    base->check_same_vocabulary(engine->n_vocab());
    run.compare_with(*base);
  }
  ProgressLines progress(options, chunks.n_chunk());
  progress.begin(chunks, tokenizer->adds_bos(), n_seq);
  if (!run.score(*engine, n_seq, progress, signals)) {
    if (options.format == "text") write_stdout("\n");
    signals.check();
  }
  if (out) out->finish();
  run.finish(tokenizer->adds_bos());
}

}  // namespace

void add_perplexity(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("perplexity", "Measure how well a model predicts a text");
  const auto options = std::make_shared<PerplexityOptions>();
  add_model_options(*verb, options->model);
  verb->add_option("-f,--file", options->text, "the text (- : standard input)")->required();
  verb->add_option("-c,--ctx", options->chunks.n_ctx, "tokens of a chunk; its second half is scored")
      ->check(CLI::Range(3, 1 << 24))
      ->capture_default_str();
  verb->add_option("--chunks", options->chunks.max_chunks, "chunks at most (default: all)")
      ->check(CLI::Range(1, 1 << 24));
  verb->add_option("--ppl-stride", options->chunks.stride,
                   "let chunks overlap: each begins so many tokens behind the one before, and that many are scored")
      ->check(CLI::Range(1, 1 << 24));
  verb->add_option("--kl-base", options->kl_base,
                   "when this file does not exist, write the predictions to it; when it exists, compare with them "
                   "(llama-perplexity's file layout)");
  verb->add_option("-o,--output", options->format, "text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  verb->callback([options] { perplexity(*options); });
}

}  // namespace lamina

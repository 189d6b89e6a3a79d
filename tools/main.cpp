// The `lamina` binary: parses the command line, runs one verb, turns errors into one line and an exit code (design,
// section 6).
#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string>

#include "gguf/error.h"
#include "tools/signal_flag.h"
#include "tools/terminal.h"
#include "tools/verbs.h"

namespace {

constexpr const char* kExamples =
    "Examples:\n"
    "  lamina run smollm2 -p \"The capital of Italy is\" -n 32\n"
    "  lamina bench model.gguf -p 512 -n 128\n"
    "  lamina inspect model.gguf --program\n"
    "`lamina VERB --help` explains a verb.";

int say(int exit_code, const std::string& what) {
  fmt::print(stderr, "lamina: {}\n", what);
  return exit_code;
}

/// The whole message in one line: CLI11 lists some things below each other.
std::string one_line(std::string text) {
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  return text;
}

/// The verb that was called, for messages: "run: "; empty when none was.
std::string verb_of(const CLI::App& app) {
  const auto verbs = app.get_subcommands();
  return verbs.empty() ? std::string() : verbs.front()->get_name() + ": ";
}

/// Names what was not understood: options first, for their values usually stand beside them.
std::string unexpected(const CLI::App& app) {
  const std::vector<std::string> extras = app.remaining(true);
  for (const std::string& extra : extras) {
    if (extra.size() > 1 && extra[0] == '-') return "unknown option '" + lamina::printable(extra) + "'";
  }
  const std::string what = app.get_subcommands().empty() ? "unknown verb" : "unexpected argument";
  return extras.empty() ? what : what + " '" + lamina::printable(extras.front()) + "'";
}

int run(int argc, char** argv) {
  CLI::App app{"lamina runs quantised language models from GGUF files", "lamina"};
  app.set_version_flag("--version", "lamina " LAMINA_VERSION);
  app.require_subcommand(0, 1);
  lamina::add_run(app);
  lamina::add_chat(app);
  lamina::add_bench(app);
  lamina::add_pull(app);
  lamina::add_perplexity(app);
  lamina::add_inspect(app);
  lamina::add_devices(app);
  lamina::add_tokenize(app);
  lamina::add_logits(app);
  lamina::add_verify(app);
  lamina::add_ops(app);
  app.footer(kExamples);  // after the verbs, which would inherit it
  const int usage = static_cast<int>(lamina::ErrorKind::kUsage);
  try {
    app.parse(argc, argv);
    if (app.get_subcommands().empty()) lamina::write_stdout(app.help());
    lamina::flush_stdout();
    return 0;
  } catch (const CLI::CallForHelp&) {
    lamina::write_stdout(app.help());
    return 0;
  } catch (const CLI::CallForVersion& version) {
    lamina::write_stdout(std::string(version.what()) + "\n");
    return 0;
  } catch (const CLI::ExtrasError&) {
    return say(usage, verb_of(app) + unexpected(app));
  } catch (const CLI::ParseError& error) {
    return say(usage, verb_of(app) + one_line(error.what()));
  }
}

/// Takes the place of standard streams that are closed, so that no file that is opened later gets their numbers:
/// writing to one or reading from it fails as before.
void hold_closed_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    // The lowest free number is taken, which is this one.
    [[maybe_unused]] const int held = open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

}  // namespace

int main(int argc, char** argv) {
  hold_closed_streams();
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe is a write error like others
  spdlog::set_default_logger(spdlog::stderr_color_mt("lamina"));
  spdlog::set_pattern("lamina: %^%l%$: %v");
  spdlog::set_level(spdlog::level::warn);
  try {
    return run(argc, argv);
  } catch (const lamina::Error& error) {
    return say(error.exit_code(), error.what());
  } catch (const lamina::Interrupted& interrupted) {
    return 128 + interrupted.signal;
  } catch (const std::bad_alloc&) {
    return say(static_cast<int>(lamina::ErrorKind::kMemory), "out of memory");
  } catch (const std::exception& error) {
    return say(static_cast<int>(lamina::ErrorKind::kRuntime), one_line(error.what()));
  }
}

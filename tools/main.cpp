// The `lamina` binary: parses the command line, runs one verb, turns errors into one line and an exit code (design,
// section 6).
#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <new>

#include "gguf/error.h"
#include "tools/verbs.h"

int main(int argc, char** argv) {
  spdlog::set_default_logger(spdlog::stderr_color_st("lamina"));  // stdout is for results
  spdlog::set_pattern("lamina: %^%l%$: %v");
  CLI::App app{"lamina runs quantised language models from GGUF files", "lamina"};
  app.set_version_flag("--version", "lamina " LAMINA_VERSION);
  app.require_subcommand(0, 1);
  lamina::add_inspect(app);
  lamina::add_tokenize(app);
  try {
    app.parse(argc, argv);
    if (app.get_subcommands().empty()) fmt::print("{}", app.help());
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(lamina::ErrorKind::kUsage);
  } catch (const lamina::Error& error) {
    fmt::print(stderr, "lamina: {}\n", error.what());
    return error.exit_code();
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "lamina: out of memory\n");
    return static_cast<int>(lamina::ErrorKind::kMemory);
  }
}

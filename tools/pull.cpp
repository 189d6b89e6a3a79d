// `lamina pull`: fetches a model of models.txt. In: its name. Out: the file's path on standard output; progress on
// standard error.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "gguf/error.h"
#include "tools/fetch.h"
#include "tools/listed_models.h"
#include "tools/terminal.h"
#include "tools/verbs.h"

namespace lamina {
namespace {

struct PullOptions {
  std::string name;
  bool list = false;
};

void print_list() {
  for (const ModelRow& row : model_list()) print_stdout(row.name + "\n");
}

std::string known_names() {
  std::string names;
  for (const ModelRow& row : model_list()) names += (names.empty() ? "" : ", ") + row.name;
  return names;
}

void pull(const PullOptions& options) {
  if (options.list) return print_list();
  if (options.name.empty()) fail(ErrorKind::kUsage, "pull: give a name, one of: {}", known_names());
  const std::optional<ModelRow> row = find_listed(options.name);
  if (!row) fail(ErrorKind::kUsage, "unknown model '{}'; there are: {}", printable(options.name), known_names());
  const SignalFlag signals;
  print_stdout(fetch_model(*row, signals) + "\n");
}

}  // namespace

void add_pull(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("pull", "Fetch a model by its name and print the file's path");
  const auto options = std::make_shared<PullOptions>();
  verb->add_option("NAME", options->name, "which model");
  verb->add_flag("--list", options->list, "print the names that there are");
  verb->callback([options] { pull(*options); });
}

}  // namespace lamina

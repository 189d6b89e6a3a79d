// `lamina devices`: what this machine offers. Out: one block of lines a device, or JSON with --json.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "kernels/memory_limits.h"
#include "kernels/pool.h"
#include "tools/cpu_info.h"
#include "tools/terminal.h"
#include "tools/verbs.h"

namespace lamina {
namespace {

void print_devices(bool json) {
  const Cpu cpu = read_cpu();
  const MemoryLimits memory = memory_limits();
  const std::string isa = cpu_isa();
  const int n_threads = cpu_threads();
  if (json) {
    const nlohmann::ordered_json device = {{"name", "cpu"},
                                           {"description", cpu.model},
                                           {"isa", isa},
                                           {"isas", cpu_isas()},
                                           {"threads", n_threads},
                                           {"features", cpu.features},
                                           {"memory_total", memory.total},
                                           {"memory_available", memory.available}};
    using Handling = nlohmann::ordered_json::error_handler_t;
    write_stdout(nlohmann::ordered_json{{"devices", {device}}}.dump(2, ' ', false, Handling::replace) + "\n");
    return;
  }
  constexpr double kGib = 1024.0 * 1024.0 * 1024.0;
  write_stdout(
      fmt::format("cpu       {}\n"
                  "  isa       {} (of {})\n"
                  "  threads   {}\n"
                  "  features  {}\n"
                  "  memory    {:.1f} GiB, {:.1f} GiB available\n",
                  cpu.model, isa, fmt::join(cpu_isas(), ", "), n_threads, fmt::join(cpu.features, " "),
                  static_cast<double>(memory.total) / kGib, static_cast<double>(memory.available) / kGib));
}

}  // namespace

void add_devices(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("devices", "List the devices that models can run on");
  const auto json = std::make_shared<bool>(false);
  verb->add_flag("--json", *json, "as JSON");
  verb->callback([json] { print_devices(*json); });
}

}  // namespace lamina

// `lamina devices`: what this machine offers. Out: one block of lines a device, or JSON with --json.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "kernels/memory_limits.h"
#include "kernels/opencl/opencl_device.h"
#include "kernels/pool.h"
#include "tools/cpu_info.h"
#include "tools/terminal.h"
#include "tools/verbs.h"

namespace lamina {
namespace {

const char* kind_of(const OpenClInfo& info) { return info.is_gpu ? "GPU" : info.is_cpu ? "CPU" : "accelerator"; }

void print_devices(bool json) {
  const Cpu cpu = read_cpu();
  const MemoryLimits memory = memory_limits();
  const std::string isa = cpu_isa();
  const int n_threads = cpu_threads();
  const std::vector<OpenClInfo> opencl = opencl_devices();
  if (json) {
    nlohmann::ordered_json devices = {{{"name", "cpu"},
                                       {"description", cpu.model},
                                       {"isa", isa},
                                       {"isas", cpu_isas()},
                                       {"threads", n_threads},
                                       {"features", cpu.features},
                                       {"memory_total", memory.total},
                                       {"memory_available", memory.available}}};
    for (const OpenClInfo& info : opencl) {
      devices.push_back({{"name", fmt::format("opencl:{}", info.index)},
                         {"description", info.name},
                         {"platform", info.platform},
                         {"version", info.version},
                         {"driver", info.driver},
                         {"kind", kind_of(info)},
                         {"compute_units", info.compute_units},
                         {"features", info.features},
                         {"memory_total", info.memory},
                         {"largest_buffer", info.most_bytes},
                         {"local_memory", info.local_memory},
                         {"work_group", info.most_group}});
    }
    using Handling = nlohmann::ordered_json::error_handler_t;
    write_stdout(nlohmann::ordered_json{{"devices", devices}}.dump(2, ' ', false, Handling::replace) + "\n");
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
  for (const OpenClInfo& info : opencl) {
    write_stdout(fmt::format(
        "{:<9} {}\n"
        "  platform  {}, {}, driver {}\n"
        "  kind      {}, {} compute units, work-groups up to {}\n"
        "  features  {}\n"
        "  memory    {:.1f} GiB, buffers up to {:.1f} GiB, {} KiB local\n",
        fmt::format("opencl:{}", info.index), info.name, info.platform, info.version, info.driver, kind_of(info),
        info.compute_units, info.most_group, fmt::join(info.features, " "), static_cast<double>(info.memory) / kGib,
        static_cast<double>(info.most_bytes) / kGib, info.local_memory / 1024));
  }
}

}  // namespace

void add_devices(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("devices", "List the devices that models can run on");
  const auto json = std::make_shared<bool>(false);
  verb->add_flag("--json", *json, "as JSON");
  verb->callback([json] { print_devices(*json); });
}

}  // namespace lamina

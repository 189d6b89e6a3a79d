// `lamina devices`: what this machine offers. Out: one block of lines a device, or JSON with --json.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "tools/cpu_info.h"
#include "tools/terminal.h"
#include "tools/verbs.h"

namespace lamina {
namespace {

/// A number of bytes in a file of the cgroup; nothing for "max" or when there is no such file.
std::optional<uint64_t> cgroup_bytes(const std::string& name) {
  uint64_t value = 0;
  if (std::ifstream("/sys/fs/cgroup/" + name) >> value) return value;
  return std::nullopt;
}

struct Memory {
  uint64_t total = 0, available = 0;
};

/// What the machine has and what the cgroup leaves of it.
Memory read_memory() {
  Memory memory;
  std::ifstream file("/proc/meminfo");
  for (std::string key; file >> key;) {
    uint64_t kib = 0;
    std::string rest;
    if (file >> kib && key == "MemTotal:") memory.total = kib * 1024;
    if (key == "MemAvailable:") memory.available = kib * 1024;
    std::getline(file, rest);
  }
  const std::optional<uint64_t> limit = cgroup_bytes("memory.max");
  const std::optional<uint64_t> used = cgroup_bytes("memory.current");
  if (limit) memory.total = std::min(memory.total, *limit);
  if (limit && used) memory.available = std::min(memory.available, *limit - std::min(*limit, *used));
  return memory;
}

void print_devices(bool json) {
  const Cpu cpu = read_cpu();
  const Memory memory = read_memory();
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

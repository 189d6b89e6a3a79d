// Limits of the machine, then of each cgroup that holds the process.
#include "kernels/memory_limits.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>

#include "gguf/error.h"
#include "kernels/cgroup.h"

namespace lamina {
namespace {

namespace fs = std::filesystem;
constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

/// The number behind `key` in a file of lines "key number ...".
std::optional<uint64_t> number_of(const fs::path& path, const std::string& key) {
  std::ifstream file(path);
  std::string word, rest;
  for (uint64_t number = 0; file >> word >> number; std::getline(file, rest)) {
    if (word == key) return number;
  }
  return std::nullopt;
}

/// The number that is all a file holds; nothing for "max" or a file that is not there.
std::optional<uint64_t> number_in(const fs::path& path) {
  uint64_t number = 0;
  if (std::ifstream(path) >> number) return number;
  return std::nullopt;
}

/// Memory in use that cannot be dropped: pages of files can.
uint64_t held_in(const fs::path& cgroup) {
  const uint64_t used = number_in(cgroup / "memory.current").value_or(0);
  const uint64_t droppable = number_of(cgroup / "memory.stat", "active_file").value_or(0) +
                             number_of(cgroup / "memory.stat", "inactive_file").value_or(0);
  return used - std::min(used, droppable);
}

}  // namespace

MemoryLimits memory_limits(const std::string& root) {
  const fs::path meminfo = fs::path(root) / "proc/meminfo";
  const auto bytes = [&](const char* key) {
    const std::optional<uint64_t> kib = number_of(meminfo, key);
    return kib ? *kib * 1024 : kNoLimit;
  };
  MemoryLimits limits{bytes("MemTotal:"), bytes("MemAvailable:")};
  for (const fs::path& group : cgroup_folders(root)) {
    if (const std::optional<uint64_t> most = number_in(group / "memory.max")) {
      limits.total = std::min(limits.total, *most);
      limits.available = std::min(limits.available, *most - std::min(*most, held_in(group)));
    }
  }
  return limits;
}

void require_memory(uint64_t bytes, const std::string& purpose) {
  const MemoryLimits limits = memory_limits();
  if (bytes <= limits.available) return;
  const auto mib = [](uint64_t n) { return n / 1024 / 1024; };
  fail(ErrorKind::kMemory, "{} MiB of memory are needed for {}, but {} of {} MiB are available", mib(bytes), purpose,
       mib(limits.available), mib(limits.total));
}

}  // namespace lamina

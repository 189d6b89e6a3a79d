// What memory the machine has and what the process's cgroups leave of it.
// In: /proc/meminfo and the memory.* files of the process's cgroups (cgroup.h). Out: bytes.
// A need is compared with them before anything is touched: the kernel grants address space without looking, and kills
// later.
#pragma once
#include <cstdint>
#include <string>

namespace lamina {

struct MemoryLimits {
  uint64_t total = 0;      ///< of the machine, or the least of the cgroups' limits
  uint64_t available = 0;  ///< what can be had without swapping; file pages that can be dropped count as available
};

/// `root` is where /proc and /sys/fs/cgroup are looked for. What cannot be read does not limit.
MemoryLimits memory_limits(const std::string& root = "/");

/// Throws Error(kMemory) with both figures unless `bytes` are available for `purpose`.
void require_memory(uint64_t bytes, const std::string& purpose);

}  // namespace lamina

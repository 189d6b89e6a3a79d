// Walks from the process's cgroup up to the root.
#include "kernels/cgroup.h"

#include <algorithm>
#include <fstream>
#include <limits>

namespace lamina {
namespace {

namespace fs = std::filesystem;

/// The process's cgroup, as a path below the root of all: what stands behind "0::/".
fs::path own_cgroup(const fs::path& root) {
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("0::/")) return line.substr(4);
  }
  return {};
}

}  // namespace

std::vector<fs::path> cgroup_folders(const std::string& root) {
  const fs::path top = fs::path(root) / "sys/fs/cgroup";
  std::vector<fs::path> folders;
  for (fs::path group = own_cgroup(root); !group.empty(); group = group.parent_path()) folders.push_back(top / group);
  folders.push_back(top);
  return folders;
}

double cgroup_processors(const std::string& root) {
  double least = std::numeric_limits<double>::infinity();
  for (const fs::path& folder : cgroup_folders(root)) {
    // "QUOTA PERIOD" in microseconds, or "max PERIOD".
    std::ifstream file(folder / "cpu.max");
    double quota = 0, period = 0;
    if (file >> quota >> period && quota > 0 && period > 0) least = std::min(least, quota / period);
  }
  return least;
}

}  // namespace lamina

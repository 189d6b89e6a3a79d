// The cgroups (version 2) that hold the process: each of them may limit what it uses, so the least limit counts.
// In: /proc/self/cgroup and /sys/fs/cgroup. Out: the folders of the groups, and the processors that they allow.
// `root` is where /proc and /sys are looked for.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace lamina {

/// Folders of the process's cgroup and of all its ancestors, the root's last.
std::vector<std::filesystem::path> cgroup_folders(const std::string& root = "/");

/// Processors that the groups' quotas of CPU time (cpu.max) come to: the least of them; infinity without any.
double cgroup_processors(const std::string& root = "/");

}  // namespace lamina

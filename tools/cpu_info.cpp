// Reads the first paragraph of /proc/cpuinfo.
#include "tools/cpu_info.h"

#include <array>
#include <fstream>
#include <set>
#include <sstream>

namespace lamina {
namespace {

/// CPU flags that decide which kernels run, as /proc/cpuinfo spells them.
constexpr std::array kFeatures = {"sse4_2",      "avx",      "f16c",     "fma",      "avx2",        "avx_vnni",
                                  "avx512f",     "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "avx512_bf16",
                                  "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16"};

}  // namespace

Cpu read_cpu() {
  Cpu cpu;
  std::set<std::string> flags;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line) && !line.empty();) {  // the first CPU's paragraph
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    if (line.starts_with("model name")) cpu.model = line.substr(colon + 2);
    if (!line.starts_with("flags")) continue;
    std::istringstream words(line.substr(colon + 2));
    for (std::string word; words >> word;) flags.insert(word);
  }
  for (const char* feature : kFeatures) {
    if (flags.contains(feature)) cpu.features.emplace_back(feature);
  }
  return cpu;
}

}  // namespace lamina

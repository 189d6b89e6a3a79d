// What /proc/cpuinfo says of the first CPU. Out: its name and the features that decide which kernels run.
#pragma once
#include <string>
#include <vector>

namespace lamina {

struct Cpu {
  std::string model;                  ///< empty when the system does not tell
  std::vector<std::string> features;  ///< as /proc/cpuinfo spells them
};

Cpu read_cpu();

}  // namespace lamina

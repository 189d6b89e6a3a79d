// The CPU device: runs programs on the machine's cores with the best instruction set there is.
// Logits do not depend, in any bit, on threads, batching or instruction set (design, section 2).
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "kernels/device.h"

namespace lamina {

struct CpuOptions {
  int n_threads = 0;             ///< 0: cpu_threads()
  std::string isa;               ///< "scalar", "avx2", "avxvnni", "avx512"; empty: LAMINA_ISA if set, else the best
  std::string plane_cache = {};  ///< folder where planes are kept for the next time; empty: none are
};

/// Throws Error(kUsage) for an unknown or unsupported instruction set or a thread count outside 1..1024.
std::unique_ptr<Device> make_cpu_device(const CpuOptions& options);

/// Instruction sets that this CPU can run, slowest first: "scalar", "avx2", "avxvnni", "avx512".
std::vector<std::string> cpu_isas();

/// The one that make_cpu_device takes when none is named: the best, capped by LAMINA_ISA. Throws Error(kUsage) for a
/// value of LAMINA_ISA that is not an instruction set's name.
std::string cpu_isa();

/// Measured read bandwidth of main memory with `n_threads`, bytes a second (takes about 0.8 s).
double cpu_read_bandwidth(int n_threads);

}  // namespace lamina

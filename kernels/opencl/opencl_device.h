// The OpenCL device: runs programs on any OpenCL 1.2 device through the ICD loader, logits bit-equal to the CPU
// device's where division and square root are correctly rounded.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/device.h"

namespace lamina {

/// An OpenCL device as its driver describes it.
struct OpenClInfo {
  int index = 0;  ///< in the list of all platforms' devices
  std::string platform, name, version, driver;
  bool is_cpu = false, is_gpu = false;
  uint32_t compute_units = 0;
  uint64_t memory = 0;                ///< bytes
  uint64_t most_bytes = 0;            ///< of one buffer
  uint64_t local_memory = 0;          ///< bytes of a work-group
  uint32_t most_group = 0;            ///< work-items of a work-group
  std::vector<std::string> features;  ///< "fp16", "fp64", "sub-groups", "integer dot", "rounded division"
};

/// Empty when there is no OpenCL runtime.
std::vector<OpenClInfo> opencl_devices();

struct OpenClOptions {
  int index = -1;            ///< -1: the first GPU, else the first device
  int lanes = 0;             ///< rows that a work-item does, 1 or 16; 0: 16 on CPUs, else 1
  int n_threads = 0;         ///< that bring weights into planes; 0: cpu_threads()
  std::string kernel_cache;  ///< folder where compiled kernels are kept; empty: none are
};

/// Throws Error(kDevice) with the list of devices when there is none of that index.
std::unique_ptr<Device> make_opencl_device(const OpenClOptions& options);

}  // namespace lamina

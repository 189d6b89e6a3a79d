// Kernels of a device, compiled when they are first asked for and kept on disk as the driver's binaries.
// In: a file of kernel text, defines and a kernel's name. Out: a kernel object of its own. A cached binary's name holds
// a hash of text, options, device and driver, which stand in it too and are compared; what is damaged or refused by the
// driver is made anew. Writing is by a whole file's rename, so processes may share a folder.
#pragma once
#include <chrono>
#include <map>
#include <string>

#include "kernels/opencl/api.h"

namespace lamina::opencl {

class KernelStore {
 public:
  /// `folder`: empty: nothing is kept.
  KernelStore(const Target& target, std::string folder) : target_(target), folder_(std::move(folder)) {}

  /// Throws Error(kDevice) with the first lines of the compiler's log.
  Kernel make(const std::string& file, const std::string& defines, const char* kernel);

 private:
  CompiledProgram load(const std::string& path, const std::string& key);
  CompiledProgram compile(const std::string& file, const std::string& text, const std::string& options);
  void save(const std::string& path, const std::string& key, cl_program program);

  const Target& target_;
  const std::string folder_;
  std::map<std::string, CompiledProgram> programs_;  ///< by file and defines
  std::chrono::duration<double> compiling_{0};
  bool told_ = false;  ///< that compiling takes a while
};

}  // namespace lamina::opencl

// The kernels that a program uses, made at their first use.
// In: where a kernel stands, and for those that read weights of what type. Out: a kernel object.
#pragma once
#include <map>
#include <utility>

#include "gguf/type.h"
#include "kernels/opencl/kernel_store.h"

namespace lamina::opencl {

/// A kernel of the kernel text. Known by its address.
struct KernelPlace {
  const char* file;  ///< nullptr: linear_quant.cl or linear_float.cl, as the type wants
  const char *defines, *name;
  bool packs = false;  ///< its input into LOCAL_WORDS words of local memory
};

class Kernels {
 public:
  explicit Kernels(KernelStore& store) : store_(store) {}

  /// Words of local memory that kernels which pack have for it.
  void set_local_words(uint32_t words) { local_words_ = words; }

  cl_kernel get(const KernelPlace& place, const gguf::Type* type = nullptr);

 private:
  KernelStore& store_;
  uint32_t local_words_ = 0;
  std::map<std::pair<const KernelPlace*, const gguf::Type*>, Kernel> kernels_;
};

}  // namespace lamina::opencl

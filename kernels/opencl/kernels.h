// The kernels that a program uses, made at their first use.
// In: which kernel, and for those that read weights of what type. Out: a kernel object.
#pragma once
#include <map>
#include <utility>

#include "gguf/type.h"
#include "kernels/opencl/kernel_store.h"

namespace lamina::opencl {

enum class KernelId : uint8_t {
  kEmbed,
  kPackQuant,
  kPackFloat,
  kPackBf16,
  kLinear1,  ///< of 1, 2, 4 or 8 rows at once
  kLinear2,
  kLinear4,
  kLinear8,
  kLinearAlone,
  kNorm,
  kAppend,
  kAttend1,  ///< with 1 to 4 heads of a KV head at once
  kAttend2,
  kAttend3,
  kAttend4,
  kAttendMerge,
  kRoute,
  kCombine,
  kSelectRows,
  kArgmaxParts,
  kArgmaxMerge,
  kAdvance
};

class Kernels {
 public:
  explicit Kernels(KernelStore& store) : store_(store) {}

  /// Words of local memory that kLinearAlone has for its packed input.
  void set_local_words(uint32_t words) { local_words_ = words; }

  cl_kernel get(KernelId id, const gguf::Type* type = nullptr);

 private:
  KernelStore& store_;
  uint32_t local_words_ = 0;
  std::map<std::pair<KernelId, const gguf::Type*>, Kernel> kernels_;
};

}  // namespace lamina::opencl

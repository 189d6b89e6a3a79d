// Makes kernels with a type's defines: see kernels.h.
#include "kernels/opencl/kernels.h"

#include "gguf/error.h"
#include "kernels/opencl/weights.h"

namespace lamina::opencl {

cl_kernel Kernels::get(const KernelPlace& place, const gguf::Type* type) {
  Kernel& kernel = kernels_[{&place, type}];
  if (kernel) return kernel.get();
  const char* file = place.file;
  if (file == nullptr) file = type->kind == gguf::TypeKind::kQuant ? "linear_quant.cl" : "linear_float.cl";
  std::string defines = place.defines;
  if (place.packs) defines += fmt::format(" -DLOCAL_WORDS={}", local_words_);
  if (type != nullptr) defines += type_defines(*type);
  kernel = store_.make(file, defines, place.name);
  return kernel.get();
}

}  // namespace lamina::opencl

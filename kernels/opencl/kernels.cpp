// Where each kernel stands: see kernels.h.
#include "kernels/opencl/kernels.h"

#include "gguf/error.h"
#include "kernels/opencl/weights.h"

namespace lamina::opencl {

namespace {

struct KernelPlace {
  KernelId id;
  const char *file, *defines, *name;
};
/// linear's file depends on the type: see get().
constexpr KernelPlace kPlaces[] = {
    {KernelId::kEmbed, "embed.cl", "", "embed"},
    {KernelId::kPackQuant, "pack.cl", " -DFORM=0", "pack"},
    {KernelId::kPackFloat, "pack.cl", " -DFORM=1", "pack"},
    {KernelId::kPackBf16, "pack.cl", " -DFORM=2", "pack"},
    {KernelId::kLinear1, nullptr, " -DT=1", "linear"},
    {KernelId::kLinear2, nullptr, " -DT=2", "linear"},
    {KernelId::kLinear4, nullptr, " -DT=4", "linear"},
    {KernelId::kLinear8, nullptr, " -DT=8", "linear"},
    {KernelId::kLinearAlone, nullptr, " -DT=1 -DALONE", "linear_alone"},
    {KernelId::kNorm, "norm.cl", "", "norm"},
    {KernelId::kAppend, "append.cl", "", "append"},
    {KernelId::kAttend1, "attend.cl", " -DHEADS=1", "attend"},
    {KernelId::kAttend2, "attend.cl", " -DHEADS=2", "attend"},
    {KernelId::kAttend3, "attend.cl", " -DHEADS=3", "attend"},
    {KernelId::kAttend4, "attend.cl", " -DHEADS=4", "attend"},
    {KernelId::kAttendMerge, "attend.cl", " -DHEADS=1", "attend_merge"},
    {KernelId::kRoute, "experts.cl", "", "route"},
    {KernelId::kCombine, "experts.cl", "", "combine"},
    {KernelId::kSelectRows, "outputs.cl", "", "select_rows"},
    {KernelId::kArgmaxParts, "outputs.cl", "", "argmax_parts"},
    {KernelId::kArgmaxMerge, "outputs.cl", "", "argmax_merge"},
    {KernelId::kAdvance, "outputs.cl", "", "advance"},
};

}  // namespace

cl_kernel Kernels::get(KernelId id, const gguf::Type* type) {
  Kernel& kernel = kernels_[{id, type}];
  if (kernel) return kernel.get();
  const KernelPlace& place = kPlaces[static_cast<size_t>(id)];
  LAMINA_CHECK(place.id == id);
  const char* file = place.file;
  if (file == nullptr) file = type->kind == gguf::TypeKind::kQuant ? "linear_quant.cl" : "linear_float.cl";
  std::string defines = place.defines;
  if (type != nullptr) defines += type_defines(*type);
  if (id == KernelId::kLinearAlone) defines += fmt::format(" -DLOCAL_WORDS={}", local_words_);
  kernel = store_.make(file, defines, place.name);
  return kernel.get();
}

}  // namespace lamina::opencl

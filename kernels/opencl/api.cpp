// Errors, buffers and the list of devices: see api.h.
#include "kernels/opencl/api.h"

#include <algorithm>

#include "gguf/error.h"

namespace lamina::opencl {

namespace {

struct ErrorName {
  cl_int code;
  const char* name;
};
#define LAMINA_CODE(code) \
  { code, #code }
constexpr ErrorName kErrorNames[] = {
    LAMINA_CODE(CL_DEVICE_NOT_FOUND),
    LAMINA_CODE(CL_DEVICE_NOT_AVAILABLE),
    LAMINA_CODE(CL_COMPILER_NOT_AVAILABLE),
    LAMINA_CODE(CL_MEM_OBJECT_ALLOCATION_FAILURE),
    LAMINA_CODE(CL_OUT_OF_RESOURCES),
    LAMINA_CODE(CL_OUT_OF_HOST_MEMORY),
    LAMINA_CODE(CL_PROFILING_INFO_NOT_AVAILABLE),
    LAMINA_CODE(CL_BUILD_PROGRAM_FAILURE),
    LAMINA_CODE(CL_MAP_FAILURE),
    LAMINA_CODE(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST),
    LAMINA_CODE(CL_COMPILE_PROGRAM_FAILURE),
    LAMINA_CODE(CL_INVALID_VALUE),
    LAMINA_CODE(CL_INVALID_DEVICE),
    LAMINA_CODE(CL_INVALID_CONTEXT),
    LAMINA_CODE(CL_INVALID_COMMAND_QUEUE),
    LAMINA_CODE(CL_INVALID_MEM_OBJECT),
    LAMINA_CODE(CL_INVALID_BINARY),
    LAMINA_CODE(CL_INVALID_BUILD_OPTIONS),
    LAMINA_CODE(CL_INVALID_PROGRAM),
    LAMINA_CODE(CL_INVALID_PROGRAM_EXECUTABLE),
    LAMINA_CODE(CL_INVALID_KERNEL_NAME),
    LAMINA_CODE(CL_INVALID_KERNEL),
    LAMINA_CODE(CL_INVALID_ARG_INDEX),
    LAMINA_CODE(CL_INVALID_ARG_VALUE),
    LAMINA_CODE(CL_INVALID_ARG_SIZE),
    LAMINA_CODE(CL_INVALID_KERNEL_ARGS),
    LAMINA_CODE(CL_INVALID_WORK_DIMENSION),
    LAMINA_CODE(CL_INVALID_WORK_GROUP_SIZE),
    LAMINA_CODE(CL_INVALID_WORK_ITEM_SIZE),
    LAMINA_CODE(CL_INVALID_EVENT_WAIT_LIST),
    LAMINA_CODE(CL_INVALID_EVENT),
    LAMINA_CODE(CL_INVALID_OPERATION),
    LAMINA_CODE(CL_INVALID_BUFFER_SIZE),
    LAMINA_CODE(CL_INVALID_GLOBAL_WORK_SIZE),
};
#undef LAMINA_CODE

template <class T>
T device_value(cl_device_id device, cl_device_info what) {
  T value = {};
  return clGetDeviceInfo(device, what, sizeof value, &value, nullptr) == CL_SUCCESS ? value : T{};
}

std::string without_end(std::string text) {
  text.resize(std::min(text.find('\0'), text.size()));
  return text;
}

std::string platform_name(cl_platform_id platform) {
  size_t size = 0;
  if (clGetPlatformInfo(platform, CL_PLATFORM_NAME, 0, nullptr, &size) != CL_SUCCESS) return "";
  std::string text(size, '\0');
  clGetPlatformInfo(platform, CL_PLATFORM_NAME, size, text.data(), nullptr);
  return without_end(text);
}

OpenClInfo describe(cl_platform_id platform, cl_device_id device, int index) {
  OpenClInfo info;
  info.index = index;
  info.platform = platform_name(platform);
  info.name = device_text(device, CL_DEVICE_NAME);
  info.version = device_text(device, CL_DEVICE_VERSION);
  info.driver = device_text(device, CL_DRIVER_VERSION);
  const auto type = device_value<cl_device_type>(device, CL_DEVICE_TYPE);
  info.is_cpu = (type & CL_DEVICE_TYPE_CPU) != 0;
  info.is_gpu = (type & CL_DEVICE_TYPE_GPU) != 0;
  info.compute_units = device_value<cl_uint>(device, CL_DEVICE_MAX_COMPUTE_UNITS);
  info.memory = device_value<cl_ulong>(device, CL_DEVICE_GLOBAL_MEM_SIZE);
  info.most_bytes = device_value<cl_ulong>(device, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
  info.local_memory = device_value<cl_ulong>(device, CL_DEVICE_LOCAL_MEM_SIZE);
  info.most_group = static_cast<uint32_t>(device_value<size_t>(device, CL_DEVICE_MAX_WORK_GROUP_SIZE));
  const std::string extensions = device_text(device, CL_DEVICE_EXTENSIONS);
  const auto has = [&](std::string_view extension) { return extensions.find(extension) != std::string::npos; };
  if (has("cl_khr_fp16")) info.features.emplace_back("fp16");
  if (has("cl_khr_fp64")) info.features.emplace_back("fp64");
  if (has("cl_khr_subgroups") || has("cl_intel_subgroups")) info.features.emplace_back("sub-groups");
  if (has("cl_khr_integer_dot_product")) info.features.emplace_back("integer-dot");
  const auto floats = device_value<cl_device_fp_config>(device, CL_DEVICE_SINGLE_FP_CONFIG);
  if ((floats & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT) != 0) info.features.emplace_back("rounded-division");
  if ((floats & CL_FP_DENORM) != 0) info.features.emplace_back("denormals");
  return info;
}

}  // namespace

std::string error_name(cl_int code) {
  for (const ErrorName& error : kErrorNames)
    if (error.code == code) return error.name;
  return fmt::format("error {}", code);
}

void check(cl_int code, const char* call) {
  if (code == CL_SUCCESS) return;
  const bool memory = code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_OUT_OF_HOST_MEMORY;
  fail(memory ? ErrorKind::kMemory : ErrorKind::kRuntime, "OpenCL: {} failed with {}", call, error_name(code));
}

Buffer::Buffer(cl_context context, uint64_t bytes, const char* purpose) : bytes_(std::max<uint64_t>(bytes, 1)) {
  cl_int code = CL_SUCCESS;
  object_ = Handle<cl_mem, clReleaseMemObject>(clCreateBuffer(context, CL_MEM_READ_WRITE, bytes_, nullptr, &code));
  if (code == CL_SUCCESS) return;
  fail(ErrorKind::kMemory, "OpenCL: clCreateBuffer failed with {} for {} bytes of {}", error_name(code), bytes_,
       purpose);
}

std::string device_text(cl_device_id device, cl_device_info what) {
  size_t size = 0;
  if (clGetDeviceInfo(device, what, 0, nullptr, &size) != CL_SUCCESS) return "";
  std::string text(size, '\0');
  if (clGetDeviceInfo(device, what, size, text.data(), nullptr) != CL_SUCCESS) return "";
  return without_end(text);
}

std::vector<Found> find_devices() {
  std::vector<Found> found;
  cl_uint n_platforms = 0;
  if (clGetPlatformIDs(0, nullptr, &n_platforms) != CL_SUCCESS || n_platforms == 0) return found;
  std::vector<cl_platform_id> platforms(n_platforms);
  if (clGetPlatformIDs(n_platforms, platforms.data(), nullptr) != CL_SUCCESS) return found;
  for (const cl_platform_id platform : platforms) {
    cl_uint n_devices = 0;
    if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &n_devices) != CL_SUCCESS) continue;
    std::vector<cl_device_id> devices(n_devices);
    if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, n_devices, devices.data(), nullptr) != CL_SUCCESS) continue;
    for (const cl_device_id device : devices)
      found.push_back({platform, device, describe(platform, device, static_cast<int>(found.size()))});
  }
  return found;
}

}  // namespace lamina::opencl

// The OpenCL C API as this folder uses it: handles that release themselves, errors by name, the list of devices.
// In: codes that calls return. Out: an Error that names call and code: kMemory when memory ran out, else kRuntime.
#pragma once
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/opencl/opencl_device.h"

namespace lamina::opencl {

/// "CL_OUT_OF_RESOURCES", or the number of an unknown code.
std::string error_name(cl_int code);

/// Throws when `code` is an error of `call`.
void check(cl_int code, const char* call);

/// Gives a kernel its arguments from `index` on.
inline void set_args(cl_kernel, cl_uint) {}
template <class Arg, class... Rest>
void set_args(cl_kernel kernel, cl_uint index, const Arg& arg, const Rest&... rest) {
  check(clSetKernelArg(kernel, index, sizeof arg, &arg), "clSetKernelArg");
  set_args(kernel, index + 1, rest...);
}

/// A reference to an OpenCL object, released with it.
template <class T, cl_int (*Release)(T)>
class Handle {
 public:
  Handle() = default;
  explicit Handle(T object) : object_(object) {}
  ~Handle() {
    if (object_ != nullptr) Release(object_);
  }
  Handle(Handle&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  T get() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  T object_ = nullptr;
};

using Context = Handle<cl_context, clReleaseContext>;
using Queue = Handle<cl_command_queue, clReleaseCommandQueue>;
using CompiledProgram = Handle<cl_program, clReleaseProgram>;
using Kernel = Handle<cl_kernel, clReleaseKernel>;
using Event = Handle<cl_event, clReleaseEvent>;

/// A buffer of the device's.
class Buffer {
 public:
  Buffer() = default;
  /// Throws Error(kMemory) naming `purpose` and size. A buffer of 0 bytes has one byte.
  Buffer(cl_context context, uint64_t bytes, const char* purpose);
  cl_mem get() const { return object_.get(); }
  uint64_t bytes() const { return bytes_; }

 private:
  Handle<cl_mem, clReleaseMemObject> object_;
  uint64_t bytes_ = 0;
};

/// A device with what kernels are compiled and launched with.
struct Target {
  cl_device_id device = nullptr;
  Context context;
  Queue queue;
  OpenClInfo info;
  uint32_t lanes = 16;        ///< rows that a work-item does: W of the kernel text
  std::string build_options;  ///< beside a kernel's own defines
};

/// A text property of a device or platform; empty where it has none.
std::string device_text(cl_device_id device, cl_device_info what);

/// All devices of all platforms with their ids, in the order of OpenClInfo::index.
struct Found {
  cl_platform_id platform;
  cl_device_id device;
  OpenClInfo info;
};
std::vector<Found> find_devices();

}  // namespace lamina::opencl

// An OpenCL driver that fails on demand: a shared library for an .icd file, which loads PoCL and forwards all to it.
// In: LAMINA_FAIL="FUNCTION:N" or "FUNCTION:N:CODE": the N-th call of FUNCTION (from 1) returns CODE,
// CL_OUT_OF_RESOURCES by default, and does nothing; N = 0 stands for every call. LAMINA_FAULTS_FORWARD=LIBRARY names
// another driver than the one of /etc/OpenCL/vendors/pocl.icd. Out: PoCL's own objects: every object's first word
// points to its driver's table of functions, in which the named function is replaced.
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl_icd.h>
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <type_traits>

namespace {

std::string failing;  ///< name of the function
int fail_at = -1;     ///< which call of it
cl_int fail_code = CL_OUT_OF_RESOURCES;
std::atomic<int> n_calls{0};

bool is_due() { return ++n_calls == fail_at || fail_at == 0; }

/// Puts in place of a table's entry a function that fails when it is due, and forwards else.
template <auto Entry, class Function>
struct Replacement;
template <auto Entry, class Result, class... Arguments>
struct Replacement<Entry, Result (*)(Arguments...)> {
  static inline Result (*forward)(Arguments...) = nullptr;

  static Result call(Arguments... arguments) {
    if (!is_due()) return forward(arguments...);
    if constexpr (std::is_same_v<Result, cl_int>) {
      return fail_code;
    } else {  // an object; the code goes where the last argument points
      cl_int* code = nullptr;
      (
          (void)[&](auto argument) {
            if constexpr (std::is_same_v<decltype(argument), cl_int*>) code = argument;
          }(arguments),
          ...);
      if (code != nullptr) *code = fail_code;
      return nullptr;
    }
  }

  static void install(cl_icd_dispatch& table) {
    forward = table.*Entry;
    table.*Entry = call;
  }
};

#define REPLACE(function)                                                                                \
  if (failing == #function) {                                                                            \
    return Replacement<&cl_icd_dispatch::function, decltype(cl_icd_dispatch::function)>::install(table); \
  }
void replace_entry(cl_icd_dispatch& table) {
  REPLACE(clGetDeviceIDs)
  REPLACE(clCreateContext)
  REPLACE(clCreateCommandQueue)
  REPLACE(clCreateBuffer)
  REPLACE(clCreateProgramWithSource)
  REPLACE(clCreateProgramWithBinary)
  REPLACE(clBuildProgram)
  REPLACE(clCreateKernel)
  REPLACE(clSetKernelArg)
  REPLACE(clEnqueueNDRangeKernel)
  REPLACE(clEnqueueReadBuffer)
  REPLACE(clEnqueueWriteBuffer)
  REPLACE(clEnqueueFillBuffer)
  REPLACE(clEnqueueCopyBuffer)
  REPLACE(clEnqueueMapBuffer)
  REPLACE(clEnqueueUnmapMemObject)
  REPLACE(clFlush)
  REPLACE(clFinish)
  REPLACE(clWaitForEvents)
  std::fprintf(stderr, "opencl_faults: LAMINA_FAIL names '%s', which is not in the list\n", failing.c_str());
  std::abort();
}
#undef REPLACE

void make_writable(void* memory, size_t bytes) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(memory) / page * page;
  const uintptr_t end = reinterpret_cast<uintptr_t>(memory) + bytes;
  if (mprotect(reinterpret_cast<void*>(begin), end - begin, PROT_READ | PROT_WRITE) != 0) std::abort();
}

void replace_as_told(cl_platform_id platform) {
  const char* told = std::getenv("LAMINA_FAIL");
  if (told == nullptr || fail_at >= 0) return;
  const std::string text = told;
  const size_t colon = text.find(':'), second = text.find(':', colon + 1);
  failing = text.substr(0, colon);
  fail_at = std::atoi(text.c_str() + colon + 1);
  if (second != std::string::npos) fail_code = std::atoi(text.c_str() + second + 1);
  cl_icd_dispatch& table = **reinterpret_cast<cl_icd_dispatch**>(platform);
  make_writable(&table, sizeof table);
  replace_entry(table);
}

/// What the driver behind this one has of that name.
void* forwarded(const char* name) {
  using Lookup = void* (*)(const char*);
  static const auto look_up = [] {
    const char* path = std::getenv("LAMINA_FAULTS_FORWARD");
    std::string line = path != nullptr ? path : "";
    if (path == nullptr) std::getline(std::ifstream("/etc/OpenCL/vendors/pocl.icd"), line);
    void* library = dlopen(line.c_str(), RTLD_NOW);
    return library == nullptr ? nullptr : reinterpret_cast<Lookup>(dlsym(library, "clGetExtensionFunctionAddress"));
  }();
  return look_up == nullptr ? nullptr : look_up(name);
}

cl_int get_platforms(cl_uint n_entries, cl_platform_id* platforms, cl_uint* n_platforms) {
  const auto forward = reinterpret_cast<decltype(&get_platforms)>(forwarded("clIcdGetPlatformIDsKHR"));
  if (forward == nullptr) return CL_INVALID_PLATFORM;
  const cl_int code = forward(n_entries, platforms, n_platforms);
  if (code == CL_SUCCESS && platforms != nullptr) replace_as_told(platforms[0]);
  return code;
}

}  // namespace

/// What the loader looks up in a driver.
extern "C" void* clGetExtensionFunctionAddress(const char* name) {
  if (std::strcmp(name, "clIcdGetPlatformIDsKHR") == 0) return reinterpret_cast<void*>(&get_platforms);
  return forwarded(name);
}

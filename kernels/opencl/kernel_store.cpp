// Compiles kernels and keeps binaries: see kernel_store.h.
#include "kernels/opencl/kernel_store.h"

#include <spdlog/spdlog.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>

#include "gguf/error.h"
#include "gguf/whole_file.h"
#include "kernels/hash.h"
#include "kernels/opencl/kernel_text.h"

namespace lamina::opencl {

namespace {

constexpr int kLogLines = 8;

/// The first lines of a compiler's log.
std::string log_of(cl_program program, cl_device_id device) {
  size_t size = 0;
  if (clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, nullptr, &size) != CL_SUCCESS) return "";
  std::string log(size, '\0');
  clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, size, log.data(), nullptr);
  log.resize(std::min(log.find('\0'), log.size()));
  size_t end = 0;
  for (int i = 0; i < kLogLines && end < log.size(); i++) end = std::min(log.find('\n', end), log.size() - 1) + 1;
  return log.substr(0, end);
}

}  // namespace

Kernel KernelStore::make(const std::string& file, const std::string& defines, const char* kernel) {
  CompiledProgram& program = programs_[file + defines];
  if (!program) {
    const std::string options = target_.build_options + defines, text = kernel_text(file);
    const std::string key = fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n", target_.info.platform, target_.info.name,
                                        target_.info.version, target_.info.driver, options, text);
    const std::string path =
        folder_.empty() ? "" : fmt::format("{}/{}-{:016x}.bin", folder_, file.substr(0, file.find('.')), hash(key));
    if (!path.empty()) program = load(path, key);
    if (!program) {
      program = compile(file, text, options);
      if (!path.empty()) save(path, key, program.get());
    }
  }
  cl_int code = CL_SUCCESS;
  Kernel made(clCreateKernel(program.get(), kernel, &code));
  check(code, "clCreateKernel");
  return made;
}

CompiledProgram KernelStore::compile(const std::string& file, const std::string& text, const std::string& options) {
  using Clock = std::chrono::steady_clock;
  if (compiling_.count() > 1 && !std::exchange(told_, true)) {
    spdlog::warn("compiling kernels for {}{}", target_.info.name,
                 folder_.empty() ? "" : "; the next run finds them in " + folder_);
  }
  const auto start = Clock::now();
  const char* source = text.c_str();
  cl_int code = CL_SUCCESS;
  CompiledProgram program(clCreateProgramWithSource(target_.context.get(), 1, &source, nullptr, &code));
  check(code, "clCreateProgramWithSource");
  code = clBuildProgram(program.get(), 1, &target_.device, options.c_str(), nullptr, nullptr);
  if (code != CL_SUCCESS) {
    fail(ErrorKind::kDevice, "OpenCL: clBuildProgram failed with {} for kernels/{} on {}, which says:\n{}",
         error_name(code), file, target_.info.name, log_of(program.get(), target_.device));
  }
  compiling_ += Clock::now() - start;
  return program;
}

/// A cache file is the key, then a hash of the binary, then the binary.
CompiledProgram KernelStore::load(const std::string& path, const std::string& key) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return {};
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  uint64_t sum = 0;
  if (all.size() <= key.size() + sizeof sum || !all.starts_with(key)) return {};
  std::memcpy(&sum, all.data() + key.size(), sizeof sum);
  const std::string_view binary = std::string_view(all).substr(key.size() + sizeof sum);
  if (sum != hash(binary)) return {};
  const auto* data = reinterpret_cast<const unsigned char*>(binary.data());
  const size_t size = binary.size();
  cl_int status = CL_SUCCESS, code = CL_SUCCESS;
  CompiledProgram program(
      clCreateProgramWithBinary(target_.context.get(), 1, &target_.device, &size, &data, &status, &code));
  if (code != CL_SUCCESS || status != CL_SUCCESS) return {};
  const std::string options = target_.build_options;
  if (clBuildProgram(program.get(), 1, &target_.device, options.c_str(), nullptr, nullptr) != CL_SUCCESS) return {};
  return program;
}

/// Without a cache the next run is slower, no more.
void KernelStore::save(const std::string& path, const std::string& key, cl_program program) {
  size_t size = 0;
  if (clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, nullptr) != CL_SUCCESS || size == 0)
    return;
  std::string binary(size, '\0');
  auto* data = reinterpret_cast<unsigned char*>(binary.data());
  if (clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof data, &data, nullptr) != CL_SUCCESS) return;
  const uint64_t sum = hash(binary);
  try {
    std::filesystem::create_directories(folder_);
    WholeFile file(path);
    file.write(std::as_bytes(std::span(key)));
    file.write(std::as_bytes(std::span(&sum, 1)));
    file.write(std::as_bytes(std::span(binary)));
    file.finish();
  } catch (const std::exception& error) {
    spdlog::info("no cache of kernels: {}", error.what());
  }
}

}  // namespace lamina::opencl

// Chooses an OpenCL device, makes context and queue, measures peaks: see opencl_device.h.
#include "kernels/opencl/opencl_device.h"

#include <algorithm>
#include <chrono>

#include "gguf/error.h"
#include "kernels/opencl/executable.h"
#include "kernels/pool.h"

namespace lamina {
namespace opencl {
namespace {

bool has(const OpenClInfo& info, const char* feature) {
  return std::find(info.features.begin(), info.features.end(), feature) != info.features.end();
}

/// The device of that index, or with -1 the first GPU, else the first device.
Found choose(int index) {
  const std::vector<Found> all = find_devices();
  if (all.empty()) {
    fail(ErrorKind::kDevice,
         "there is no OpenCL device: install a driver with its .icd file (OCL_ICD_VENDORS names the "
         "folder of .icd files, /etc/OpenCL/vendors by default)");
  }
  if (index < 0) {
    const auto gpu = std::find_if(all.begin(), all.end(), [](const Found& found) { return found.info.is_gpu; });
    return gpu != all.end() ? *gpu : all.front();
  }
  if (static_cast<size_t>(index) < all.size()) return all[static_cast<size_t>(index)];
  std::string list;
  for (const Found& found : all)
    list += fmt::format("{}opencl:{} ({})", list.empty() ? "" : ", ", found.info.index, found.info.name);
  fail(ErrorKind::kDevice, "there is no device opencl:{}; there are: {}", index, list);
}

Target make_target(const Found& found, int lanes) {
  Target target;
  target.device = found.device;
  target.info = found.info;
  target.lanes = lanes != 0 ? static_cast<uint32_t>(lanes) : found.info.is_cpu ? kRowTile : 1;
  const size_t items = kRowTile / target.lanes;
  if (found.info.most_group < items) {
    fail(ErrorKind::kDevice, "{} has work-groups of at most {} work-items; {} are needed", found.info.name,
         found.info.most_group, items);
  }
  const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM,
                                              reinterpret_cast<cl_context_properties>(found.platform), 0};
  cl_int code = CL_SUCCESS;
  target.context = Context(clCreateContext(properties, 1, &target.device, nullptr, nullptr, &code));
  check(code, "clCreateContext");
  target.queue = Queue(clCreateCommandQueue(target.context.get(), target.device, 0, &code));
  check(code, "clCreateCommandQueue");
  target.build_options =
      fmt::format("-cl-std=CL1.2 -w{} -DW={}",
                  has(found.info, "rounded-division") ? " -cl-fp32-correctly-rounded-divide-sqrt" : "", target.lanes);
  return target;
}

/// The most of `work` a second that `kernel` does in 0.2 s of launches of `groups` groups.
double most_per_second(const Target& target, cl_kernel kernel, size_t groups, double work) {
  using Clock = std::chrono::steady_clock;
  const size_t items = kRowTile / target.lanes, global = groups * items;
  double best = 0;
  for (const auto end = Clock::now() + std::chrono::milliseconds(200); Clock::now() < end;) {
    const auto start = Clock::now();
    check(clEnqueueNDRangeKernel(target.queue.get(), kernel, 1, nullptr, &global, &items, 0, nullptr, nullptr),
          "clEnqueueNDRangeKernel");
    check(clFinish(target.queue.get()), "clFinish");
    best = std::max(best, work / std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

class OpenClDevice : public Device {
 public:
  OpenClDevice(const Found& found, const OpenClOptions& options)
      : target_(make_target(found, options.lanes)),
        store_(target_, options.kernel_cache),
        pool_(options.n_threads == 0 ? cpu_threads() : options.n_threads) {}

  std::string name() const override { return "opencl"; }

  Peaks measure_peaks() override {
    const size_t groups = target_.info.compute_units * (target_.lanes == kRowTile ? 4 : 256);
    const uint64_t most = std::min<uint64_t>(target_.info.most_bytes, 256 * 1024 * 1024);
    const uint32_t n_words = static_cast<uint32_t>(most / sizeof(uint32_t) / (64 * groups) * 64 * groups);
    const Buffer words(target_.context.get(), n_words * sizeof(uint32_t), "a measurement");
    const Buffer sums(target_.context.get(), groups * kRowTile * sizeof(uint32_t), "a measurement");
    const cl_uint zero = 0;
    check(clEnqueueFillBuffer(target_.queue.get(), words.get(), &zero, sizeof zero, 0, n_words * sizeof(uint32_t), 0,
                              nullptr, nullptr),
          "clEnqueueFillBuffer");
    constexpr uint32_t kChains = 8, kRounds = 4096;
    const std::string defines = fmt::format(" -DCHAINS={}", kChains);
    const Kernel read = store_.make("peaks.cl", defines, "read_peak");
    set_args(read.get(), 0, words.get(), n_words, sums.get());
    const auto arithmetic = [&](const char* name) {
      const double products = static_cast<double>(groups) * kChains * kRowTile * kRounds;
      const Kernel kernel = store_.make("peaks.cl", defines, name);
      set_args(kernel.get(), 0, kRounds, sums.get());
      return most_per_second(target_, kernel.get(), groups, 2 * products);
    };
    return {most_per_second(target_, read.get(), groups, static_cast<double>(n_words) * sizeof(uint32_t)),
            arithmetic("int_peak"), arithmetic("float_peak")};
  }

  std::unique_ptr<Executable> compile(const Program& program, const gguf::File& file, const Capacity& capacity,
                                      const Progress& progress) override {
    if (capacity.kv_type != KvType::kF16) {
      fail(ErrorKind::kDevice, "keys and values of type q8_0 are not part of device opencl, which has: f16");
    }
    return std::make_unique<OpenClExecutable>(program, file, capacity, target_, store_, pool_, progress);
  }

 private:
  const Target target_;
  KernelStore store_;
  Pool pool_;
};

}  // namespace
}  // namespace opencl

std::vector<OpenClInfo> opencl_devices() {
  std::vector<OpenClInfo> infos;
  for (const opencl::Found& found : opencl::find_devices()) infos.push_back(found.info);
  return infos;
}

std::unique_ptr<Device> make_opencl_device(const OpenClOptions& options) {
  return std::make_unique<opencl::OpenClDevice>(opencl::choose(options.index), options);
}

}  // namespace lamina

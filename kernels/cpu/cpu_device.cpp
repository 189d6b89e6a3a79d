// The CPU device: picks kernels and threads, compiles programs.
#include "kernels/cpu/cpu_device.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <span>

#include "gguf/error.h"
#include "kernels/cpu/executable.h"

namespace lamina {

namespace {

/// VDPBF16PS takes two cycles on some CPUs, and two fused multiply-adds one: measured, some 100 us.
bool bf16_pairs_are_faster() {
  using Clock = std::chrono::steady_clock;
  constexpr uint32_t kColumns = 512;
  constexpr int kWidest = cpu::kWidthCount - 1, kRounds = 5;
  constexpr uint32_t kRows = kRowTile * cpu::kMaxRowTiles;
  const gguf::Type& type = *gguf::find_type("BF16");
  const Memory memory(plane_bytes(type, kRows, kColumns), "weights");
  const Planes planes(type, kRows, kColumns, memory.data());
  const std::vector<float> x(size_t{kColumns} * cpu::kMaxTokenTile);
  std::vector<uint32_t> pairs(x.size() / 2);
  cpu::PackedTile packed;
  packed.rounded = const_cast<float*>(x.data());
  packed.pairs = pairs.data();
  packed.width = cpu::kMaxTokenTile;
  float out[cpu::kMaxRowTiles * cpu::kMaxTokenTile * kRowTile];
  const auto fastest = [&](const cpu::ProductKernels& kernels) {
    auto best = Clock::duration::max();
    for (int i = 0; i < kRounds; i++) {
      const auto start = Clock::now();
      kernels.matmul[kWidest](planes.view(), 0, cpu::kMaxRowTiles, packed, out);
      best = std::min(best, Clock::now() - start);
    }
    return best;
  };
  return fastest(cpu::kAvx512Bf16) < fastest(cpu::kAvx512Kernels.bf16);
}

cpu::Kernels kernels_of(const std::string& isa) {
  if (isa == "scalar") return cpu::kScalarKernels;
  if (isa == "avx2") return cpu::kAvx2Kernels;
  if (isa == "avxvnni") return cpu::kAvxVnniKernels;
  cpu::Kernels kernels = cpu::kAvx512Kernels;
  if (__builtin_cpu_supports("avx512bf16") && bf16_pairs_are_faster()) {
    kernels.bf16 = cpu::kAvx512Bf16;
    kernels.bf16_pairs = true;
  }
  return kernels;
}

constexpr uint64_t kPeakRounds = 100000;
/// Operands of the peak kernels. The int8 are 8: the 16 products of a lane and round, summed over all rounds and lanes,
/// stay within an int32. The floats are about 2^-14: sums stay normal.
constexpr uint32_t kPeakInt8 = 0x08080808, kPeakFloat = 0x38383838;
static_assert(kPeakRounds * 16 * 16 * 8 * 8 < uint64_t{1} << 31);

/// The most products a second that all threads make with one of `kernels`, each `width` wide.
double products_per_second(std::span<const cpu::PeakKernel> kernels, int width, uint32_t operand, Pool& pool) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kTime = std::chrono::milliseconds(100);
  alignas(64) uint32_t operands[cpu::kPeakWords * 16];
  std::fill(std::begin(operands), std::end(operands), operand);
  std::atomic<float> sink{0};
  double best = 0;
  for (const cpu::PeakKernel& kernel : kernels) {
    for (const auto end = Clock::now() + kTime; Clock::now() < end;) {
      const auto start = Clock::now();
      pool.run([&](int) { sink = kernel.run(operands, kPeakRounds); });
      const std::chrono::duration<double> seconds = Clock::now() - start;
      best = std::max(best, static_cast<double>(kPeakRounds) * kernel.chains * width * pool.size() / seconds.count());
    }
  }
  return best;
}

class CpuDevice : public Device {
 public:
  CpuDevice(const std::string& isa, int n_threads, std::string plane_cache)
      : kernels_(kernels_of(isa)), pool_(n_threads), plane_cache_(std::move(plane_cache)) {}

  std::string name() const override { return "cpu"; }

  Peaks measure_peaks() override {
    return {cpu_read_bandwidth(pool_.size()), 2 * products_per_second(kernels_.peak_dot, 256, kPeakInt8, pool_),
            2 * products_per_second(kernels_.peak_fma, 16, kPeakFloat, pool_)};
  }

  std::unique_ptr<Executable> compile(const Program& program, const gguf::File& file, const Capacity& capacity,
                                      const Progress& progress) override {
    return std::make_unique<cpu::CpuExecutable>(program, file, capacity, kernels_, pool_, plane_cache_, progress);
  }

 private:
  const cpu::Kernels kernels_;
  Pool pool_;
  const std::string plane_cache_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(const CpuOptions& options) {
  const std::string isa = options.isa.empty() ? cpu_isa() : options.isa;
  const std::vector<std::string> isas = cpu_isas();
  if (std::find(isas.begin(), isas.end(), isa) == isas.end()) {
    fail(ErrorKind::kUsage, "instruction set '{}' is not one of this CPU's: {}", printable(isa), fmt::join(isas, ", "));
  }
  constexpr int kMostThreads = 1024;
  const int n_threads = options.n_threads == 0 ? cpu_threads() : options.n_threads;
  if (n_threads < 1 || n_threads > kMostThreads) {
    fail(ErrorKind::kUsage, "{} threads: expected 1 to {}", n_threads, kMostThreads);
  }
  return std::make_unique<CpuDevice>(isa, n_threads, options.plane_cache);
}

}  // namespace lamina

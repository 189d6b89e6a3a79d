// What the machine offers: instruction sets, threads, read bandwidth.
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>

#include "gguf/error.h"
#include "kernels/cgroup.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/pool.h"
#include "kernels/memory.h"

namespace lamina {

std::vector<std::string> cpu_isas() {
  std::vector<std::string> isas = {"scalar"};
  // Every CPU with AVX2 has F16C, which came before it and which clang 14 cannot ask for.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512vnni");
  if (avx2) isas.push_back("avx2");
  if (avx2 && avx512) isas.push_back("avx512");
  return isas;
}

std::string cpu_isa() {
  const std::vector<std::string> isas = cpu_isas();
  const char* cap = std::getenv("LAMINA_ISA");
  if (cap == nullptr || *cap == '\0') return isas.back();
  const std::vector<std::string> names = {"scalar", "avx2", "avx512"};
  const auto named = std::find(names.begin(), names.end(), cap);
  if (named == names.end()) {
    fail(ErrorKind::kUsage, "LAMINA_ISA is '{}': expected scalar, avx2 or avx512", printable(cap));
  }
  // A cap above what the CPU has is no error: the best it has is below the cap.
  const auto rank = static_cast<size_t>(named - names.begin());
  return isas[std::min(rank, isas.size() - 1)];
}

int cpu_threads(const std::string& root) {
  cpu_set_t set;
  CPU_ZERO(&set);
  int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  const double quota = cgroup_processors(root);
  if (quota < n) n = static_cast<int>(quota + 0.5);
  return std::max(n, 1);
}

double cpu_read_bandwidth(int n_threads) {
  constexpr uint64_t kBytes = uint64_t{256} << 20;
  constexpr int kRounds = 4;
  const Memory memory(kBytes, "the bandwidth measurement");
  cpu::Pool pool(n_threads);
  std::atomic<uint64_t> sink{0};
  double best = 0;
  auto* words = memory.as<uint64_t>();
  const uint64_t n = kBytes / sizeof(uint64_t) / static_cast<uint64_t>(n_threads) / 64 * 64;
  pool.run([&](int thread) { std::fill_n(words + n * static_cast<uint64_t>(thread), n, 1); });
  for (int round = 0; round < kRounds; round++) {
    const auto start = std::chrono::steady_clock::now();
    pool.run([&](int thread) {
      const uint64_t* p = words + n * static_cast<uint64_t>(thread);
      uint64_t sums[64] = {};
      for (uint64_t i = 0; i < n; i += 64) {
        for (uint64_t j = 0; j < 64; j++) sums[j] ^= p[i + j];
      }
      for (uint64_t s : sums) sink += s;
    });
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best =
        std::max(best, static_cast<double>(n * sizeof(uint64_t) * static_cast<uint64_t>(n_threads)) / seconds.count());
  }
  return best;
}

}  // namespace lamina

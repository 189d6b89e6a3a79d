// What the machine offers: instruction sets, threads, read bandwidth.
#include <cpuid.h>
#include <immintrin.h>
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
#include "kernels/memory_limits.h"

namespace lamina {

namespace {

/// CPUID leaf 7, sub-leaf 1, EAX bit 4: the 4-way int8 dot product in AVX registers. clang 14 has no name for it.
bool has_avx_vnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 4 & 1) != 0;
}

}  // namespace

std::vector<std::string> cpu_isas() {
  std::vector<std::string> isas = {"scalar"};
  // Every CPU with AVX2 has F16C, which came before it and which clang 14 cannot ask for.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512vnni");
  if (avx2) isas.push_back("avx2");
  if (avx2 && has_avx_vnni()) isas.push_back("avxvnni");
  if (avx2 && avx512) isas.push_back("avx512");
  return isas;
}

std::string cpu_isa() {
  const std::vector<std::string> isas = cpu_isas();
  const char* cap = std::getenv("LAMINA_ISA");
  if (cap == nullptr || *cap == '\0') return isas.back();
  const std::vector<std::string> names = {"scalar", "avx2", "avxvnni", "avx512"};
  const auto named = std::find(names.begin(), names.end(), cap);
  if (named == names.end()) {
    fail(ErrorKind::kUsage, "LAMINA_ISA is '{}': expected scalar, avx2, avxvnni or avx512", printable(cap));
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
  using Clock = std::chrono::steady_clock;
  // Larger than caches, where there is room; each core reads ahead of itself as the kernels do. Others on the machine
  // only ever slow a round down: the best of many counts.
  constexpr uint64_t kMost = uint64_t{512} << 20, kStride = 256, kAhead = 4096;
  constexpr auto kTime = std::chrono::milliseconds(600);
  constexpr int kLeastRounds = 4, kWords = kStride / sizeof(__m128i);
  const auto threads = static_cast<uint64_t>(n_threads);
  const uint64_t share = std::min(kMost, memory_limits().available / 4) / threads / kStride * kStride;
  const Memory memory(share * threads + kAhead + kStride, "the bandwidth measurement");
  cpu::Pool pool(n_threads);
  std::atomic<uint64_t> sink{0};
  const auto begin_of = [&](int thread) { return memory.data() + share * static_cast<uint64_t>(thread); };
  pool.run([&](int thread) { std::fill_n(begin_of(thread), share, std::byte{1}); });
  double best = 0;
  const auto stop = Clock::now() + kTime;
  for (int round = 0; round < kLeastRounds || Clock::now() < stop; round++) {
    const auto start = Clock::now();
    pool.run([&](int thread) {
      __m128i sums[kWords] = {};
      for (const std::byte *p = begin_of(thread), *end = p + share; p < end; p += kStride) {
        for (uint64_t line = 0; line < kStride; line += 64) __builtin_prefetch(p + kAhead + line);
        const auto* words = reinterpret_cast<const __m128i*>(p);
        for (int i = 0; i < kWords; i++) sums[i] = _mm_xor_si128(sums[i], _mm_load_si128(words + i));
      }
      for (const __m128i& s : sums) sink += static_cast<uint64_t>(_mm_cvtsi128_si64(s));
    });
    const std::chrono::duration<double> seconds = Clock::now() - start;
    best = std::max(best, static_cast<double>(share * threads) / seconds.count());
  }
  return best;
}

}  // namespace lamina

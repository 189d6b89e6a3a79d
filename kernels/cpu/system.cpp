// What the machine offers: instruction sets, threads, read bandwidth.
#include <cpuid.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>

#include "gguf/error.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/memory.h"
#include "kernels/memory_limits.h"
#include "kernels/pool.h"

namespace lamina {

namespace {

/// CPUID leaf 7, sub-leaf 1, EAX bit 4: the 4-way int8 dot product in AVX registers. clang 14 has no name for it.
bool has_avx_vnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 4 & 1) != 0;
}

using Words = uint64_t __attribute__((vector_size(64)));
constexpr uint64_t kWordsAtOnce = 4;

/// The exclusive or of n `Words`. What its caller may load at once decides the speed: 16 bytes give half of what 64 do.
inline __attribute__((always_inline)) uint64_t read_all(const Words* p, uint64_t n) {
  constexpr int kAhead = 8192;  // bytes; hardware does not prefetch across pages of 4 KiB
  Words sums[kWordsAtOnce] = {};
  for (uint64_t i = 0; i < n; i += kWordsAtOnce) {
    for (uint64_t k = 0; k < kWordsAtOnce; k++) {
      __builtin_prefetch(reinterpret_cast<const char*>(p + i + k) + kAhead);
      sums[k] ^= p[i + k];
    }
  }
  uint64_t all = 0;
  for (const Words& sum : sums) {
    for (uint64_t k = 0; k < sizeof(Words) / sizeof(uint64_t); k++) all ^= sum[k];
  }
  return all;
}

using ReadFunction = uint64_t(const Words* p, uint64_t n);
uint64_t read_16(const Words* p, uint64_t n) { return read_all(p, n); }
__attribute__((target("avx2"))) uint64_t read_32(const Words* p, uint64_t n) { return read_all(p, n); }
__attribute__((target("avx512f"))) uint64_t read_64(const Words* p, uint64_t n) { return read_all(p, n); }

ReadFunction* read_function() {
  return __builtin_cpu_supports("avx512f") ? read_64 : __builtin_cpu_supports("avx2") ? read_32 : read_16;
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

double cpu_read_bandwidth(int n_threads) {
  using Clock = std::chrono::steady_clock;
  constexpr uint64_t kLeast = uint64_t{64} << 20, kMost = uint64_t{512} << 20;
  constexpr int kRounds = 16;
  constexpr auto kTime = std::chrono::milliseconds(600);
  // Larger than any cache, yet no burden on a small machine.
  const uint64_t bytes = std::clamp(memory_limits().available / 4, kLeast, kMost);
  const Memory memory(bytes, "the bandwidth measurement");
  Pool pool(n_threads);
  const uint64_t n = bytes / sizeof(Words) / static_cast<uint64_t>(n_threads) / kWordsAtOnce * kWordsAtOnce;
  const auto begin = [&](int thread) { return memory.as<Words>() + n * static_cast<uint64_t>(thread); };
  pool.run([&](int thread) { std::memset(begin(thread), 1, n * sizeof(Words)); });
  const auto read = read_function();
  std::atomic<uint64_t> sink{0};
  double best = 0;
  const auto end = Clock::now() + kTime;
  for (int round = 0; round < kRounds && Clock::now() < end; round++) {
    const auto start = Clock::now();
    pool.run([&](int thread) { sink ^= read(begin(thread), n); });
    const std::chrono::duration<double> seconds = Clock::now() - start;
    best = std::max(best, static_cast<double>(n * sizeof(Words) * static_cast<uint64_t>(n_threads)) / seconds.count());
  }
  return best;
}

}  // namespace lamina

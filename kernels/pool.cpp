// The thread team: see pool.h.
#include "kernels/pool.h"

#include <immintrin.h>
#include <sched.h>

#include <algorithm>

#include "kernels/cgroup.h"

namespace lamina {

int cpu_threads(const std::string& root) {
  cpu_set_t set;
  CPU_ZERO(&set);
  int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  const double quota = cgroup_processors(root);
  if (quota < n) n = static_cast<int>(quota + 0.5);
  return std::max(n, 1);
}

Pool::Pool(int n_threads) : n_threads_(n_threads) {
  // About 100 us of spinning; none where threads outnumber cores, since a spinner would then hold up the one it waits
  // for.
  constexpr int kSpins = 2000;
  spins_ = n_threads <= cpu_threads() ? kSpins : 0;
  for (int i = 1; i < n_threads; i++) threads_.emplace_back([this, i] { loop(i); });
}

Pool::~Pool() {
  work_ = nullptr;
  start_.raise();
  for (std::thread& thread : threads_) thread.join();
}

void Pool::run(const std::function<void(int)>& work) {
  work_ = &work;
  start_.raise();
  work(0);
  barrier();
}

void Pool::loop(int thread) {
  for (uint32_t seen = 0;;) {
    start_.wait(seen, spins_);
    seen++;
    if (work_ == nullptr) return;
    (*work_)(thread);
    barrier();
  }
}

void Pool::barrier() {
  const uint32_t seen = passed_.value.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == n_threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    passed_.raise();
  } else {
    passed_.wait(seen, spins_);
  }
}

void Pool::Signal::raise() {
  value.fetch_add(1, std::memory_order_release);
  value.notify_all();
}

void Pool::Signal::wait(uint32_t seen, int spins) const {
  for (int i = 0; i < spins; i++) {
    if (value.load(std::memory_order_acquire) != seen) return;
    _mm_pause();
  }
  while (value.load(std::memory_order_acquire) == seen) value.wait(seen, std::memory_order_acquire);
}

}  // namespace lamina

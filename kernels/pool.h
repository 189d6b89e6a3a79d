// A fixed team of threads that run one function together and meet at barriers: spin first (a step has some hundred
// barriers a few microseconds apart), then sleep on a futex.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace lamina {

/// Threads that affinity and the cgroups' CPU quotas (kernels/cgroup.h) allow, at least 1.
int cpu_threads(const std::string& root = "/");

class Pool {
 public:
  /// Starts n_threads - 1 workers; the caller of run() is thread 0.
  explicit Pool(int n_threads);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int size() const { return n_threads_; }

  /// Runs work(thread) on all threads and returns when all have finished. `work` must not throw.
  void run(const std::function<void(int)>& work);

  /// Inside work: waits until every thread is here.
  void barrier();

 private:
  /// A number that threads wait to see change.
  struct alignas(64) Signal {
    std::atomic<uint32_t> value{0};
    void raise();
    void wait(uint32_t seen, int spins) const;
  };
  void loop(int thread);

  const int n_threads_;
  int spins_;
  Signal start_;   ///< raised once a run, and to stop
  Signal passed_;  ///< raised once a barrier
  alignas(64) std::atomic<int> arrived_{0};
  const std::function<void(int)>* work_ = nullptr;  ///< nullptr: stop
  std::vector<std::thread> threads_;
};

}  // namespace lamina

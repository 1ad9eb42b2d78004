#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace gannet {

// A fixed set of pinned, persistent threads; the calling thread is one of them (number 0). One call at a time: the
// owner is the engine's thread. Idle workers spin for some tens of microseconds, then sleep.
class ThreadPool {
 public:
  // `threads` >= 1, the caller included. `pin` binds each worker to a processor of its own among those that this
  // process may use, leaving the first to the caller, which moves as its owner likes.
  explicit ThreadPool(int threads, bool pin = true);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return threads_; }

  // Runs body(thread) once on every thread and returns when all are done. The body must not throw.
  void run(const std::function<void(int thread)>& body);

  // Splits [0, n) into at most size() contiguous parts, each a multiple of `grain` but the last, and runs
  // body(begin, end) on them. Small n runs on the caller alone.
  void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t begin, int64_t end)>& body);

 private:
  struct Impl;
  int threads_;
  std::unique_ptr<Impl> impl_;
};

// Number of processors this process may use: its affinity mask, cut to the cgroup's CPU quota where there is one.
int usable_processors();

}  // namespace gannet

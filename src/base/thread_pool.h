#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/processors.h"

namespace gannet {

// A fixed set of persistent threads; the calling thread is one of them (number 0). One call at a time: the
// owner is the engine's thread. Idle workers spin for some tens of microseconds, then sleep.
class ThreadPool {
 public:
  // `threads` >= 1, the caller included. `pin` binds each worker to a core of its own where there is one thread for
  // each core that this process may use, leaving the first to the caller, which moves as its owner likes. Fewer threads
  // are the system's to place: those of two programs must not meet on the same few cores.
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

}  // namespace gannet

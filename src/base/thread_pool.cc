#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "base/error.h"

namespace gannet {
namespace {

constexpr int kSpins = 400;  // some tens of microseconds of pause instructions

void pause_briefly() {
  __builtin_ia32_pause();
}

void bind_to(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  // A refusal (a container that forbids it) costs speed only.
  (void)sched_setaffinity(0, sizeof set, &set);
}

}  // namespace

struct ThreadPool::Impl {
  std::atomic<uint32_t> generation{0};  // counts calls of run(); workers wait for it to change
  std::atomic<int> running{0};          // workers that have not finished the current call
  std::atomic<bool> stop{false};
  const std::function<void(int)>* body = nullptr;
  std::vector<std::thread> workers;

  uint32_t wait_for_work(uint32_t seen) {
    for (int i = 0; i < kSpins; ++i) {
      if (const uint32_t now = generation.load(std::memory_order_acquire); now != seen) return now;
      pause_briefly();
    }
    generation.wait(seen, std::memory_order_acquire);
    return generation.load(std::memory_order_acquire);
  }

  void work(int thread) {
    uint32_t seen = 0;
    while (true) {
      seen = wait_for_work(seen);
      if (stop.load(std::memory_order_acquire)) return;
      (*body)(thread);
      if (running.fetch_sub(1, std::memory_order_acq_rel) == 1) running.notify_one();
    }
  }

  void end() {
    stop.store(true, std::memory_order_release);
    generation.fetch_add(1, std::memory_order_acq_rel);
    generation.notify_all();
    for (auto& worker : workers) worker.join();
  }

  void wait_for_workers() {
    for (int i = 0; i < kSpins; ++i) {
      if (running.load(std::memory_order_acquire) == 0) return;
      pause_briefly();
    }
    for (int left = running.load(std::memory_order_acquire); left != 0;
         left = running.load(std::memory_order_acquire)) {
      running.wait(left, std::memory_order_acquire);
    }
  }
};

ThreadPool::ThreadPool(int threads, bool pin) : threads_(threads), impl_(std::make_unique<Impl>()) {
  GANNET_CHECK(threads >= 1);
  const auto processors = cores_first(allowed_processors());
  pin = pin && count_cores(processors) == threads;
  impl_->workers.reserve(threads);
  try {
    for (int t = 1; t < threads; ++t) {
      impl_->workers.emplace_back([this, t, pin, processors] {
        if (pin) bind_to(processors[t]);
        impl_->work(t);
      });
    }
  } catch (...) {  // the system has no more threads to give
    impl_->end();
    throw;
  }
}

ThreadPool::~ThreadPool() {
  impl_->end();
}

void ThreadPool::run(const std::function<void(int)>& body) {
  if (threads_ == 1) {
    body(0);
    return;
  }
  impl_->body = &body;
  impl_->running.store(threads_ - 1, std::memory_order_relaxed);
  impl_->generation.fetch_add(1, std::memory_order_acq_rel);
  impl_->generation.notify_all();
  body(0);
  impl_->wait_for_workers();
}

void ThreadPool::parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  if (n <= 0) return;
  const int64_t pieces = (n + grain - 1) / grain;
  const int64_t parts = std::min<int64_t>(threads_, pieces);
  if (parts == 1) {
    body(0, n);
    return;
  }
  run([&](int thread) {
    if (thread >= parts) return;
    const int64_t begin = pieces * thread / parts * grain;
    const int64_t end = std::min(n, pieces * (thread + 1) / parts * grain);
    if (begin < end) body(begin, end);
  });
}

}  // namespace gannet

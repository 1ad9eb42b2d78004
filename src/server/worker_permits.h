#pragma once

#include <condition_variable>
#include <mutex>
#include <utility>

// How many workers may be at requests at once. A worker that waits for something slow that has a limit of its own lets
// another one go on meanwhile.
namespace gannet::server {

class WorkerPermits {
 public:
  explicit WorkerPermits(int count) : left_(count) {}

  void acquire() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return left_ > 0; });
    --left_;
  }
  void release() {
    const std::lock_guard lock(mutex_);
    ++left_;
    changed_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int left_;
};

// What the calling thread works under, if anything.
inline thread_local WorkerPermits* held_permits = nullptr;

// Holds one while it lives.
class WorkerPermit {
 public:
  explicit WorkerPermit(WorkerPermits& permits) {
    permits.acquire();
    held_permits = &permits;
  }
  ~WorkerPermit() { std::exchange(held_permits, nullptr)->release(); }
  WorkerPermit(const WorkerPermit&) = delete;
  WorkerPermit& operator=(const WorkerPermit&) = delete;
};

// Gives the calling thread's back while it lives; nothing on a thread that has none.
class WorkerPause {
 public:
  WorkerPause() : permits_(held_permits) {
    if (permits_ != nullptr) permits_->release();
  }
  ~WorkerPause() {
    if (permits_ != nullptr) permits_->acquire();
  }
  WorkerPause(const WorkerPause&) = delete;
  WorkerPause& operator=(const WorkerPause&) = delete;

 private:
  WorkerPermits* permits_;
};

}  // namespace gannet::server

#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <queue>
#include <thread>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"

namespace gannet::cli {

// An engine without a model: every request gets the same id again and again, at a fixed pace, until its max_tokens. It
// notes when it gave each token away, so that whoever reads them can tell how long they were under way.
class NullEngine : public Engine {
 public:
  using Clock = std::chrono::steady_clock;

  struct Options {
    int64_t vocab_size = 0;
    int32_t id = 0;                     // what it says
    std::chrono::microseconds pace{0};  // between two tokens of a request
    bool lockstep = false;              // all requests at the same instant, as one batch; else each at its own phase
    int64_t requests = 0;               // seeds are below that; a request's seed is its number
    int64_t tokens = 0;                 // of each request, at most
  };
  explicit NullEngine(Options options);
  ~NullEngine() override;
  NullEngine(const NullEngine&) = delete;
  NullEngine& operator=(const NullEngine&) = delete;

  // When token `index` of request `number` was given away.
  Clock::time_point given(int64_t number, int64_t index) const;

  const Config& config() const override { return config_; }
  int64_t max_model_len() const override { return int64_t{1} << 20; }
  int64_t unfinished() const override;
  Result<RequestId> submit(Request request) override;
  void cancel(RequestId id) override;
  EngineStats stats() const override { return {}; }
  void reset_prefix_cache() override {}
  Status health() const override { return {}; }

 private:
  struct Running {
    Request request;
    int64_t given = 0;
  };
  struct Due {
    Clock::time_point time;
    RequestId id;
    bool operator>(const Due& other) const { return time > other.time; }
  };

  void work();
  // Gives `due`'s request its next token; false when that was its last or it has been cancelled.
  bool give(const Due& due);
  std::shared_ptr<Running> find(RequestId id) const;
  std::shared_ptr<Running> take(RequestId id);

  const Options options_;
  Config config_;
  std::vector<std::atomic<Clock::rep>> given_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<RequestId, std::shared_ptr<Running>> running_;
  std::vector<Due> arrived_;
  RequestId last_id_ = 0;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses everything above
};

}  // namespace gannet::cli

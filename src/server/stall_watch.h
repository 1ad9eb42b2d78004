#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "engine/stats.h"

namespace gannet::server {

// Notices that an engine has requests and yet runs no step. Not thread-safe: one watcher asks it now and again.
class StallWatch {
 public:
  using Clock = std::chrono::steady_clock;

  explicit StallWatch(std::chrono::seconds patience) : patience_(patience) {}

  // What stands where, once no step has ended for `patience` although requests are there, and once more after each
  // further `patience`; nothing otherwise. `unfinished`: requests that the engine has accepted and not ended.
  std::optional<std::string> check(const EngineStats& stats, int64_t unfinished, Clock::time_point now);

 private:
  std::chrono::seconds patience_;
  int64_t steps_ = -1;
  std::optional<Clock::time_point> since_;  // without a step; nothing: there is nothing to do
  Clock::time_point next_;                  // report
};

}  // namespace gannet::server

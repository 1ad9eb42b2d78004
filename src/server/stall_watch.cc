#include "server/stall_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace gannet::server {

std::optional<std::string> StallWatch::check(const EngineStats& stats, int64_t unfinished, Clock::time_point now) {
  const bool stepped = std::exchange(steps_, stats.steps) != stats.steps;
  if (unfinished == 0) {
    since_.reset();
    return std::nullopt;
  }
  if (!since_ || stepped) {
    since_ = now;
    next_ = now + patience_;
  }
  if (now < next_) return std::nullopt;
  next_ = now + patience_;
  return fmt::format(
      "no step of the model has ended for {} s: {} requests are unfinished, {} running, {} waiting ({} of them for a "
      "prefix or KV), {} new; of {} KV blocks {} are held and {} cached; {} steps so far",
      std::chrono::duration_cast<std::chrono::seconds>(now - *since_).count(), unfinished, stats.running, stats.waiting,
      stats.deferred, std::max<int64_t>(0, unfinished - stats.running - stats.waiting), stats.blocks, stats.blocks_held,
      stats.blocks_cached, stats.steps);
}

}  // namespace gannet::server

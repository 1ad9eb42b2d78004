#include "server/rate_limit.h"

#include <algorithm>
#include <cmath>

namespace gannet::server {

namespace {

constexpr double kMinute = 60;

double seconds_between(RateLimit::Clock::time_point from, RateLimit::Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

std::chrono::seconds RateLimit::admit(const std::string& client, Clock::time_point now) {
  if (per_minute_ == 0) return {};
  const auto most = static_cast<double>(per_minute_);
  const std::lock_guard lock(mutex_);
  if (buckets_.size() >= kMostClients) forget_quiet(now);
  // When even busy clients are too many, newcomers share one bucket, so that nobody escapes by changing his address.
  const bool full = buckets_.size() >= kMostClients && !buckets_.contains(client);
  Bucket& bucket = buckets_.try_emplace(full ? std::string() : client, Bucket{most, now}).first->second;
  bucket.left = std::min(most, bucket.left + seconds_between(bucket.filled, now) * most / kMinute);
  bucket.filled = now;
  if (bucket.left < 1) {
    const double wait = std::ceil((1 - bucket.left) * kMinute / most);
    return std::chrono::seconds(std::max<int64_t>(1, static_cast<int64_t>(wait)));
  }
  bucket.left -= 1;
  return {};
}

void RateLimit::forget_quiet(Clock::time_point now) {
  if (now - swept_ < std::chrono::seconds(1))
    return;  // it takes a while, and an attacker could ask for it all the time
  swept_ = now;
  std::erase_if(buckets_, [&](const auto& entry) { return seconds_between(entry.second.filled, now) >= kMinute; });
}

}  // namespace gannet::server

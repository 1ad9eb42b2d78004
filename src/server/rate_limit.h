#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

namespace gannet::server {

// Requests per minute of each client. A client that has been quiet may send a minute's worth at once. Callable from any
// thread.
class RateLimit {
 public:
  using Clock = std::chrono::steady_clock;

  // 0: any number.
  explicit RateLimit(int64_t requests_per_minute) : per_minute_(requests_per_minute) {}

  // Counts a request of `client`; zero if it may go on, else how long until the next one may.
  std::chrono::seconds admit(const std::string& client, Clock::time_point now = Clock::now());

  // Clients that are remembered; those who have been quiet for a minute are forgotten when there are many.
  static constexpr size_t kMostClients = 10'000;

 private:
  struct Bucket {
    double left = 0;
    Clock::time_point filled;
  };
  void forget_quiet(Clock::time_point now);

  const int64_t per_minute_;
  std::mutex mutex_;
  std::unordered_map<std::string, Bucket> buckets_;
  Clock::time_point swept_;
};

}  // namespace gannet::server

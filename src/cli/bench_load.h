#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace gannet::cli {

// Many HTTP requests at once from one thread, for benchmarks of streams: as little work per event as can be, so that
// what is measured is the server.
class LoadClient {
 public:
  using Clock = std::chrono::steady_clock;

  struct Stream {
    std::string body;                    // of a POST
    std::chrono::microseconds start{0};  // after the client's
  };
  // `event`: an event's JSON, or "[DONE]".
  using OnEvent = std::function<void(size_t stream, std::string_view event, Clock::time_point now)>;

  LoadClient(uint16_t port, std::string path, OnEvent on_event)
      : port_(port), path_(std::move(path)), on_event_(std::move(on_event)) {}

  // Runs all streams to their ends, or until stop(); `concurrent` at a time, 0 for all. Error (failed): one was refused
  // or broke off, or nothing came for a while.
  Status run(const std::vector<Stream>& streams, size_t concurrent = 0);
  // Callable from `on_event`.
  void stop() { stopped_ = true; }

 private:
  struct Connection {
    int socket = -1;
    bool head_seen = false;
    bool done = false;
    std::string input;
  };

  Status open(size_t stream, const std::string& body);
  Status read(size_t stream, bool& ended);
  Status take_lines(size_t stream, bool& ended);
  void close(size_t stream);

  uint16_t port_;
  std::string path_;
  OnEvent on_event_;
  int epoll_ = -1;
  bool stopped_ = false;
  std::vector<Connection> connections_;
};

}  // namespace gannet::cli

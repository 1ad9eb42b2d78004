#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

namespace gannet::cli {

// A line on stderr that says how far a slow command is: only on a terminal, and only once it has taken two seconds.
class ProgressLine {
 public:
  // Counts are shown divided by `scale`, a number of `unit`s.
  explicit ProgressLine(std::string unit, double scale = 1) : unit_(std::move(unit)), scale_(scale) {}
  ~ProgressLine() {
    if (shown_) std::fputc('\n', stderr);
  }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void operator()(int64_t done, int64_t all) {
    using namespace std::chrono_literals;
    const auto now = std::chrono::steady_clock::now();
    if (!terminal_ || now - start_ < 2s || now - last_ < 200ms) return;
    last_ = now;
    shown_ = true;
    std::fprintf(stderr, "\r%.0f of %.0f %s", static_cast<double>(done) / scale_, static_cast<double>(all) / scale_,
                 unit_.c_str());
    std::fflush(stderr);
  }

 private:
  std::string unit_;
  double scale_;
  bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  bool shown_ = false;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point last_{};
};

}  // namespace gannet::cli

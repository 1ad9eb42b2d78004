#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace gannet {

// Counts of values by size. Not thread-safe.
class Histogram {
 public:
  Histogram() = default;
  // Upper bounds of the buckets, inclusive and rising; one more bucket takes what is above the last.
  explicit Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

  void observe(double value) {
    ++counts_[std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin()];
    sum_ += value;
  }

  const std::vector<double>& bounds() const { return bounds_; }
  const std::vector<int64_t>& counts() const { return counts_; }  // of each bucket alone, bounds().size() + 1
  double sum() const { return sum_; }

 private:
  std::vector<double> bounds_;
  std::vector<int64_t> counts_ = {0};
  double sum_ = 0;
};

}  // namespace gannet

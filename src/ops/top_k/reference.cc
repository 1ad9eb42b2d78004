#include <algorithm>
#include <functional>
#include <limits>

#include "ops/math.h"
#include "ops/top_k/op.h"

namespace gannet::ops {

int64_t top_k_row(const float* scores, int64_t count, int64_t k, int32_t* chosen) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  float* sorted = scratch<struct SortedScoresTag>(count);
  int64_t finite = 0;
  for (int64_t i = 0; i < count; ++i) {
    sorted[finite] = scores[i];
    finite += scores[i] > kLowest ? 1 : 0;
  }
  const int64_t taken = std::min(finite, k);
  if (taken == 0) return 0;
  // The lowest score that is taken, and how many of that size are: those at the lowest positions.
  float bound = kLowest;
  int64_t ties = 0;
  if (taken < finite) {
    std::nth_element(sorted, sorted + taken - 1, sorted + finite, std::greater<>());
    bound = sorted[taken - 1];
    ties = std::count(sorted, sorted + taken, bound);
  }
  int64_t n = 0;
  for (int64_t i = 0; i < count && n < taken; ++i) {
    const bool tie = scores[i] == bound && ties > 0;
    chosen[n] = static_cast<int32_t>(i);
    n += scores[i] > bound || tie ? 1 : 0;
    ties -= tie ? 1 : 0;
  }
  return taken;
}

void top_k_reference(const TopKParams& p, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    int32_t* selected = p.selected + r * p.selected_stride;
    const int64_t count = top_k_row(p.scores + r * p.stride, p.counts[r], p.k, selected);
    if (p.entries != nullptr) {
      for (int64_t i = 0; i < count; ++i) selected[i] = p.entries[r * p.stride + selected[i]];
    }
    p.selected_counts[r] = static_cast<int32_t>(count);
  }
}

void top_k(const Device& device, const TopKParams& p) {
  device.pool->parallel_for(p.rows, 1, [&](int64_t begin, int64_t end) { top_k_reference(p, begin, end); });
}

}  // namespace gannet::ops

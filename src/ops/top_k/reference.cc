#include <algorithm>
#include <limits>

#include "ops/math.h"
#include "ops/top_k/op.h"

namespace gannet::ops {

int64_t top_k_row(const float* scores, int64_t count, int64_t k, int32_t* chosen) {
  int32_t* order = scratch<struct OrderTag, int32_t>(count);
  int64_t finite = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (scores[i] > -std::numeric_limits<float>::infinity()) order[finite++] = static_cast<int32_t>(i);
  }
  const int64_t taken = std::min(finite, k);
  const auto better = [scores](int32_t a, int32_t b) { return scores[a] != scores[b] ? scores[a] > scores[b] : a < b; };
  if (taken < finite) std::nth_element(order, order + taken, order + finite, better);
  std::sort(order, order + taken);
  std::copy_n(order, taken, chosen);
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

#include <algorithm>

#include "ops/math.h"
#include "ops/rms_norm/op.h"

namespace gannet::ops {

void rms_norm_row(const float* x, float* y, int64_t size, const uint16_t* weight, float eps, Activations activations) {
  const float factor = inverse_rms(x, size, eps);
  for (int64_t i = 0; i < size; ++i) y[i] = rounded(bf16_to_float(weight[i]) * (x[i] * factor), activations);
}

void rms_norm_reference(const RmsNormParams& p, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    rms_norm_row(p.x + r * p.stride, p.y + r * p.stride, p.size, p.weight, p.eps, p.activations);
  }
}

void rms_norm(const Device& device, const RmsNormParams& p) {
  constexpr int64_t kWorthAThread = 8192;  // floats: some microseconds
  const int64_t grain = std::max<int64_t>(1, kWorthAThread / std::max<int64_t>(1, p.size));
  device.pool->parallel_for(p.rows, grain, [&](int64_t begin, int64_t end) { rms_norm_reference(p, begin, end); });
}

}  // namespace gannet::ops

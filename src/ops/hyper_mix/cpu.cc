#include <algorithm>

#include "ops/hyper_mix/op.h"
#include "ops/linear/op.h"
#include "ops/math.h"

namespace gannet::ops {

void hyper_mix(const Device& device, const HyperMixParams& p) {
  if (device.simd == Simd::none) {
    return device.pool->parallel_for(p.rows, 1, [&](int64_t b, int64_t e) { hyper_mix_reference(p, b, e); });
  }
  constexpr int64_t kRows = 64;  // at a time: bounds the memory for streams, which are wide
  const int64_t width = p.streams_per_row * p.hidden;
  const int64_t dots = (2 + p.streams_per_row) * p.streams_per_row;
  float* m = scratch<struct HyperMixDotsTag>(kRows * dots);
  for (int64_t first = 0; first < p.rows; first += kRows) {
    const int64_t rows = std::min(kRows, p.rows - first);
    const float* streams = p.streams + first * width;
    linear(device, {.x = streams,
                    .x_stride = width,
                    .rows = rows,
                    .weight = {.format = WeightFormat::f32, .rows = dots, .cols = width, .data = p.fn},
                    .outputs = dots,
                    .y = m,
                    .y_stride = dots,
                    .activations = Activations::fp32});
    device.pool->parallel_for(rows, 4, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const float factor = inverse_rms(streams + r * width, width, p.norm_eps);
        for (int64_t i = 0; i < dots; ++i) m[r * dots + i] *= factor;
        hyper_coefficients(p, m + r * dots, first + r);
      }
    });
  }
}

}  // namespace gannet::ops

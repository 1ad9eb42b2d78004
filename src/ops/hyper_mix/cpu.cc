#include <algorithm>

#include "ops/hyper_mix/kernels.h"
#include "ops/hyper_mix/op.h"
#include "ops/linear/op.h"
#include "ops/math.h"

namespace gannet::ops {
namespace {

// What follows the dot products of rows [first, first + rows): `m` [rows, dots] are those.
void coefficients(Simd simd, const HyperMixParams& p, float* m, int64_t first, int64_t rows) {
  const int64_t s = p.streams_per_row;
  const int64_t width = s * p.hidden;
  const int64_t dots = (2 + s) * s;
  const bool in_vectors = s == 4 && (simd == Simd::avx512 || simd == Simd::avx512_bf16);
  HyperMixParams each = p;
  if (in_vectors) each.sinkhorn_iterations = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const float factor = inverse_rms(p.streams + (first + r) * width, width, p.norm_eps);
    for (int64_t i = 0; i < dots; ++i) m[r * dots + i] *= factor;
    hyper_coefficients(each, m + r * dots, first + r);
  }
  if (in_vectors) sinkhorn_avx512(p.mix + first * s * s, rows, p.sinkhorn_iterations, p.eps);
}

}  // namespace

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
      coefficients(device.simd, p, m + begin * dots, first + begin, end - begin);
    });
  }
}

}  // namespace gannet::ops

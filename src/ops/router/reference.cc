#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/math.h"
#include "ops/router/op.h"

namespace gannet::ops {
namespace {

// log(1 + e^x) without overflow, and without losing e^x where it is tiny; the identity above 20, as in the reference.
float softplus(float x) {
  return x > 20.0F ? x : std::log1p(std::exp(x));
}

void choose(const RouterParams& p, float* logits, int64_t r) {
  const int64_t count = p.gate.rows;
  int32_t* order = scratch<struct ExpertOrderTag, int32_t>(count);
  for (int64_t e = 0; e < count; ++e) logits[e] = std::sqrt(softplus(logits[e]));
  const float* score = logits;
  std::iota(order, order + count, 0);
  // NaN sorts last, so that a broken input cannot break the order.
  const auto rank = [&](int32_t e) {
    const float value = score[e] + p.bias[e];
    return std::isnan(value) ? -INFINITY : value;
  };
  std::partial_sort(order, order + p.top_k, order + count, [&](int32_t a, int32_t b) {
    const float left = rank(a);
    const float right = rank(b);
    return left != right ? left > right : a < b;
  });
  float sum = 0;
  for (int64_t i = 0; i < p.top_k; ++i) sum += score[order[i]];
  for (int64_t i = 0; i < p.top_k; ++i) {
    p.experts[r * p.top_k + i] = order[i];
    p.weights[r * p.top_k + i] = score[order[i]] / (sum + 1e-20F) * p.scaling_factor;
  }
}

template <class Linear>
void route(const RouterParams& p, const Linear& run_linear) {
  const int64_t count = p.gate.rows;
  float* logits = scratch<struct RouterLogitTag>(p.rows * count);
  run_linear(LinearParams{.x = p.x,
                          .x_stride = p.gate.cols,
                          .rows = p.rows,
                          .weight = p.gate,
                          .outputs = count,
                          .y = logits,
                          .y_stride = count,
                          .activations = Activations::fp32});
  for (int64_t r = 0; r < p.rows; ++r) choose(p, logits + r * count, r);
}

}  // namespace

void router_reference(const RouterParams& p) {
  route(p, linear_reference);
}

void router(const Device& device, const RouterParams& p) {
  route(p, [&](const LinearParams& linear_params) { linear(device, linear_params); });
}

}  // namespace gannet::ops

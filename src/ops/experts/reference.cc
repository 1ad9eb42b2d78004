#include <algorithm>
#include <cmath>
#include <vector>

#include "base/number_formats.h"
#include "ops/experts/op.h"

namespace gannet::ops {
namespace {

std::vector<float> multiply(const ExpertsParams& params, const WeightMatrix& weight, const float* x) {
  std::vector<float> y(weight.rows);
  linear_reference({.x = x,
                    .x_stride = weight.cols,
                    .rows = 1,
                    .weight = weight,
                    .outputs = weight.rows,
                    .y = y.data(),
                    .y_stride = weight.rows,
                    .quantize_input = params.quantize_input,
                    .activations = Activations::fp32});
  return y;
}

// sum += expert(x, weight).
void add_expert(const ExpertsParams& params, const ExpertWeights& expert, const float* x, float weight,
                std::vector<float>& sum) {
  const std::vector<float> gate = multiply(params, expert.w1, x);
  const std::vector<float> up = multiply(params, expert.w3, x);
  std::vector<float> v(gate.size());
  for (size_t i = 0; i < v.size(); ++i) {
    const float a = std::min(gate[i], params.swiglu_limit);
    const float b = std::clamp(up[i], -params.swiglu_limit, params.swiglu_limit);
    v[i] = a / (1 + std::exp(-a)) * b * weight;
  }
  const std::vector<float> down = multiply(params, expert.w2, v.data());
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += down[i];
}

}  // namespace

void experts_reference(const ExpertsParams& params) {
  const int64_t hidden = params.shared.w1.cols;
  for (int64_t row = 0; row < params.rows; ++row) {
    const float* x = params.x + row * params.x_stride;
    std::vector<float> sum(hidden, 0.0F);
    add_expert(params, params.shared, x, 1.0F, sum);
    for (int32_t id = 0; id < params.routed_count; ++id) {
      for (int64_t slot = row * params.top_k; slot < (row + 1) * params.top_k; ++slot) {
        if (params.experts[slot] == id) add_expert(params, params.routed[id], x, params.weights[slot], sum);
      }
    }
    for (int64_t i = 0; i < hidden; ++i) {
      const bool round = params.activations == Activations::bf16;
      params.y[row * params.y_stride + i] = round ? round_to_bf16(sum[i]) : sum[i];
    }
  }
}

}  // namespace gannet::ops

#pragma once

#include <cstdint>

#include "base/device.h"
#include "ops/linear/op.h"

namespace gannet::ops {

// One expert: w1 = gate and w3 = up, both [width, hidden]; w2 = down, [hidden, width].
struct ExpertWeights {
  WeightMatrix w1, w2, w3;
};

// The mixture of experts after the router (spec: model 3.9):
//   y = shared(x) + sum over the row's experts of expert(x, weight)
// expert(x, weight): a = w1 x, b = w3 x; a = min(a, limit), b = clamp(b, -limit, limit); v = a sigmoid(a) b weight;
// w2 v. The shared expert has no weight. Nothing is rounded on the way. The sum is fp32:
// shared first, then by increasing expert id; it is rounded to bf16 at the end in bf16 mode. A row's result does not
// depend on the rows around it.
struct ExpertsParams {
  const float* x = nullptr;  // normed input [rows, hidden], row r at x + r * x_stride
  int64_t x_stride = 0;      // in floats
  int64_t rows = 0;          // 0 is allowed: nothing to do

  const int32_t* experts = nullptr;  // [rows, top_k] chosen experts, in any order, no expert twice in a row
  const float* weights = nullptr;    // [rows, top_k] their routing weights
  int64_t top_k = 0;                 // 0 is allowed: the shared expert alone

  const ExpertWeights* routed = nullptr;  // [routed_count], all of one width
  int64_t routed_count = 0;
  ExpertWeights shared;  // its width may differ from the routed experts'

  float swiglu_limit = 0;                       // > 0
  bool quantize_input = false;                  // Q8 in front of w1, w3 (on x) and w2 (on v)
  Activations activations = Activations::bf16;  // bf16: y is rounded

  float* y = nullptr;  // [rows, hidden], row r at y + r * y_stride; hidden = shared.w1.cols
  int64_t y_stride = 0;
};

void experts(const Device& device, const ExpertsParams& params);

// The truth: plain loops, fp32.
void experts_reference(const ExpertsParams& params);

}  // namespace gannet::ops

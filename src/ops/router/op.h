#pragma once

#include <cstdint>

#include "base/device.h"
#include "ops/linear/op.h"

namespace gannet::ops {

// Chooses experts (spec: model 3.9, "Gate"): score = sqrt(softplus(x . W)); the k largest of score + bias, of equal
// ones the lowest numbers; weight = score / (sum of the chosen scores + 1e-20) * factor. The bias steers the choice
// only.
struct RouterParams {
  const float* x = nullptr;  // [rows, hidden]
  int64_t rows = 0;
  WeightMatrix gate;            // bf16 [experts, hidden]
  const float* bias = nullptr;  // f32 [experts]
  int64_t top_k = 0;
  float scaling_factor = 1;
  int32_t* experts = nullptr;  // [rows, top_k], best first
  float* weights = nullptr;    // [rows, top_k]
};

void router(const Device& device, const RouterParams& params);
void router_reference(const RouterParams& params);

}  // namespace gannet::ops

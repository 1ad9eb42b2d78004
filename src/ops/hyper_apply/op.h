#pragma once

#include <cstdint>

#include "base/device.h"

namespace gannet::ops {

// Takes a sublayer's output into the streams and prepares the next sublayer's input (spec: model 3.3, "Sublayer use"):
//   streams'[k] = bf16(post[k] y + sum_j mix[j][k] streams[j]),   x = RMSNorm(sum_j pre[j] streams'[j]).
// Without a sublayer output (y null) the streams stay and only x is made: the first layer, and layers behind Engram.
// Without a norm (null) no x is made: behind the last layer.
struct HyperApplyParams {
  float* streams = nullptr;  // [rows, s, hidden], updated in place
  int64_t rows = 0;
  int64_t streams_per_row = 0;  // s, at most kMaxStreams
  int64_t hidden = 0;
  const float* y = nullptr;        // [rows, hidden] or null
  const float* post = nullptr;     // [rows, s]; read only with y
  const float* mix = nullptr;      // [rows, s, s], [source][target]; read only with y
  const float* pre = nullptr;      // [rows, s]: weights of the next sublayer's input
  const uint16_t* norm = nullptr;  // bf16 [hidden]: the next sublayer's norm
  float norm_eps = 0;
  float* x = nullptr;        // [rows, hidden]: for products with Q8 in front
  float* operand = nullptr;  // [rows, hidden]: x rounded, for products without
  Activations activations = Activations::bf16;
};

void hyper_apply(const Device& device, const HyperApplyParams& params);
void hyper_apply_reference(const HyperApplyParams& params, int64_t begin, int64_t end);

}  // namespace gannet::ops

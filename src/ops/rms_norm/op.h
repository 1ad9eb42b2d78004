#pragma once

#include <cstdint>

#include "base/device.h"

namespace gannet::ops {

// y = weight * (x * rsqrt(mean(x^2) + eps)) over each row (spec: model 3.1, "RMSNorm"). An all-zero row gives zeros.
struct RmsNormParams {
  const float* x = nullptr;  // [rows, size], row r at x + r * stride
  float* y = nullptr;        // same layout; may be x
  int64_t stride = 0;        // in floats
  int64_t rows = 0;
  int64_t size = 0;
  const uint16_t* weight = nullptr;  // bf16 [size]
  float eps = 0;
  Activations activations = Activations::bf16;
};

void rms_norm(const Device& device, const RmsNormParams& params);
void rms_norm_reference(const RmsNormParams& params, int64_t begin, int64_t end);

// One row, for ops that normalise on the way.
void rms_norm_row(const float* x, float* y, int64_t size, const uint16_t* weight, float eps, Activations activations);

}  // namespace gannet::ops

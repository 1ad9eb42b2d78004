#pragma once

#include <cstdint>
#include <span>

#include "base/device.h"

namespace gannet::ops {

// A weight [rows = outputs, cols = inputs] exactly as the checkpoint stores it, row-major (spec: model 1.4, 1.5).
enum class WeightFormat {
  fp8,    // E4M3 codes [rows, cols]; E8M0 scales [ceil(rows/32), ceil(cols/32)], one for each 32x32 block
  mxfp4,  // E2M1 codes [rows, cols/2], even column in the low nibble; E8M0 scales [rows, cols/32]; cols % 32 == 0
  bf16,   // [rows, cols]
  f32,    // [rows, cols]
};

struct WeightMatrix {
  WeightFormat format = WeightFormat::f32;
  int64_t rows = 0;
  int64_t cols = 0;
  const void* data = nullptr;
  const uint8_t* scale = nullptr;  // fp8 and mxfp4 only
};

// y = x W^T (spec: model 3.1, "FP8 linear", "FP4 linear", "BF16 linear"): operands decoded and multiplied exactly,
// accumulated in fp32. Only the order of the sum may differ between variants; within a variant it is the same for every
// row, whatever `rows` is, so that a row's result does not depend on the batch around it.
struct LinearParams {
  const float* x = nullptr;  // [rows, weight.cols], row r at x + r * x_stride
  int64_t x_stride = 0;      // in floats
  int64_t rows = 0;          // 0 is allowed: nothing to do
  WeightMatrix weight;
  int64_t first_output = 0;  // computes outputs [first_output, first_output + outputs) of the weight
  int64_t outputs = 0;
  float* y = nullptr;  // [rows, outputs], row r at y + r * y_stride
  int64_t y_stride = 0;
  bool quantize_input = false;                  // x goes through Q8 first; weight.cols % 32 == 0
  Activations activations = Activations::bf16;  // bf16: y is rounded to bf16
};

void linear(const Device& device, const LinearParams& params);
// Products of the same rows, whose inputs are prepared once: x, x_stride, rows, quantize_input and the weights' formats
// and columns are those of the first. Each has the bits that it has alone.
void linear(const Device& device, std::span<const LinearParams> products);

// The truth: plain loops, fp32.
void linear_reference(const LinearParams& params);

}  // namespace gannet::ops

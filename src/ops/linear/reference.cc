#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/number_formats.h"
#include "base/quantize.h"
#include "ops/linear/op.h"

namespace gannet::ops {
namespace {

constexpr int64_t kBlock = 32;  // rows and columns that share an FP8 scale; columns that share an MXFP4 scale

int64_t blocks(int64_t n) {
  return (n + kBlock - 1) / kBlock;
}

// The element type's value at `index`, wherever it lies: mapped checkpoints align nothing.
template <class T>
T load(const void* data, int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + index * int64_t{sizeof(T)}, sizeof value);
  return value;
}

float element(const WeightMatrix& w, int64_t row, int64_t column) {
  const int64_t index = row * w.cols + column;
  switch (w.format) {
    case WeightFormat::fp8: {
      const uint8_t scale = w.scale[row / kBlock * blocks(w.cols) + column / kBlock];
      return e4m3_to_float(load<uint8_t>(w.data, index)) * e8m0_to_float(scale);
    }
    case WeightFormat::mxfp4: {
      const int byte = load<uint8_t>(w.data, index / 2);
      const uint8_t scale = w.scale[row * blocks(w.cols) + column / kBlock];
      return e2m1_to_float(static_cast<uint8_t>(column % 2 == 0 ? byte & 15 : byte >> 4)) * e8m0_to_float(scale);
    }
    case WeightFormat::bf16:
      return bf16_to_float(load<uint16_t>(w.data, index));
    case WeightFormat::f32:
      return load<float>(w.data, index);
  }
  return 0;
}

}  // namespace

void linear_reference(const LinearParams& params) {
  const WeightMatrix& w = params.weight;
  std::vector<float> x(w.cols);
  for (int64_t row = 0; row < params.rows; ++row) {
    std::copy_n(params.x + row * params.x_stride, w.cols, x.begin());
    if (params.quantize_input) q8_round(x);
    for (int64_t output = 0; output < params.outputs; ++output) {
      float sum = 0;
      for (int64_t column = 0; column < w.cols; ++column) {
        sum += x[column] * element(w, params.first_output + output, column);
      }
      const bool round = params.activations == Activations::bf16;
      params.y[row * params.y_stride + output] = round ? round_to_bf16(sum) : sum;
    }
  }
}

}  // namespace gannet::ops

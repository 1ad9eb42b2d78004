#pragma once

#include <cstdint>

#include "base/device.h"

// The parts of a fast attention that linear's kernels do not do.
namespace gannet::ops {

struct AttentionKernels {
  // Turns the n scores of a head into exp(score * scale - M), M the largest (at least -1e30), and returns their sum and
  // the sink's exp(sink - M).
  float (*softmax)(float* scores, int64_t n, float scale, float sink);
  // out[h][c] = (sum over keys in order of weights[h][j] * keys[j][c]) / totals[h]. weights [heads, weight_stride],
  // keys [n, dim], out [heads, dim]; dim a multiple of 32, n > 0.
  void (*combine)(const float* weights, int64_t weight_stride, const float* totals, int64_t heads, const float* keys,
                  int64_t n, int64_t dim, float* out);
  void (*round_to_bf16)(float* values, int64_t n);
};

extern const AttentionKernels kAttentionAvx2;
extern const AttentionKernels kAttentionAvx512;

}  // namespace gannet::ops

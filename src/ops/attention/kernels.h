#pragma once

#include <cstdint>

#include "base/device.h"

// The parts of a fast attention that linear's kernels do not do.
namespace gannet::ops {

// Keys beside each other, decoded in the order of linear's kernels, `stride` floats apart.
struct KeySegment {
  const float* keys = nullptr;
  int64_t count = 0;
};

// The weighted sum of the keys of one row, those of the first segment first.
struct CombineParams {
  const float* weights = nullptr;  // [heads, weight_stride]
  int64_t weight_stride = 0;
  const float* totals = nullptr;  // [heads]
  int64_t heads = 0;
  KeySegment segments[2];  // not both empty
  int64_t key_stride = 0;
  int64_t dim = 0;       // a multiple of 32
  float* out = nullptr;  // [heads, dim], in the keys' order
};

struct AttentionKernels {
  // Turns the n scores of a head into exp(score * scale - M), M the largest (at least -1e30), and returns their sum and
  // the sink's exp(sink - M).
  float (*softmax)(float* scores, int64_t n, float scale, float sink);
  // out[h][c] = (sum over keys in order of weights[h][j] * keys[j][c]) / totals[h].
  void (*combine)(const CombineParams& params);
  // From the order of linear's kernels (in every group of 32 the even ones, then the odd ones) to the usual one, in
  // place; n a multiple of 32.
  void (*restore_order)(float* values, int64_t n);
  void (*round_to_bf16)(float* values, int64_t n);
};

extern const AttentionKernels kAttentionAvx2;
extern const AttentionKernels kAttentionAvx512;

}  // namespace gannet::ops

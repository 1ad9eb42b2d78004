#pragma once

#include <cstdint>

#include "base/device.h"

namespace gannet::ops {

inline constexpr int64_t kMaxStreams = 8;

// Coefficients of one hyper-connection site from the streams in front of its sublayer (spec: model 3.3, 1 to 4):
// (2 + s) s dot products with one RMS over all streams, two sigmoids, and a doubly stochastic matrix by Sinkhorn.
struct HyperMixParams {
  const float* streams = nullptr;  // [rows, streams_per_row, hidden]
  int64_t rows = 0;
  int64_t streams_per_row = 0;  // s, at most kMaxStreams
  int64_t hidden = 0;
  const float* fn = nullptr;     // f32 [(2 + s) s, s * hidden]
  const float* base = nullptr;   // f32 [(2 + s) s]
  const float* scale = nullptr;  // f32 [3]: pre, post, mixing matrix
  int64_t sinkhorn_iterations = 0;
  float norm_eps = 0;     // inside the RMS
  float eps = 0;          // added to `pre`, to the softmax and to every Sinkhorn sum
  float* pre = nullptr;   // [rows, s]: weights of the NEXT sublayer's input
  float* post = nullptr;  // [rows, s]
  float* mix = nullptr;   // [rows, s, s], [source stream][target stream]
};

void hyper_mix(const Device& device, const HyperMixParams& params);
void hyper_mix_reference(const HyperMixParams& params, int64_t begin, int64_t end);

// What follows the dot products, for one row: `m` [(2 + s) s] are the dots times the inverse RMS.
void hyper_coefficients(const HyperMixParams& params, const float* m, int64_t row);

}  // namespace gannet::ops

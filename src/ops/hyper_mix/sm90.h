#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace gannet::ops::cuda {

// Coefficients of a hyper-connection site (ops/hyper_mix/op.h), four streams. Runs beside the sublayer.
struct HyperMixParams {
  const __nv_bfloat16* streams = nullptr;  // [most, 4, hidden]
  const int32_t* count = nullptr;          // [1]
  int64_t most = 0;
  int64_t hidden = 0;            // a multiple of 8
  const float* fn = nullptr;     // [24, 4 * hidden]
  const float* base = nullptr;   // [24]
  const float* scale = nullptr;  // [3]
  int64_t sinkhorn_iterations = 0;
  float norm_eps = 0;
  float eps = 0;
  float* partial = nullptr;  // scratch: hyper_mix_scratch(..) floats
  float* pre = nullptr;      // [most, 4]
  float* post = nullptr;     // [most, 4]
  float* mix = nullptr;      // [most, 4, 4], [source][target]
};
void hyper_mix(cudaStream_t stream, const HyperMixParams& params);
// Enough for any number of rows up to `most`.
int64_t hyper_mix_scratch(int64_t most);

}  // namespace gannet::ops::cuda

#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace gannet::ops::cuda {

// Mega-mHC (ops/hyper_apply/op.h), four streams: a sublayer's output into the streams, the next sublayer's input out of
// them. The output comes as bf16 `y`, or as the experts' parts, which are summed here in fp32 (shared first, then the
// slots in order) and rounded to bf16; or not at all.
struct HyperApplyParams {
  __nv_bfloat16* streams = nullptr;  // [most, 4, hidden], updated in place
  const int32_t* count = nullptr;    // [1]
  int64_t most = 0;
  int64_t hidden = 0;                // a multiple of 32
  const __nv_bfloat16* y = nullptr;  // [most, hidden] or null
  const float* shared = nullptr;     // [most, hidden] or null; with it
  const float* parts = nullptr;      // [most, top_k, hidden]
  int64_t top_k = 0;
  const float* post = nullptr;          // [most, 4]; read only with an output
  const float* mix = nullptr;           // [most, 4, 4]; read only with an output
  const float* pre = nullptr;           // [most, 4]
  const __nv_bfloat16* norm = nullptr;  // [hidden]: the next sublayer's; null: no x is made
  float norm_eps = 0;
  __nv_bfloat16* x = nullptr;        // [most, hidden]: values of Q8(normed input)
  __nv_bfloat16* operand = nullptr;  // [most, hidden]: the normed input rounded to bf16
};
void hyper_apply(cudaStream_t stream, const HyperApplyParams& params);

}  // namespace gannet::ops::cuda

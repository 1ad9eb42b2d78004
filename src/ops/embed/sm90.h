#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace gannet::ops::cuda {

// Embedding rows into all four streams; pre = (1, 0, 0, 0) (ops/embed/op.h).
struct EmbedParams {
  const int32_t* ids = nullptr;    // [most]
  const int32_t* count = nullptr;  // [1]
  int64_t most = 0;
  const __nv_bfloat16* weight = nullptr;  // [vocabulary, hidden]
  int64_t hidden = 0;
  __nv_bfloat16* streams = nullptr;  // [most, 4, hidden]
  float* pre = nullptr;              // [most, 4]
};
void embed(cudaStream_t stream, const EmbedParams& params);

// The seam: row i of each output is row rows[i] of its input.
struct CutRowsParams {
  const int32_t* rows = nullptr;   // [most], rising
  const int32_t* count = nullptr;  // [1]
  int64_t most = 0;
  int64_t hidden = 0;
  const __nv_bfloat16* streams = nullptr;  // [.., 4, hidden]
  const float* pre = nullptr;              // [.., 4]
  const __nv_bfloat16* x = nullptr;        // [.., hidden]
  const __nv_bfloat16* operand = nullptr;  // [.., hidden]
  __nv_bfloat16* streams_out = nullptr;
  float* pre_out = nullptr;
  __nv_bfloat16* x_out = nullptr;
  __nv_bfloat16* operand_out = nullptr;
};
void cut_rows(cudaStream_t stream, const CutRowsParams& params);

}  // namespace gannet::ops::cuda

#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace gannet::ops::cuda {

// The head's input (ops/head/op.h): the wanted rows' streams collapsed and normalised, rounded to bf16. The product
// with the head is a linear.
struct HeadInputParams {
  const __nv_bfloat16* streams = nullptr;  // [.., 4, hidden]
  const float* pre = nullptr;              // [.., 4]
  const int32_t* rows = nullptr;           // [most]: which rows are wanted
  const int32_t* count = nullptr;          // [1]
  int64_t most = 0;
  int64_t hidden = 0;
  const __nv_bfloat16* norm = nullptr;  // [hidden]
  float norm_eps = 0;
  __nv_bfloat16* x = nullptr;  // [most, hidden]
};
void head_input(cudaStream_t stream, const HeadInputParams& params);

}  // namespace gannet::ops::cuda

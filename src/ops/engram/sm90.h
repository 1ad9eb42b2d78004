#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace gannet::ops::cuda {

// Engram's table rows (ops/engram/op.h), read where the tables lie: pinned host memory or the device's own. Out come
// the values of Q8(row), ready for the product with wkv. Runs beside the layers in front.
struct EngramGatherParams {
  const int64_t* table_rows = nullptr;  // [most, columns]
  const int32_t* count = nullptr;       // [1]
  int64_t most = 0;
  int64_t columns = 0;
  const uint8_t* table = nullptr;        // E4M3 [table size, dim]
  const uint8_t* table_scale = nullptr;  // E8M0 [table size, dim / 32]
  int64_t dim = 0;                       // a multiple of 32
  bool half_of_device = false;           // leaves every other multiprocessor to the layers in front
  __nv_bfloat16* out = nullptr;          // [most, columns * dim]
};
void engram_gather(cudaStream_t stream, const EngramGatherParams& params);

// The gated value added to the streams.
struct EngramGateParams {
  const float* kv = nullptr;       // [most, 5 * hidden]: the product with wkv: a key for each stream, then the value
  const int32_t* count = nullptr;  // [1]
  int64_t most = 0;
  int64_t hidden = 0;
  const __nv_bfloat16* q_weight = nullptr;  // [4, hidden]
  const __nv_bfloat16* k_weight = nullptr;  // [4, hidden]
  float norm_eps = 0;
  __nv_bfloat16* streams = nullptr;  // [most, 4, hidden], updated in place
};
void engram_gate(cudaStream_t stream, const EngramGateParams& params);

}  // namespace gannet::ops::cuda

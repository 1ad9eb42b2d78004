#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "ops/cuda/rows.h"

namespace gannet::ops::cuda {

// Attention of one layer ("MegaAttention", ops/attention/op.h): query RoPE, window and selected entries with the sink
// in one softmax, inverse RoPE. Heads of 512 channels, any number of them. Window keys of this pass's own rows come
// from `chunk`, older ones from the rings. Keys are decoded to bf16, which is exact. Few rows split their keys over
// several blocks, whose results are merged in a fixed order. q, out, chunk, rings and
// entries, their strides too, are aligned to 16 bytes.
struct AttentionParams {
  const __nv_bfloat16* q = nullptr;  // [most, heads, 512], the output of wq_b, not rotated
  Rows rows;
  int64_t heads = 0;
  int64_t window = 0;                        // at most 128
  const std::byte* chunk = nullptr;          // [most] window records of this layer and pass
  const std::byte* rings = nullptr;          // this layer's ring in slot 0
  int64_t ring_stride = 0;                   // bytes from slot to slot
  Records entries;                           // global KV; unused without `selected`
  const int32_t* selected = nullptr;         // [most, selected_stride]: entry numbers; null in layers without entries
  const int32_t* selected_counts = nullptr;  // [most]
  int64_t selected_stride = 0;
  const float* sink = nullptr;         // [heads]
  const float* frequencies = nullptr;  // [32]
  __nv_bfloat16* out = nullptr;        // [most, heads, 512]
};
void attention(cudaStream_t stream, const AttentionParams& params);

}  // namespace gannet::ops::cuda

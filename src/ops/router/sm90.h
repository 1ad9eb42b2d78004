#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/cuda/packed_matrix.h"

namespace gannet::ops::cuda {

// Which rows each expert runs on, made by the router on the device. A pair is one row with one of its experts; it is
// numbered row * top_k + slot, slots being in the order of increasing expert id.
struct ExpertLists {
  int32_t* experts = nullptr;       // [most * top_k]: expert of each pair
  float* weights = nullptr;         // [most * top_k]: routing weight of each pair
  int32_t* pairs = nullptr;         // [most * top_k]: all pairs, by expert, then by row
  int32_t* offsets = nullptr;       // [experts + 1]: where each expert's pairs begin
  int32_t* active = nullptr;        // [experts]: experts with pairs, rising
  int32_t* active_count = nullptr;  // [1]
};

// The router (ops/router/op.h, "Mega-Gate"): scores, choice, weights and lists. Deterministic; x is bf16.
struct RouterParams {
  const __nv_bfloat16* x = nullptr;  // [most, hidden]
  const int32_t* count = nullptr;
  int64_t most = 0;
  PackedMatrix gate;            // bf16 [experts, hidden]
  const float* bias = nullptr;  // [experts]
  int64_t top_k = 0;            // at most 8
  float scaling_factor = 1;
  float* logits = nullptr;  // scratch [most, experts]
  ExpertLists lists;
};
// `experts` at most 512.
void router(cudaStream_t stream, const RouterParams& params);

}  // namespace gannet::ops::cuda

#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/cuda/packed_matrix.h"
#include "ops/router/sm90.h"

namespace gannet::ops::cuda {

// A routed expert's packed weights: `gate_up` [2 width, hidden] (pack_gate_up) and `down` [hidden, width], mxfp4. A
// table of these lies in device memory, so that experts may share weights or move.
struct ExpertWeights {
  const std::byte* gate_up = nullptr;
  const std::byte* down = nullptr;
  float gate_up_factor = 1;  // 2^exponent of the packed matrix
  float down_factor = 1;
};

// The mixture of experts (ops/experts/op.h), in two steps:
//   inner[pair] = Q8(swiglu(gate x, up x) * weight)      outer[pair] = down inner[pair]
// for every pair of the lists, and the same for the shared expert on every row. The sum over a row's pairs belongs to
// hyper_apply, which takes `shared` first and then the slots in order.
struct ExpertsParams {
  const __nv_bfloat16* x = nullptr;  // [most, hidden]: values of Q8; aligned to 16 bytes, as all buffers are
  const int32_t* count = nullptr;    // [1]
  int64_t most = 0;
  int64_t hidden = 0;  // a multiple of 32
  int64_t width = 0;   // of a routed expert, a multiple of 32
  int64_t experts = 0;
  int64_t top_k = 0;  // at most 8
  ExpertLists lists;
  const ExpertWeights* routed = nullptr;  // [experts], device memory
  PackedMatrix shared_gate_up;            // fp8 [2 shared width, hidden]
  PackedMatrix shared_down;               // fp8 [hidden, shared width]
  float swiglu_limit = 0;
  __nv_bfloat16* inner = nullptr;         // scratch [most * top_k, width]
  __nv_bfloat16* shared_inner = nullptr;  // scratch [most, shared width]
  float* outer = nullptr;                 // [most * top_k, hidden]
  float* shared = nullptr;                // [most, hidden]
  int32_t* tiles = nullptr;               // scratch [expert_tile_words(..)], aligned to 32 bytes; of many rows
};
void experts(cudaStream_t stream, const ExpertsParams& params);
// The two variants behind it; `experts` takes the first up to kFewExpertRows. Few streams an active expert's weights
// once for every 16 of its rows, the shared expert's while the launch in front still runs (ops/cuda/launch.cuh).
inline constexpr int64_t kFewExpertRows = 256;
void experts_few_rows(cudaStream_t stream, const ExpertsParams& params);
void experts_many_rows(cudaStream_t stream, const ExpertsParams& params);
// Enough for any number of rows up to `most`.
int64_t expert_tile_words(int64_t most, int64_t top_k, int64_t experts);

}  // namespace gannet::ops::cuda

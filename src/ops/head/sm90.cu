#include "ops/head/sm90.h"

#include <cooperative_groups.h>

#include "base/check.h"
#include "ops/cuda/check.h"
#include "ops/cuda/ordered.cuh"

namespace gannet::ops::cuda {
namespace {

constexpr int kStreams = 4;
constexpr int kInputThreads = 512;
constexpr int kArgmaxThreads = 512;
constexpr int kArgmaxBlocks = 8;  // of a row: a cluster

// The sum over a block, in a fixed order; for all threads.
__device__ float block_sum(float value) {
  __shared__ float warps[kInputThreads / 32];
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffU, value, step);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0;
  for (const float part : warps) sum += part;
  return sum;
}

// Eight bf16 as fp32.
__device__ void widen(const uint4& raw, float x[8]) {
  const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[2 * i] = __uint_as_float(words[i] << 16);
    x[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000U);
  }
}

// A block for each row, eight channels at a time.
__global__ void __launch_bounds__(kInputThreads) collapse_and_norm(const __grid_constant__ HeadInputParams p) {
  extern __shared__ float collapsed[];  // [hidden]
  const int r = static_cast<int>(blockIdx.x);
  if (r >= *p.count) return;
  const int64_t row = p.rows[r];
  const uint4* streams = reinterpret_cast<const uint4*>(p.streams + row * kStreams * p.hidden);
  const int groups = static_cast<int>(p.hidden / 8);
  const float4 pre = *reinterpret_cast<const float4*>(p.pre + row * kStreams);
  const float factors[kStreams] = {pre.x, pre.y, pre.z, pre.w};
  float squares = 0;
  for (int i = threadIdx.x; i < groups; i += kInputThreads) {
    uint4 raw[kStreams];
#pragma unroll
    for (int s = 0; s < kStreams; ++s) raw[s] = streams[s * groups + i];
    float sum[8] = {};
#pragma unroll
    for (int s = 0; s < kStreams; ++s) {
      float x[8];
      widen(raw[s], x);
#pragma unroll
      for (int j = 0; j < 8; ++j) sum[j] = __fadd_rn(sum[j], __fmul_rn(factors[s], x[j]));
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) squares += sum[j] * sum[j];
    float4* kept = reinterpret_cast<float4*>(collapsed + 8 * i);
    kept[0] = make_float4(sum[0], sum[1], sum[2], sum[3]);
    kept[1] = make_float4(sum[4], sum[5], sum[6], sum[7]);
  }
  const float factor = 1.0F / sqrtf(block_sum(squares) / static_cast<float>(p.hidden) + p.norm_eps);
  for (int i = threadIdx.x; i < groups; i += kInputThreads) {
    float norm[8];
    widen(reinterpret_cast<const uint4*>(p.norm)[i], norm);
    __nv_bfloat162 out[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float* x = collapsed + 8 * i + 2 * j;
      out[j] = __floats2bfloat162_rn(norm[2 * j] * (x[0] * factor), norm[2 * j + 1] * (x[1] * factor));
    }
    reinterpret_cast<uint4*>(p.x + r * p.hidden)[i] = *reinterpret_cast<const uint4*>(out);
  }
}

// Larger for a larger logit and, of equal ones, for the lower id; least for NaN.
__device__ uint64_t rank_of(float logit, int64_t id) {
  const uint32_t code = logit == logit ? ordered(logit) : 0;
  return static_cast<uint64_t>(code) << 32 | static_cast<uint32_t>(~id);
}

__device__ uint64_t warp_largest(uint64_t value) {
  for (int step = 16; step > 0; step /= 2) value = max(value, __shfl_xor_sync(0xffffffffU, value, step));
  return value;
}

// A cluster for each row.
__global__ void __cluster_dims__(kArgmaxBlocks, 1, 1) __launch_bounds__(kArgmaxThreads)
    find_largest(const __grid_constant__ ArgmaxParams p) {
  __shared__ uint64_t warps[kArgmaxThreads / 32];
  __shared__ uint64_t blocks[kArgmaxBlocks];  // of the cluster's first block
  auto cluster = cooperative_groups::this_cluster();
  const int row = static_cast<int>(blockIdx.y);
  if (row >= *p.count) return;
  const float* logits = p.logits + row * p.vocabulary;
  uint64_t best = 0;
  constexpr int64_t kStride = kArgmaxBlocks * kArgmaxThreads;
  const int64_t first = blockIdx.x * kArgmaxThreads + threadIdx.x;
  if (p.vocabulary % 4 == 0) {
#pragma unroll 8
    for (int64_t i = first; i < p.vocabulary / 4; i += kStride) {
      const float4 v = __ldcs(reinterpret_cast<const float4*>(logits) + i);
      best = max(best, max(max(rank_of(v.x, 4 * i), rank_of(v.y, 4 * i + 1)),
                           max(rank_of(v.z, 4 * i + 2), rank_of(v.w, 4 * i + 3))));
    }
  } else {
    for (int64_t i = first; i < p.vocabulary; i += kStride) best = max(best, rank_of(logits[i], i));
  }
  best = warp_largest(best);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = best;
  __syncthreads();
  if (threadIdx.x < 32) {
    best = warp_largest(threadIdx.x < kArgmaxThreads / 32 ? warps[threadIdx.x] : 0);
    if (threadIdx.x == 0) *cluster.map_shared_rank(blocks + blockIdx.x, 0) = best;
  }
  cluster.sync();
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    for (const uint64_t other : blocks) best = max(best, other);
    p.ids[row] = static_cast<int32_t>(~static_cast<uint32_t>(best));
  }
}

}  // namespace

void head_input(cudaStream_t stream, const HeadInputParams& p) {
  if (p.most == 0) return;
  GANNET_CHECK(p.hidden % 32 == 0);
  collapse_and_norm<<<static_cast<unsigned>(p.most), kInputThreads, p.hidden * sizeof(float), stream>>>(p);
  GANNET_CUDA_LAUNCHED();
}

void argmax(cudaStream_t stream, const ArgmaxParams& p) {
  if (p.most == 0) return;
  const dim3 grid(kArgmaxBlocks, static_cast<unsigned>(p.most));
  find_largest<<<grid, kArgmaxThreads, 0, stream>>>(p);
  GANNET_CUDA_LAUNCHED();
}

}  // namespace gannet::ops::cuda

#include "ops/head/sm90.h"

#include "base/check.h"
#include "ops/cuda/check.h"

namespace gannet::ops::cuda {
namespace {

constexpr int kStreams = 4;
constexpr int kInputThreads = 512;

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

}  // namespace

void head_input(cudaStream_t stream, const HeadInputParams& p) {
  if (p.most == 0) return;
  GANNET_CHECK(p.hidden % 32 == 0);
  collapse_and_norm<<<static_cast<unsigned>(p.most), kInputThreads, p.hidden * sizeof(float), stream>>>(p);
  GANNET_CUDA_LAUNCHED();
}

}  // namespace gannet::ops::cuda

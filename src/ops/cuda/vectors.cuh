#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "ops/cuda/quantize.cuh"

// Memory-bound kernels move eight bf16 channels at once, as the four words of a uint4 with two channels each.
namespace gannet::ops::cuda {

inline constexpr int kVectorChannels = 8;
inline constexpr int kGroupLanes = 4;  // neighbouring lanes that hold the 32 channels of a Q8 group

__device__ inline float low_channel(uint32_t word) {
  return __uint_as_float(word << 16);
}
__device__ inline float high_channel(uint32_t word) {
  return __uint_as_float(word & 0xffff0000U);
}
// Both rounded to bf16, to nearest even.
__device__ inline uint32_t pack_channels(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

__device__ inline uint32_t word_of(const uint4& vector, int i) {
  return i == 0 ? vector.x : i == 1 ? vector.y : i == 2 ? vector.z : vector.w;
}

// A vector that is read once, or whose lines other blocks read from the second-level cache. Stays where it is written,
// so that many can be asked for before anything is waited for.
__device__ inline uint4 load_vector(const void* global) {
  uint4 v;
  asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];\n" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(global));
  return v;
}

// Eight channels rounded through Q8; the four lanes of a group call it together.
__device__ inline uint4 q8_round_vector(const float v[kVectorChannels]) {
  float amax = 0;
#pragma unroll
  for (int i = 0; i < kVectorChannels; ++i) amax = fmaxf(amax, fabsf(v[i]));
#pragma unroll
  for (int step = 1; step < kGroupLanes; step *= 2) amax = fmaxf(amax, __shfl_xor_sync(~0U, amax, step));
  const uint32_t code = q8_scale(amax);
  const float scale = scale_value(code), inverse = inverse_scale_value(code);
  uint32_t words[kVectorChannels / 2];
#pragma unroll
  for (int i = 0; i < kVectorChannels / 2; ++i) {
    const float2 scaled = make_float2(v[2 * i] * inverse, v[2 * i + 1] * inverse);
    const __nv_fp8x2_storage_t codes = __nv_cvt_float2_to_fp8x2(scaled, __NV_SATFINITE, __NV_E4M3);
    const float2 rounded = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(codes, __NV_E4M3)));
    words[i] = pack_channels(rounded.x * scale, rounded.y * scale);
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

__device__ inline float warp_sum(float value) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0U, value, step);
  return value;
}

}  // namespace gannet::ops::cuda

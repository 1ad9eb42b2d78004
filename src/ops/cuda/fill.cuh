#pragma once

#include <cuda_bf16.h>

#include <cstdint>

// Inputs of benchmarks, made on the device: uniform numbers in [-1, 1), the same for the same seed.
namespace gannet::ops::cuda::test {

__device__ inline float hashed_number(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return static_cast<float>(static_cast<int32_t>(x >> 32)) * 0x1p-31F;
}

template <class T>
__global__ void fill_kernel(T* values, int64_t n, uint64_t seed) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += stride) {
    const float value = hashed_number(seed * 0x9e3779b97f4a7c15U + static_cast<uint64_t>(i));
    if constexpr (sizeof(T) == 1) {
      values[i] = static_cast<T>(static_cast<int>(value * 100) + 110);
    } else {
      values[i] = static_cast<T>(value);
    }
  }
}

// Bytes become codes from 10 to 210; all other types numbers.
template <class T>
void fill(T* values, int64_t n, uint64_t seed) {
  fill_kernel<<<1024, 256>>>(values, n, seed);
}

}  // namespace gannet::ops::cuda::test

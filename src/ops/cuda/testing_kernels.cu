#include "ops/cuda/testing_kernels.h"

#include <cuda_bf16.h>

namespace gannet::ops::cuda::test {
namespace {

constexpr unsigned kBlocks = 1024, kThreads = 256;

__device__ int64_t first_index() {
  return int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}
__device__ int64_t stride() {
  return int64_t{gridDim.x} * blockDim.x;
}

__device__ float hashed_number(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return static_cast<float>(static_cast<int32_t>(x >> 32)) * 0x1p-31F;
}

template <class T>
__global__ void fill_kernel(T* values, int64_t n, uint64_t seed) {
  for (int64_t i = first_index(); i < n; i += stride()) {
    const float value = hashed_number(seed * 0x9e3779b97f4a7c15U + static_cast<uint64_t>(i));
    if constexpr (sizeof(T) == 1) {
      values[i] = static_cast<T>(static_cast<int>(value * 100) + 110);
    } else {
      values[i] = static_cast<T>(value);
    }
  }
}

__global__ void fill_words_kernel(uint32_t* words, int64_t n, uint32_t mask, uint32_t bits) {
  for (int64_t i = first_index(); i < n; i += stride()) {
    uint32_t x = static_cast<uint32_t>(i) * 2654435761U;
    x = (x ^ (x >> 15)) * 2246822519U;
    words[i] = ((x ^ (x >> 13)) & mask) | bits;
  }
}

__global__ void halve_kernel(const __nv_bfloat16* x, __nv_bfloat16* y, int64_t n) {
  for (int64_t i = first_index(); i < n; i += stride()) y[i] = __float2bfloat16(0.5F * __bfloat162float(x[i]));
}

}  // namespace

template <class T>
void fill(T* values, int64_t n, uint64_t seed) {
  fill_kernel<<<kBlocks, kThreads>>>(values, n, seed);
}
template void fill(float*, int64_t, uint64_t);
template void fill(__nv_bfloat16*, int64_t, uint64_t);
template void fill(uint8_t*, int64_t, uint64_t);

void fill_words(uint32_t* words, int64_t n, uint32_t mask, uint32_t bits) {
  fill_words_kernel<<<kBlocks, kThreads>>>(words, n, mask, bits);
}

void halve(cudaStream_t stream, const void* x, void* y, int64_t n) {
  halve_kernel<<<kBlocks, kThreads, 0, stream>>>(static_cast<const __nv_bfloat16*>(x), static_cast<__nv_bfloat16*>(y),
                                                 n);
}

}  // namespace gannet::ops::cuda::test

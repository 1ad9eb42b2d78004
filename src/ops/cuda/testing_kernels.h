#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

// Kernels that only tests and benchmarks need; all run on the default stream unless one is given.
namespace gannet::ops::cuda::test {

// Uniform numbers in [-1, 1), the same for the same seed; bytes become codes from 10 to 210. For float, __nv_bfloat16
// and uint8_t.
template <class T>
void fill(T* values, int64_t n, uint64_t seed);

// Words of random bits, of which `mask` are kept and `bits` set.
void fill_words(uint32_t* words, int64_t n, uint32_t mask, uint32_t bits);

// y = x / 2 over n bf16 values: stands for a sublayer.
void halve(cudaStream_t stream, const void* x, void* y, int64_t n);

}  // namespace gannet::ops::cuda::test

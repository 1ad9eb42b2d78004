#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace gannet::ops::cuda {

// A CUDA call that failed leaves nothing to go on with: logs the call, its place and CUDA's own words, then throws
// CudaError, behind which the engine is no longer healthy.
[[noreturn]] void fail_cuda(cudaError_t error, const char* call, const char* file, int line);

#define GANNET_CUDA_CHECK(call)                                                           \
  do {                                                                                    \
    if (const cudaError_t gannet_cuda_error = (call); gannet_cuda_error != cudaSuccess) { \
      ::gannet::ops::cuda::fail_cuda(gannet_cuda_error, #call, __FILE__, __LINE__);       \
    }                                                                                     \
  } while (false)

// After each launch.
#define GANNET_CUDA_LAUNCHED() GANNET_CUDA_CHECK(cudaGetLastError())

}  // namespace gannet::ops::cuda

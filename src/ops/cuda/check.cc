#include "ops/cuda/check.h"

#include <fmt/format.h>

#include "base/cuda_error.h"

namespace gannet::ops::cuda {

void fail_cuda(cudaError_t error, const char* call, const char* file, int line) {
  throw CudaError(
      fmt::format("{} at {}:{}: {} ({})", call, file, line, cudaGetErrorString(error), cudaGetErrorName(error)));
}

}  // namespace gannet::ops::cuda

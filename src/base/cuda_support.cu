#include <cuda_runtime_api.h>

#include "base/cuda.h"

namespace gannet {
namespace {

// Hopper: the code is compiled for this compute capability and no other.
constexpr int kMajor = 9;

}  // namespace

CudaSupport cuda_support() {
  CudaSupport support;
  support.built_in = true;
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    support.obstacle = cudaGetErrorString(error);
    return support;
  }
  cudaDeviceProp properties{};
  if (count == 0 || cudaGetDeviceProperties(&properties, 0) != cudaSuccess) {
    support.obstacle = "no GPU found";
    return support;
  }
  const std::string name = std::string(properties.name) + ", compute capability " + std::to_string(properties.major) +
                           "." + std::to_string(properties.minor);
  if (properties.major == kMajor) {
    support.usable = name;
  } else {
    support.obstacle = name + "; 9.0 is needed";
  }
  return support;
}

}  // namespace gannet

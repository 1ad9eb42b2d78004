#include <cuda_runtime_api.h>

#include "base/cuda.h"

namespace gannet {
namespace {

// Hopper: the code is compiled for this compute capability and no other.
constexpr int kMajor = 9;

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// Why no GPU answers, and what would help.
std::string obstacle_text(cudaError_t error) {
  int driver = 0;
  cudaDriverGetVersion(&driver);
  if (error == cudaErrorInsufficientDriver || (driver > 0 && driver < CUDART_VERSION / 1000 * 1000)) {
    return driver == 0 ? "no NVIDIA driver found"
                       : "the NVIDIA driver is too old: it supports CUDA " + version_text(driver) + "; CUDA " +
                             version_text(CUDART_VERSION) + " is needed (driver 580 or newer)";
  }
  return cudaGetErrorString(error);
}

}  // namespace

CudaSupport cuda_support() {
  CudaSupport support;
  support.built_in = true;
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    support.obstacle = obstacle_text(error);
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
    support.obstacle = name + "; the kernels are written for Hopper (H100, H200), compute capability 9.0";
  }
  return support;
}

}  // namespace gannet

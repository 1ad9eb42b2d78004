#pragma once

#include <cuda_runtime_api.h>

#include "ops/cuda/check.h"

// Launches that overlap with the kernel in front of them in the stream: the grid may start as soon as every block of
// that kernel has called allow_next() or ended, prepares itself, and calls wait_for_previous() before it touches
// anything that an earlier kernel writes. Every thread calls it, also those that then have nothing to do: what follows
// in the stream relies on all that came before having ended.
namespace gannet::ops::cuda {

__device__ inline void allow_next() {
  cudaTriggerProgrammaticLaunchCompletion();
}
__device__ inline void wait_for_previous() {
  cudaGridDependencySynchronize();
}

struct LaunchShape {
  dim3 grid, block;
  size_t shared_bytes = 0;
  unsigned cluster = 1;  // blocks in x
};

template <class... Params, class... Args>
void launch_early(cudaStream_t stream, const LaunchShape& shape, void (*kernel)(Params...), const Args&... args) {
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {shape.cluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = shape.cluster > 1 ? 2 : 1;
  GANNET_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, Params(args)...));
}

}  // namespace gannet::ops::cuda

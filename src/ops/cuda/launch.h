#pragma once

#include <cuda_runtime_api.h>

#include <utility>

#include "ops/cuda/check.h"

namespace gannet::ops::cuda {

struct LaunchShape {
  dim3 grid;
  unsigned threads = 0;
  size_t shared_bytes = 0;
  unsigned cluster = 1;  // blocks
};

// Launches a kernel that begins while the one before it in the stream still runs (programmatic dependent launch), also
// within a graph. The kernel calls wait_for_previous_launch (bulk_copy.cuh) before it touches anything that a launch
// writes, or that an earlier launch may still read.
template <class... Parameters, class... Arguments>
void launch_overlapping(cudaStream_t stream, void (*kernel)(Parameters...), const LaunchShape& shape,
                        Arguments&&... arguments) {
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = shape.cluster;
  attributes[1].val.clusterDim.y = 1;
  attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = shape.cluster > 1 ? 2 : 1;
  GANNET_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...));
}

}  // namespace gannet::ops::cuda

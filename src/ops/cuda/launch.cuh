#pragma once

#include <cuda_runtime_api.h>

#include <utility>

#include "ops/cuda/check.h"

// Launches that begin while the kernel in front of them in the stream still runs (programmatic dependent launch), also
// within a graph: a grid may start when every block in front of it has called allow_next_launch() or ended.
//
// In front of wait_for_previous_launch() a kernel prepares itself and reads weights, which no launch of a pass writes:
// nothing that an earlier launch writes, or may still read and this one writes. At least one thread of every block
// waits on every path, also where the block then has nothing to do: what follows in the stream, however it is launched,
// relies on all that came before having ended when this kernel has.
namespace gannet::ops::cuda {

// Of an H200. On a card with another number, grids are less well filled.
inline constexpr int kMultiprocessors = 132;

// The launch in front, and all before it, have ended and their writes are seen.
__device__ inline void wait_for_previous_launch() {
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
}
// The next launch may begin on multiprocessors with room.
__device__ inline void allow_next_launch() {
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
}

struct LaunchShape {
  dim3 grid;
  unsigned threads = 0;
  size_t shared_bytes = 0;
  unsigned cluster = 1;  // blocks in x
};

inline cudaLaunchConfig_t launch_config(cudaStream_t stream, const LaunchShape& shape, cudaLaunchAttribute* attributes,
                                        unsigned count) {
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = count;
  return config;
}
inline cudaLaunchAttribute cluster_attribute(const LaunchShape& shape) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {shape.cluster, 1, 1};
  return attribute;
}

template <class... Parameters, class... Arguments>
void launch_overlapping(cudaStream_t stream, void (*kernel)(Parameters...), const LaunchShape& shape,
                        Arguments&&... arguments) {
  cudaLaunchAttribute attributes[2] = {{}, cluster_attribute(shape)};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  const cudaLaunchConfig_t config = launch_config(stream, shape, attributes, shape.cluster > 1 ? 2 : 1);
  GANNET_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...));
}

// Begins when all that is in front of it has ended.
template <class... Parameters, class... Arguments>
void launch_clusters(cudaStream_t stream, void (*kernel)(Parameters...), const LaunchShape& shape,
                     Arguments&&... arguments) {
  cudaLaunchAttribute cluster = cluster_attribute(shape);
  const cudaLaunchConfig_t config = launch_config(stream, shape, &cluster, 1);
  GANNET_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...));
}

}  // namespace gannet::ops::cuda

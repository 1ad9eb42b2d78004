#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"
#include "cache/block_pool.h"
#include "model/cuda/forward.h"
#include "model/cuda/tensor_source.h"

namespace gannet {

// What CudaForward will take, in bytes.
struct CudaMemoryPlan {
  int64_t weights = 0;
  int64_t cache = 0;
  int64_t buffers = 0;
  int64_t host_tables = 0;  // pinned host memory

  int64_t gpu() const { return weights + cache + buffers; }
  std::string text() const;
};
CudaMemoryPlan plan_cuda_memory(const TensorSource& source, const BlockPool& pool, const CudaForwardOptions& options);
// Refuses a plan that the free memory of the current GPU cannot hold, in words that say what could be smaller.
Status check_fits(const CudaMemoryPlan& plan);

}  // namespace gannet

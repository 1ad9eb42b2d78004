#include "model/cuda/memory_plan.h"

#include <cuda_runtime_api.h>

#include "model/cuda/cache.h"
#include "model/cuda/weights.h"
#include "model/cuda/workspace.h"
#include "ops/cuda/check.h"

namespace gannet {
namespace {

// Left free: modules, graphs, what the driver takes for itself.
constexpr int64_t kReserve = int64_t{1} << 30;

}  // namespace

CudaMemoryPlan plan_cuda_memory(const TensorSource& source, const BlockPool& pool, const CudaForwardOptions& options) {
  const Config& config = source.config();
  return {.weights = weight_bytes(source),
          .cache = CudaCache(config, pool, options.max_sequences, options.max_tokens, true).device_bytes(),
          .buffers = CudaWorkspace(config, options.max_rows, true).arena.bytes(),
          .host_tables = table_bytes(source)};
}

std::string CudaMemoryPlan::text() const {
  const auto gib = [](int64_t bytes) { return static_cast<double>(bytes) / 0x1p30; };
  return fmt::format(
      "weights {:.2f} GiB, cache and windows {:.2f} GiB, buffers {:.2f} GiB; Engram tables {:.2f} GiB of "
      "pinned host memory",
      gib(weights), gib(cache), gib(buffers), gib(host_tables));
}

Status check_fits(const CudaMemoryPlan& plan) {
  size_t free = 0;
  size_t total = 0;
  GANNET_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  if (plan.gpu() + kReserve <= static_cast<int64_t>(free)) return {};
  return failed(
      "the GPU has {:.2f} GiB free and {:.2f} GiB are needed: {}, and {:.2f} GiB for graphs and the driver. "
      "--kv-cache-tokens, --max-num-seqs, --max-num-batched-tokens and --max-model-len make it less",
      static_cast<double>(free) / 0x1p30, static_cast<double>(plan.gpu() + kReserve) / 0x1p30, plan.text(),
      static_cast<double>(kReserve) / 0x1p30);
}

}  // namespace gannet

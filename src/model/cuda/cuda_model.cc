#include "model/cuda_model.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "base/cuda.h"
#include "base/cuda_error.h"
#include "model/cuda/forward.h"
#include "model/cuda/geometry.h"
#include "model/cuda/memory_plan.h"

namespace gannet {

Result<std::unique_ptr<ForwardPass>> create_cuda_forward(const Checkpoint& checkpoint, const BlockPool& pool,
                                                         const ModelOptions& options, std::optional<EngramHash> hash) {
  if (const CudaSupport support = cuda_support(); support.usable.empty()) {
    return failed("--device is 'cuda'; no GPU can be used: {}", support.obstacle);
  }
  if (options.activations == Activations::fp32 || !options.quantize_activations) {
    return invalid_input(
        "--activations fp32 and --act-quant off are for --device cpu; the GPU computes in bf16 with Q8");
  }
  GANNET_TRY_STATUS(check_cuda_config(checkpoint.config()));
  try {
    const TensorSource source(checkpoint);
    const CudaForwardOptions forward_options{.max_rows = options.max_rows,
                                             .max_sequences = options.max_sequences,
                                             .max_tokens = options.max_tokens,
                                             .graphs = options.graphs};
    const CudaMemoryPlan plan = plan_cuda_memory(source, pool, forward_options);
    spdlog::info("the GPU will hold {}", plan.text());
    GANNET_TRY_STATUS(check_fits(plan));
    auto forward = std::make_unique<CudaForward>(source, pool, forward_options, std::move(hash));
    spdlog::info("GPU: {}", forward->memory_text());
    return forward;
  } catch (const CudaError& error) {
    return failed("the model could not be put on the GPU: {}", error.what());
  }
}

}  // namespace gannet

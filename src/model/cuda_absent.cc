#include "model/cuda_model.h"
#include "model/model_bench.h"

namespace gannet {

Result<std::unique_ptr<ForwardPass>> create_cuda_forward(const Checkpoint&, const BlockPool&, const ModelOptions&,
                                                         std::optional<EngramHash>) {
  return invalid_input("--device is 'cuda'; this program was built without CUDA and runs the model on cpu only");
}

Result<std::unique_ptr<ModelBench>> create_cuda_bench(const Config&, const ModelBenchOptions&) {
  return invalid_input("--device is 'cuda'; this program was built without CUDA");
}

}  // namespace gannet

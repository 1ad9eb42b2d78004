#include "model/cuda/tensor_source.h"

#include <algorithm>
#include <utility>

namespace gannet {

TensorSource::TensorSource(const Checkpoint& checkpoint)
    : config_(checkpoint.config()), checkpoint_(&checkpoint), unique_experts_(config_.n_routed_experts) {
  for (TensorSpec& spec : manifest(config_)) specs_.emplace(spec.name, spec);
}

TensorSource::TensorSource(const Config& config, const Synthetic& synthetic)
    : config_(config),
      unique_experts_(std::min(synthetic.unique_experts, config.n_routed_experts)),
      table_rows_(synthetic.table_rows) {
  for (TensorSpec& spec : manifest(config_)) specs_.emplace(spec.name, spec);
}

int64_t TensorSource::table_rows(int64_t engram) const {
  const int64_t rows = config_.engram_num_embeddings[engram];
  return synthetic() ? std::min(rows, table_rows_) : rows;
}

const TensorSpec& TensorSource::spec(const std::string& name) const {
  return specs_.at(name);
}

const std::byte* TensorSource::bytes(const std::string& name) const {
  return synthetic() ? nullptr : checkpoint_->tensor(name).bytes.data();
}

}  // namespace gannet

#include "model/model.h"

#include <algorithm>
#include <utility>

#include "model/cuda_model.h"
#include "model/forward.h"

namespace gannet {
namespace {

Status check_token_map(const Config& config, const std::vector<int32_t>& map) {
  if (static_cast<int64_t>(map.size()) != config.vocab_size) {
    return invalid_input("Engram's token map has {} ids; the model's vocab_size is {}", map.size(), config.vocab_size);
  }
  const auto [least, most] = std::minmax_element(map.begin(), map.end());
  if (*least < 0 || *most + 1 != config.engram_compressed_vocab_size) {
    return invalid_input("the tokenizer has {} compressed token ids; config.json's engram_compressed_vocab_size is {}",
                         *most + 1, config.engram_compressed_vocab_size);
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Model>> Model::create(const Checkpoint& checkpoint, const Device& device, const BlockPool& pool,
                                             const ModelOptions& options, std::vector<int32_t> token_map) {
  std::optional<EngramHash> hash;
  if (!checkpoint.config().engram_layer_ids.empty()) {
    GANNET_TRY_STATUS(check_token_map(checkpoint.config(), token_map));
    hash.emplace(checkpoint.config(), std::move(token_map));
  }
  if (options.device == DeviceKind::cuda) {
    GANNET_TRY(auto forward, create_cuda_forward(checkpoint, pool, options, std::move(hash)));
    return std::unique_ptr<Model>(new Model(std::move(forward)));
  }
  return std::unique_ptr<Model>(new Model(std::make_unique<Forward>(checkpoint, device, options, std::move(hash))));
}

Model::Model(std::unique_ptr<ForwardPass> forward) : forward_(std::move(forward)) {}
Model::~Model() = default;

const Config& Model::config() const {
  return forward_->config();
}
const ModelPlan& Model::plan() const {
  return forward_->plan();
}
int64_t Model::max_rows() const {
  return forward_->max_rows();
}

std::vector<int32_t> Model::history(std::span<const int32_t> ids) const {
  return forward_->history(ids);
}

void Model::forward(const Batch& batch, float* logits, LayerObserver* observer, RowCandidates* candidates) {
  forward_->forward(batch, logits, observer, candidates);
}

}  // namespace gannet

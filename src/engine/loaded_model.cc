#include "engine/loaded_model.h"

#include <algorithm>
#include <utility>

namespace gannet {

LoadedModel::LoadedModel(Checkpoint checkpoint, int threads)
    : checkpoint_(std::move(checkpoint)), threads_(threads), device_{.pool = &threads_, .simd = detect_simd()} {}

Result<std::unique_ptr<LoadedModel>> LoadedModel::open(LoadOptions options) {
  GANNET_TRY(Checkpoint checkpoint, Checkpoint::open(options.directory));
  const int64_t longest = checkpoint.config().max_position_embeddings;
  if (options.model.max_tokens > longest) {
    return invalid_input("a context of {} tokens was asked for; config.json's max_position_embeddings is {}",
                         options.model.max_tokens, longest);
  }
  if (options.model.max_tokens == 0) options.model.max_tokens = longest;
  const int threads = options.threads > 0 ? options.threads : usable_processors();

  std::unique_ptr<LoadedModel> loaded(new LoadedModel(std::move(checkpoint), threads));
  loaded->max_tokens_ = options.model.max_tokens;
  // fp32 activations are for comparisons: matrix units would take only the products whose inputs happen to be bf16, and
  // add those up in another order than the rest.
  if (options.model.activations == Activations::fp32) {
    loaded->device_.simd = std::min(loaded->device_.simd, Simd::avx512);
  }
  const int64_t cache_tokens = options.cache_tokens > 0 ? options.cache_tokens : options.model.max_tokens;
  loaded->pool_ = std::make_unique<BlockPool>(block_layout(loaded->config(), kBlockTokens),
                                              (cache_tokens + kBlockTokens - 1) / kBlockTokens);
  loaded->place_ = options.model.device == DeviceKind::cuda ? SequenceState::Place::gpu : SequenceState::Place::host;
  GANNET_TRY(loaded->model_, Model::create(loaded->checkpoint_, loaded->device_, *loaded->pool_, options.model,
                                           std::move(options.token_map)));
  return loaded;
}

}  // namespace gannet

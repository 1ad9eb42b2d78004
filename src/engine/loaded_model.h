#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/device.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "cache/block_pool.h"
#include "checkpoint/checkpoint.h"
#include "model/model.h"

namespace gannet {

// Tokens of a cache block: short prompts must be able to share whole blocks.
inline constexpr int64_t kBlockTokens = 64;

struct LoadOptions {
  std::filesystem::path directory;
  int threads = 0;  // 0: one per processor this process may use
  ModelOptions model;
  int64_t cache_tokens = 0;        // room in the block pool; 0: one longest sequence
  std::vector<int32_t> token_map;  // Engram's compressed ids, [vocab_size]; may be empty without Engram
};

// A checkpoint opened, verified and ready to run: everything with a lifetime that the forward pass borrows.
class LoadedModel {
 public:
  static Result<std::unique_ptr<LoadedModel>> open(LoadOptions options);

  const Checkpoint& checkpoint() const { return checkpoint_; }
  const Config& config() const { return checkpoint_.config(); }
  const Device& device() const { return device_; }
  Model& model() { return *model_; }
  BlockPool& pool() { return *pool_; }
  // The state of a sequence, where the model wants it; slots are numbered from 0 to ModelOptions::max_sequences - 1.
  SequenceState sequence(int64_t slot) { return SequenceState(config(), *pool_, slot, place_); }
  // Longest sequence, in tokens.
  int64_t max_tokens() const { return max_tokens_; }

 private:
  LoadedModel(Checkpoint checkpoint, int threads);

  Checkpoint checkpoint_;
  ThreadPool threads_;
  Device device_;
  int64_t max_tokens_ = 0;
  SequenceState::Place place_ = SequenceState::Place::host;
  std::unique_ptr<BlockPool> pool_;
  std::unique_ptr<Model> model_;
};

}  // namespace gannet

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/error.h"
#include "cli/command.h"
#include "server/model_session.h"

namespace gannet::cli {

// What serve, chat and generate are told of the engine.
struct ModelOptions {
  std::string device = "cpu";
  int64_t threads = 0;
  std::optional<int64_t> max_model_len;
  bool swa_bounded_replay = true;
  std::string activations = "bf16";

  // Of serve alone. The defaults are the engine's.
  int64_t max_num_seqs = EngineOptions().max_num_seqs;
  int64_t max_num_batched_tokens = 0;  // as many as suit the device
  int64_t long_prefill_token_threshold = EngineOptions().long_prefill_token_threshold;
  int64_t max_waiting = EngineOptions().max_waiting;
  int64_t kv_cache_tokens = EngineOptions().kv_cache_tokens;
  bool enable_prefix_caching = EngineOptions().enable_prefix_caching;
};

// `options` must outlive run().
void add_model_options(Command& command, ModelOptions& options);

void add_scheduler_options(Command& command, ModelOptions& options);

// The engine's options, checked against the model.
Result<EngineOptions> engine_options(const ModelOptions& options, const Config& config);

// Reads the model and opens it.
Result<server::ModelSession> open_session(const std::string& model, const ModelOptions& options);

// Refuses text that is not UTF-8. `name` stands for it in messages.
Status check_utf8(std::string_view text, std::string_view name);

}  // namespace gannet::cli

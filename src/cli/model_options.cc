#include "cli/model_options.h"

#include <utility>

#include "text/utf8.h"

namespace gannet::cli {
namespace {

constexpr int64_t kGpuBatchedTokens = 4096;

}  // namespace

void add_model_options(Command& command, ModelOptions& options) {
  command.choice("--device", options.device, {"cpu", "cuda"}, "Where the model runs: the processor, or the first GPU");
  command.option("--threads", options.threads, 0, 1024, "CPU threads; 0: one for each core that this process may use");
  command.option("--max-model-len", options.max_model_len, 2, INT32_MAX,
                 "Longest prompt and answer together, in tokens; without it the model's own limit");
  command.on_off("swa-bounded-replay", options.swa_bounded_replay,
                 "Run decoder layers on the last window of a prompt only");
  command.choice("--activations", options.activations, {"bf16", "fp32"}, "Round activations to bf16, or keep fp32");
}

void add_scheduler_options(Command& command, ModelOptions& options) {
  command.option("--max-num-seqs", options.max_num_seqs, 1, 65'536, "Requests that run at once; others wait");
  command.option("--max-num-batched-tokens", options.max_num_batched_tokens, 0, 1'000'000,
                 "Tokens of one step, of prompts and answers together; 0: 512 on the processor, 4096 on a GPU");
  command.option("--long-prefill-token-threshold", options.long_prefill_token_threshold, 0, INT32_MAX,
                 "Prompts longer than that leave room for shorter ones; 0: --max-num-batched-tokens");
  command.option("--max-waiting", options.max_waiting, 0, 1'000'000, "Requests that may wait; more are refused");
  command.option("--kv-cache-tokens", options.kv_cache_tokens, 0, int64_t{1} << 40,
                 "Tokens whose KV fits; 0: four longest requests, at most a quarter of the memory");
  command.on_off("enable-prefix-caching", options.enable_prefix_caching,
                 "Keep the KV of finished requests for prompts that begin the same");
}

Result<EngineOptions> engine_options(const ModelOptions& options, const Config& config) {
  if (options.max_model_len.value_or(0) > config.max_position_embeddings) {
    return invalid_input("--max-model-len is {}; the model's own limit is {}", *options.max_model_len,
                         config.max_position_embeddings);
  }
  const bool cuda = options.device == "cuda";
  const int64_t batched_tokens = options.max_num_batched_tokens > 0 ? options.max_num_batched_tokens
                                 : cuda                             ? kGpuBatchedTokens
                                                                    : EngineOptions().max_num_batched_tokens;
  if (options.max_num_seqs > batched_tokens) {
    return invalid_input(
        "--max-num-seqs is {}; it must be at most --max-num-batched-tokens, {}, so that every request gets a row",
        options.max_num_seqs, batched_tokens);
  }
  const int64_t longest = options.max_model_len.value_or(config.max_position_embeddings);
  if (options.kv_cache_tokens > 0 && options.kv_cache_tokens < longest) {
    return invalid_input(
        "--kv-cache-tokens is {}; it must be 0 or hold one longest request, {} tokens (--max-model-len)",
        options.kv_cache_tokens, longest);
  }
  EngineOptions engine;
  engine.threads = static_cast<int>(options.threads);
  engine.cuda = cuda;
  engine.bf16_activations = options.activations == "bf16";
  engine.swa_bounded_replay = options.swa_bounded_replay;
  engine.max_model_len = options.max_model_len.value_or(0);
  engine.enable_prefix_caching = options.enable_prefix_caching;
  engine.max_num_batched_tokens = batched_tokens;
  engine.max_num_seqs = options.max_num_seqs;
  engine.long_prefill_token_threshold = options.long_prefill_token_threshold;
  engine.max_waiting = options.max_waiting;
  engine.kv_cache_tokens = options.kv_cache_tokens;
  return engine;
}

Result<server::ModelSession> open_session(const std::string& model, const ModelOptions& options) {
  GANNET_TRY(server::ModelFacts facts, server::read_model(model));
  GANNET_TRY(EngineOptions engine, engine_options(options, facts.config));
  return server::open_model(std::move(facts), std::move(engine));
}

Status check_utf8(std::string_view text, std::string_view name) {
  const size_t valid = text::valid_utf8_length(text);
  if (valid == text.size()) return {};
  return invalid_input("{} is not UTF-8: byte {} is 0x{:02x}", name, valid, static_cast<unsigned char>(text[valid]));
}

}  // namespace gannet::cli

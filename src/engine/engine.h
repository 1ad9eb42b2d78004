#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint/config.h"

// The engine: token ids in, token ids out. Nothing here knows of text, JSON or HTTP.
namespace gannet {

struct EngineOptions {
  std::filesystem::path model;       // checkpoint directory
  int threads = 0;                   // 0: one per processor this process may use
  bool bf16_activations = true;      // false: fp32, for comparison with the oracle
  bool quantize_activations = true;  // Q8 in front of FP8 and FP4 linears
  bool swa_bounded_replay = true;    // decoder layers run on the last `sliding_window` prompt rows only
  int64_t max_model_len = 0;         // longest prompt + answer in tokens; 0: the config's max_position_embeddings
  int64_t prefill_chunk = 512;       // prompt rows a forward pass
  // Engram's compressed id of each token id, [vocab_size]; may stay empty when the model has no Engram layer.
  std::vector<int32_t> engram_token_map = {};
};

// How the next token is chosen. Temperature 0 takes the largest logit (the lowest id of equal ones).
struct SamplingParams {
  double temperature = 1;
  double top_p = 1;                    // (0, 1]
  int64_t top_k = 0;                   // 0: off
  double min_p = 0;                    // [0, 1]
  std::optional<uint64_t> seed = {};   // without one, a random seed
  int64_t max_tokens = 0;              // 0: as many as the context holds
  int64_t min_tokens = 0;              // no stop id before that many
  std::vector<int32_t> stop_ids = {};  // ends the answer; the id itself is still reported
  int logprobs = -1;                   // -1: none; n: of the chosen token and the n likeliest ones
};

enum class FinishReason { stop, length, cancelled };

struct TokenLogprob {
  int32_t id = 0;
  float logprob = 0;
};

// One generated token. `finish` is set on the last one.
struct Token {
  int32_t id = 0;
  std::optional<TokenLogprob> logprob;
  std::vector<TokenLogprob> top_logprobs;  // likeliest first
  std::optional<FinishReason> finish;
};

struct Request {
  std::vector<int32_t> prompt;
  SamplingParams sampling = {};
  // Called on the engine's thread, once per token in order; must be quick. A request that was cancelled, or that failed
  // after it was accepted, ends with on_end alone.
  std::function<void(const Token&)> on_token = {};
  // Called once, after the last token: the reason the answer ended, or the error that ended it.
  std::function<void(Result<FinishReason>)> on_end = {};
};

using RequestId = uint64_t;

// An interface, so that the server can be tested with an engine that answers from a script.
class Engine {
 public:
  virtual ~Engine() = default;  // cancels what is running and waits for it

  virtual const Config& config() const = 0;
  virtual int64_t max_model_len() const = 0;
  // Requests accepted and not yet ended.
  virtual int64_t unfinished() const = 0;

  // Checks and queues a request. invalid_input: an empty or too long prompt, an id outside the vocabulary, a sampling
  // value out of range; each names the field. Callable from any thread.
  virtual Result<RequestId> submit(Request request) = 0;
  // Ends a request as soon as the running step is over; unknown ids are ignored. Callable from any thread.
  virtual void cancel(RequestId id) = 0;
};

// Loads the model and starts the engine's thread.
Result<std::unique_ptr<Engine>> create_engine(EngineOptions options);

}  // namespace gannet

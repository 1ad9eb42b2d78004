#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "checkpoint/config.h"
#include "engine/shared_list.h"
#include "engine/stats.h"
#include "engine/token_constraint.h"

// The engine: token ids in, token ids out. Nothing here knows of text, JSON or HTTP.
namespace gannet {

struct EngineOptions {
  std::filesystem::path model;       // checkpoint directory
  int threads = 0;                   // 0: one per processor this process may use
  bool cuda = false;                 // run the model on the first GPU (docs/gpu.md)
  bool bf16_activations = true;      // false: fp32, for comparison with the oracle
  bool quantize_activations = true;  // Q8 in front of FP8 and FP4 linears
  bool swa_bounded_replay = true;    // replay windows instead of keeping them (docs/serving.md)
  bool enable_prefix_caching = true;
  int64_t max_model_len = 0;             // longest prompt + answer in tokens; 0: the config's max_position_embeddings
  int64_t max_num_batched_tokens = 512;  // rows of one step, decodes and prompt chunks together
  int64_t max_num_seqs = 64;             // requests that run at once; the others wait
  int64_t long_prefill_token_threshold = 0;  // longer prompts leave room for shorter ones; 0: max_num_batched_tokens
  int64_t max_waiting = 512;                 // requests that wait; more are refused as overloaded
  int64_t kv_cache_tokens = 0;  // room for global KV; 0: four longest sequences, and at most 1/4 of the host's memory
  // Engram's compressed id of each token id, [vocab_size]; may stay empty when the model has no Engram layer.
  std::vector<int32_t> engram_token_map = {};
  std::vector<int32_t> never_sampled = {};  // ids that no answer may hold, e.g. image placeholders
};

// How the next token is chosen. Temperature 0 takes the largest logit (the lowest id of equal ones). The order of
// things: allowed ids and constraint, bias, penalties, temperature, top_k, top_p, min_p.
struct SamplingParams {
  double temperature = 1;
  double top_p = 1;                   // (0, 1]
  int64_t top_k = 0;                  // 0: off
  double min_p = 0;                   // [0, 1]
  double repetition_penalty = 1;      // > 0; divides (multiplies negative) logits of ids in prompt or answer
  double presence_penalty = 0;        // [-2, 2]; taken from ids that the answer holds
  double frequency_penalty = 0;       // [-2, 2]; taken for each time the answer holds the id
  std::optional<uint64_t> seed = {};  // without one, a random seed
  int64_t max_tokens = 0;             // 0: as many as the context holds
  int64_t min_tokens = 0;             // no stop id before that many
  SharedList<int32_t> stop_ids = {};  // ends the answer; the id itself is still reported
  SharedList<std::pair<int32_t, float>> logit_bias = {};  // added to the logits of these ids
  SharedList<int32_t> allowed_ids = {};                   // nothing else is chosen; empty: everything may be
  SharedList<std::vector<int32_t>> bad_words = {};        // sequences of ids that the answer must not hold
  int logprobs = -1;         // -1: none; n: of the chosen token and the n likeliest ones, before all of the above
  int prompt_logprobs = -1;  // the same for each token of the prompt but the first; runs the whole model on all of it
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

// The prompt's tokens, when prompt_logprobs asks for them; the first one has no log-probability.
using PromptLogprobs = std::vector<Token>;

struct Request {
  SharedList<int32_t> prompt;  // of several requests it is held once
  SamplingParams sampling = {};
  int64_t priority = 0;                           // lower ones are served first; of equal ones the earlier
  std::string cache_salt = {};                    // cached prefixes are shared among equal salts only
  std::chrono::milliseconds timeout{0};           // ends with `timed_out` after that long; 0: never
  std::shared_ptr<TokenConstraint> constraint{};  // null: none

  // All of these are called on the engine's thread and must be quick. A request that was cancelled, or that failed
  // after it was accepted, ends with on_end alone.

  // Once, when the request gets its first rows: tokens of the prompt whose KV was cached.
  std::function<void(int64_t cached_tokens)> on_start = {};
  // Once, in front of the first token, if prompt_logprobs was asked for.
  std::function<void(PromptLogprobs)> on_prompt = {};
  // Once per token, in order.
  std::function<void(const Token&)> on_token = {};
  // Once, after the last token: the reason the answer ended, or the error that ended it.
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
  // value out of range; each names the field. overloaded: max_waiting requests wait already. Callable from any thread.
  virtual Result<RequestId> submit(Request request) = 0;
  // Ends a request as soon as the running step is over; unknown ids are ignored. Callable from any thread.
  virtual void cancel(RequestId id) = 0;
  // The same for a request whose answer is complete as it is, e.g. behind a stop string: it counts as stopped.
  virtual void stop(RequestId id) { cancel(id); }

  // Counters since the start, and what is so now. Callable from any thread.
  virtual EngineStats stats() const = 0;
  // Forgets all cached prefixes; running requests keep what they hold. Callable from any thread.
  virtual void reset_prefix_cache() = 0;
  // An error once the engine cannot run any more, e.g. after the device failed. Callable from any thread.
  virtual Status health() const = 0;
};

// Loads the model and starts the engine's thread.
Result<std::unique_ptr<Engine>> create_engine(EngineOptions options);

}  // namespace gannet

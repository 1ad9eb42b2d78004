#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "cache/block_hash.h"
#include "cache/block_pool.h"
#include "engine/engine.h"
#include "engine/replay_plan.h"
#include "engine/sampler.h"
#include "engine/sequence_slots.h"
#include "engine/token_sequence.h"

// A request on its way through the engine, as a state that owns what it holds: leaving a state, however it happens,
// gives everything back.
namespace gannet {

// What a request holds while its KV is in the pool.
struct Residence {
  Slot slot;
  BlockTable blocks;
  ReplayPlan replay;
  int64_t next = 0;                // position of the next row to be planned
  int64_t published = 0;           // leading blocks that others can find
  std::optional<int32_t> windows;  // snapshot to begin with (WindowStore)
  bool begun = false;              // its first rows have been planned
};

struct Waiting {};
// For global KV that comes from elsewhere into its blocks.
struct WaitingForKv {
  Residence residence;
  int64_t tokens = 0;    // that will have come
  bool windows = false;  // the windows come along
  bool arrived = false;
};
struct Prefilling {
  Residence residence;
};
// All rows of the prompt have been planned.
struct Decoding {
  Residence residence;
};
struct Finished {
  Result<FinishReason> outcome;
};
using RequestState = std::variant<Waiting, WaitingForKv, Prefilling, Decoding, Finished>;

// Why a request was not let in when it was last tried: it need not be tried again before that has changed.
struct Obstacle {
  int64_t free_blocks = 0;        // it needs so many,
  size_t known_blocks = 0;        // unless more of its first blocks than these are cached
  RequestId forerunner = 0;       // computes blocks that it shares; 0: none
  int64_t forerunner_blocks = 0;  // that it waits for
};

struct LiveRequest {
  using Clock = std::chrono::steady_clock;

  LiveRequest(RequestId id, Request request, int64_t max_tokens, std::span<const int32_t> never_sampled);

  RequestId id;
  Request request;
  int64_t prompt_tokens;
  int64_t max_tokens;    // of the answer
  TokenSequence tokens;  // the prompt, then the answer
  BlockHash root;        // what the first block's hash is chained to
  std::vector<BlockHash> hashes;
  Sampler sampler;
  RequestState state = Waiting{};

  int64_t pending_samples = 0;           // tokens that planned steps will add
  uint64_t planned_in = 0;               // number of the last step that has rows of it
  bool hand_over = false;                // its KV goes to another engine: windows are rebuilt as that one will see them
  bool source_asked = false;             // whether KV from elsewhere was looked for
  std::optional<int64_t> cached_tokens;  // of the prompt, when it first got rows
  bool announced = false;                // on_start was called
  PromptLogprobs prompt_logprobs;
  Obstacle obstacle;

  Clock::time_point arrived = Clock::now();
  std::optional<Clock::time_point> started;      // first rows planned
  std::optional<Clock::time_point> first_token;  // sampled
  Clock::time_point last_token;

  int64_t length() const { return static_cast<int64_t>(tokens.size()); }
  int64_t generated() const { return length() - prompt_tokens; }
  // Until the prompt is through for the first time.
  bool wants_prompt_logprobs() const { return request.sampling.prompt_logprobs >= 0 && generated() == 0; }
  // Whether it gets a row of its next token; not before the prompt is through, nor behind its last token.
  bool can_decode() const;
  // What it holds, or null.
  Residence* residence();
  // Appends a sampled token, and says whether it is the last.
  std::optional<FinishReason> append(int32_t token);
};

// Earlier ones are served first.
struct ServedBefore {
  bool operator()(const LiveRequest* a, const LiveRequest* b) const {
    return a->request.priority != b->request.priority ? a->request.priority < b->request.priority : a->id < b->id;
  }
};

}  // namespace gannet

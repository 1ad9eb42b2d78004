#pragma once

#include <cstdint>

#include "base/histogram.h"

namespace gannet {

// What an engine has done since its start, and what it is at now. Times are seconds.
struct EngineStats {
  EngineStats();

  // Now.
  int64_t running = 0;
  int64_t waiting = 0;   // deferred ones included
  int64_t deferred = 0;  // waiting for a prefix that another request is computing, or for KV from elsewhere
  int64_t block_tokens = 0;
  int64_t blocks = 0;         // in the pool
  int64_t blocks_held = 0;    // by requests, shared ones counted once
  int64_t blocks_cached = 0;  // by no request, but found again by their content

  // Counted once per request, when it first gets rows.
  int64_t prompt_tokens = 0;
  int64_t prompt_tokens_cached = 0;  // found in the prefix cache
  int64_t prefix_cache_queries = 0;  // tokens looked up
  int64_t prefix_cache_hits = 0;     // tokens found; equals prompt_tokens_cached

  int64_t steps = 0;
  int64_t encoder_rows = 0;   // rows run through the layers up to the seam
  int64_t decoder_rows = 0;   // rows run through the layers behind it
  int64_t replayed_rows = 0;  // rows whose KV was cached, run again for their windows
  int64_t generation_tokens = 0;
  int64_t preemptions = 0;
  int64_t finished_stop = 0;
  int64_t finished_length = 0;
  int64_t finished_cancelled = 0;
  int64_t finished_error = 0;  // deadlines included

  Histogram time_to_first_token;
  Histogram inter_token_latency;
  Histogram time_per_output_token;  // mean of each request
  Histogram e2e_latency;
  Histogram queue_time;
  Histogram prefill_time;
  Histogram decode_time;
  Histogram inference_time;
  Histogram request_prompt_tokens;
  Histogram request_generation_tokens;
  Histogram request_max_tokens;
  Histogram request_prefill_kv_computed_tokens;
  Histogram iteration_tokens;
};

}  // namespace gannet

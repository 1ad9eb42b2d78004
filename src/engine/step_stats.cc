#include "engine/step_stats.h"

#include <algorithm>

namespace gannet {
namespace {

using Time = LiveRequest::Clock::time_point;

double seconds(Time from, Time to) {
  return std::chrono::duration<double>(to - from).count();
}

double as_double(int64_t count) {
  return static_cast<double>(count);
}

}  // namespace

void count_start(EngineStats& stats, const LiveRequest& request) {
  stats.prompt_tokens += request.prompt_tokens;
  stats.prompt_tokens_cached += *request.cached_tokens;
  stats.prefix_cache_queries += request.prompt_tokens;
  stats.prefix_cache_hits += *request.cached_tokens;
  stats.queue_time.observe(seconds(request.arrived, *request.started));
  stats.request_prompt_tokens.observe(as_double(request.prompt_tokens));
  stats.request_max_tokens.observe(as_double(request.max_tokens));
  stats.request_prefill_kv_computed_tokens.observe(as_double(request.prompt_tokens - *request.cached_tokens));
}

void count_token(EngineStats& stats, LiveRequest& request, Time now) {
  ++stats.generation_tokens;
  if (!request.first_token) {
    request.first_token = now;
    stats.time_to_first_token.observe(seconds(request.arrived, now));
    stats.prefill_time.observe(seconds(*request.started, now));
  } else {
    stats.inter_token_latency.observe(seconds(request.last_token, now));
  }
  request.last_token = now;
}

void count_end(EngineStats& stats, const LiveRequest& request, Time now) {
  const auto& outcome = std::get<Finished>(request.state).outcome;
  if (!outcome) {
    ++stats.finished_error;
  } else if (*outcome == FinishReason::cancelled) {
    ++stats.finished_cancelled;
  } else {
    ++(*outcome == FinishReason::stop ? stats.finished_stop : stats.finished_length);
  }
  stats.e2e_latency.observe(seconds(request.arrived, now));
  if (request.started) stats.inference_time.observe(seconds(*request.started, now));
  if (!request.first_token) return;
  stats.decode_time.observe(seconds(*request.first_token, now));
  stats.request_generation_tokens.observe(as_double(request.generated()));
  if (request.generated() > 1) {
    const double each = seconds(*request.first_token, request.last_token) / as_double(request.generated() - 1);
    stats.time_per_output_token.observe(each);
  }
}

void count_step(EngineStats& stats, const StepPlan& step, const Scheduler& scheduler, const BlockPool& pool) {
  if (!step.parts.empty()) {
    ++stats.steps;
    stats.iteration_tokens.observe(as_double(step.rows()));
  }
  for (const StepPart& part : step.parts) {
    stats.encoder_rows += part.rows;
    stats.decoder_rows += std::clamp<int64_t>(part.end() - part.decoder_from, 0, part.rows);
    stats.replayed_rows += std::clamp<int64_t>(part.cached - part.start, 0, part.rows);
  }
  stats.running = scheduler.running();
  stats.waiting = scheduler.waiting();
  stats.deferred = scheduler.counts().deferred;
  stats.preemptions = scheduler.counts().preemptions;
  stats.block_tokens = pool.layout().tokens;
  stats.blocks = pool.blocks();
  stats.blocks_held = pool.blocks() - pool.free_blocks();
  stats.blocks_cached = pool.cached_blocks();
}

}  // namespace gannet

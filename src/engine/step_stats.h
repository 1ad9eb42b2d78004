#pragma once

#include "cache/block_pool.h"
#include "engine/live_request.h"
#include "engine/scheduler.h"
#include "engine/stats.h"
#include "engine/step.h"

// How the engine's work becomes its statistics.
namespace gannet {

// A request that got its first rows.
void count_start(EngineStats& stats, const LiveRequest& request);
// A token of it, delivered at `now`; notes the times in the request.
void count_token(EngineStats& stats, LiveRequest& request, LiveRequest::Clock::time_point now);
void count_end(EngineStats& stats, const LiveRequest& request, LiveRequest::Clock::time_point now);
// A step that ran (or an empty one), and where scheduler and pool are now.
void count_step(EngineStats& stats, const StepPlan& step, const Scheduler& scheduler, const BlockPool& pool);

}  // namespace gannet

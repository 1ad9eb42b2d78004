#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/scheduler.h"

namespace gannet {

// For tests: a scheduler with a pool of blocks without memory, and steps whose tokens come from a rule instead of a
// model.
class SchedulerHarness {
 public:
  static constexpr int64_t kBlock = 16;
  static constexpr int64_t kWindow = 32;

  struct Setup {
    int64_t blocks = 100;
    SchedulerOptions options = {
        .max_num_batched_tokens = 1000, .max_num_seqs = 8, .replay = {.bounded = true, .window = kWindow}};
    KvSource* source = nullptr;
    int64_t snapshots = 0;
  };

  SchedulerHarness() : SchedulerHarness(Setup()) {}
  explicit SchedulerHarness(const Setup& setup)
      : pool({.tokens = kBlock, .bytes = 0}, setup.blocks),
        windows(1, setup.snapshots),
        scheduler(setup.options, pool, &windows, setup.source) {}

  // Ids that begin at `first`, so that prompts of one start share their prefix.
  static std::vector<int32_t> prompt(int64_t length, int32_t first = 1000) {
    std::vector<int32_t> ids(length);
    std::iota(ids.begin(), ids.end(), first);
    return ids;
  }

  LiveRequest& add(std::vector<int32_t> ids, int64_t max_tokens = 5, int64_t priority = 0) {
    Request request;
    request.prompt = std::move(ids);
    request.priority = priority;
    return add(std::move(request), max_tokens);
  }
  LiveRequest& add(Request request, int64_t max_tokens) {
    const RequestId id = ++last_id_;
    auto live = std::make_unique<LiveRequest>(id, std::move(request), max_tokens, std::span<const int32_t>());
    live->root = scheduler.hasher().root(live->request.cache_salt);
    scheduler.add(std::move(live));
    return *scheduler.find(id);
  }

  // Plans and mends a step while nothing runs.
  StepPlan plan() {
    StepPlan step = scheduler.plan();
    scheduler.settle(step);
    return step;
  }
  // As if the step had run: a request's n-th token is n.
  void run(const StepPlan& step) {
    StepResult result;
    for (const StepPart& part : step.parts) {
      auto& came = result.parts.emplace_back();
      if (!part.samples) continue;
      came.token.emplace();
      came.token->id = static_cast<int32_t>(part.end() - part.request->prompt_tokens);
    }
    scheduler.apply(step, result);
  }
  StepPlan step() {
    StepPlan planned = plan();
    run(planned);
    return planned;
  }
  // Until nothing is left to do.
  void drain() {
    for (int steps = 0; scheduler.unfinished() > 0; ++steps) {
      ASSERT_LT(steps, 100000) << "no progress";
      step();
      collect();
    }
  }
  void collect() {
    for (auto& request : scheduler.take_ended()) ended.push_back(std::move(request));
  }
  bool empty() const {
    return pool.free_blocks() == pool.blocks() && scheduler.free_slots() == scheduler.options().max_num_seqs &&
           scheduler.running() == 0 && scheduler.waiting() == 0;
  }

  BlockPool pool;
  WindowStore windows;
  Scheduler scheduler;
  std::vector<std::unique_ptr<LiveRequest>> ended;

 private:
  RequestId last_id_ = 0;
};

// The part of a request in a step, or null.
inline const StepPart* part_of(const StepPlan& step, const LiveRequest& request) {
  for (const StepPart& part : step.parts) {
    if (part.request == &request) return &part;
  }
  return nullptr;
}

inline int64_t rows_of(const StepPlan& step, const LiveRequest& request) {
  const StepPart* part = part_of(step, request);
  return part == nullptr ? 0 : part->rows;
}

}  // namespace gannet

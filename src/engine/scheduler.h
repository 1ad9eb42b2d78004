#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

#include "cache/block_hash.h"
#include "cache/block_pool.h"
#include "cache/window_store.h"
#include "engine/kv_source.h"
#include "engine/live_request.h"
#include "engine/step.h"

namespace gannet {

struct SchedulerOptions {
  int64_t max_num_batched_tokens = 512;      // rows of a step
  int64_t max_num_seqs = 64;                 // requests with rows or KV; at most max_num_batched_tokens
  int64_t long_prefill_token_threshold = 0;  // longer prompts leave room for shorter ones; 0: max_num_batched_tokens
  int64_t max_prompt_logprob_rows = 64;      // rows of a step whose logits are all wanted
  bool prefix_caching = true;
  ReplayRule replay = {};
};

// Decides which rows run next. Knows nothing of the model, threads or callbacks.
//
// A step is planned while the one before it runs: plan() counts on the tokens that the running step will add, takes
// blocks and slots, and gives none back. When the running step is through, apply() takes its tokens, and settle() mends
// the plan that was made meanwhile: requests that have ended lose their rows, and whoever found no block takes those of
// the request that is served last. So the order is plan, settle, [run | plan], apply, settle, [run | plan], ...
class Scheduler {
 public:
  // `windows`: snapshots for exact hits; only used without bounded replay. `source` may be null. All outlive the
  // object.
  Scheduler(const SchedulerOptions& options, BlockPool& pool, WindowStore* windows, KvSource* source);

  BlockHasher& hasher() { return hasher_; }
  // A request with state Waiting; its `root` and the hashes of its prompt may be set already (hasher()).
  void add(std::unique_ptr<LiveRequest> request);
  LiveRequest* find(RequestId id);
  std::vector<RequestId> ids() const;  // of all that have not ended
  // Ends a request; nothing may run. What it held is free.
  void finish(LiveRequest& request, Result<FinishReason> outcome);
  // The KV that a source was to bring is there, or will not come.
  void kv_arrived(RequestId id, bool complete);
  void forget_prefixes();

  StepPlan plan();
  void settle(StepPlan& step);
  // Takes the tokens of a step that ran; requests that end with them are Finished, and the token says why. What came
  // for requests that have ended meanwhile is dropped from the result.
  void apply(const StepPlan& step, StepResult& result);
  // A step was lost: the requests in it end with that error.
  void fail(const StepPlan& step, const Error& error);
  // Requests that have ended since the last call.
  std::vector<std::unique_ptr<LiveRequest>> take_ended();

  struct Counts {
    int64_t preemptions = 0;
    int64_t deferred = 0;  // now: waiting for what another request computes, or for a source
    int64_t lookups = 0;   // of a request's prefix in the cache
  };
  const Counts& counts() const { return counts_; }
  int64_t running() const { return static_cast<int64_t>(running_.size()); }
  int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t unfinished() const { return static_cast<int64_t>(requests_.size()); }
  int64_t free_slots() const { return slots_.free(); }
  const SchedulerOptions& options() const { return options_; }

 private:
  // Rows that a prompt may get in the step being planned.
  struct Grant {
    LiveRequest* request = nullptr;
    int64_t remaining = 0;  // rows it can take
    int64_t rows = 0;       // rows it gets
    bool is_long = false;
  };
  struct Hit {
    int64_t known = 0;  // leading blocks that are there, whether or not they can be used
    int64_t tokens = 0;
    int64_t free_blocks = 0;  // that sharing it takes
    std::optional<int32_t> windows;
  };

  void plan_prefills(StepPlan& step);
  void admit(std::vector<Grant>& grants);
  void distribute(std::vector<Grant>& grants) const;
  Grant grant_for(LiveRequest& request) const;

  enum class Admission { admitted, deferred, no_room };
  Admission try_admit(LiveRequest& request);
  Hit find_hit(LiveRequest& request);
  bool find_forerunner(LiveRequest& request, int64_t hit_blocks) const;
  bool is_behind(LiveRequest& request);
  bool lacks_blocks(const LiveRequest& request) const;
  bool has_room(LiveRequest& request, const Hit& hit) const;
  bool ask_source(LiveRequest& request, const Hit& hit);
  Residence make_residence(const LiveRequest& request, const Hit& hit);
  void enter_prefill(LiveRequest& request, Residence residence);

  bool add_decode(StepPlan& step, LiveRequest& request);
  bool add_chunk(StepPlan& step, LiveRequest& request, int64_t rows);
  int64_t chunk_rows(LiveRequest& request, int64_t rows) const;
  void end_prefill(LiveRequest& request, StepPart& part);
  StepPart& add_part(StepPlan& step, LiveRequest& request, int64_t rows);

  void drop_ended(StepPlan& step);
  void give_back(const StepPart& part);
  void make_progress(StepPlan& step);
  bool make_room(StepPlan& step, LiveRequest& request, int64_t tokens);
  void preempt(StepPlan& step, LiveRequest& request);
  void publish(LiveRequest& request, int64_t computed);
  void keep_snapshot(const LiveRequest& request, StepPart& part);

  SchedulerOptions options_;
  BlockPool& pool_;
  WindowStore* windows_;
  KvSource* source_;
  BlockHasher hasher_;
  SlotPool slots_;
  std::unordered_map<RequestId, std::unique_ptr<LiveRequest>> requests_;
  std::vector<LiveRequest*> running_;             // in order of service
  std::set<LiveRequest*, ServedBefore> waiting_;  // Waiting or WaitingForKv
  std::vector<std::unique_ptr<LiveRequest>> ended_;
  uint64_t step_number_ = 0;
  int64_t budget_ = 0;  // rows left in the step being planned
  int64_t logprob_rows_ = 0;
  bool starved_ = false;  // somebody found no block
  Counts counts_;
};

}  // namespace gannet

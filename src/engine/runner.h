#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "cache/sequence_state.h"
#include "cache/window_store.h"
#include "engine/loaded_model.h"
#include "engine/step.h"
#include "engine/token_constraint.h"

namespace gannet {

// Fills masks on a thread of its own, beside the forward pass: some take milliseconds.
class MaskFiller {
 public:
  struct Job {
    TokenConstraint* constraint = nullptr;
    std::span<uint32_t> mask;
    std::string* error = nullptr;  // set if it failed
  };
  MaskFiller();
  ~MaskFiller();
  MaskFiller(const MaskFiller&) = delete;
  MaskFiller& operator=(const MaskFiller&) = delete;

  void start(std::vector<Job> jobs);
  void wait();

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Job> jobs_;
  bool busy_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

// Runs steps on a thread of its own, one at a time: rows into the model, logits into tokens. Owns the sequence states,
// one for each slot of the scheduler.
class Runner {
 public:
  // `logit_rows`: the most rows of a step whose logits are wanted. `windows` may be null.
  Runner(LoadedModel& model, int64_t slots, int64_t logit_rows, WindowStore* windows);
  ~Runner();
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // Begins a step, which must stay as it is until wait() has returned.
  void launch(const StepPlan& step);
  // The step's tokens, or why it was lost. Call once after each launch.
  Result<StepResult> wait();
  // The device has failed: no step will ever run again.
  bool device_lost() const { return device_lost_; }

 private:
  void work();
  StepResult run(const StepPlan& step);
  void make_batch(const StepPlan& step);
  void begin_sequence(const StepPart& part);
  void start_masks(const StepPlan& step);
  void keep_windows(const StepPlan& step);
  StepResult sample(const StepPlan& step);
  bool chooses_among_candidates(const StepPart& part) const;
  void sample_part(const StepPart& part, int64_t first_logits, std::span<const uint32_t> mask, StepResult::Part& out);
  void sample_guarded(const StepPlan& step, int64_t index, int64_t first_logits, StepResult::Part& out);
  int64_t logit_rows(const StepPart& part) const;

  LoadedModel& model_;
  WindowStore* windows_;
  std::vector<SequenceState> states_;
  Batch batch_;
  std::vector<float> logits_;                 // [logit_rows, vocab_size]
  std::vector<RowCandidates> candidates_;     // [logit_rows]
  std::vector<std::vector<uint32_t>> masks_;  // of each part; empty: none
  std::vector<std::string> mask_errors_;      // of each part; empty: none
  MaskFiller mask_filler_;

  std::mutex mutex_;
  std::condition_variable changed_;
  const StepPlan* step_ = nullptr;  // running, or waiting to be
  std::optional<Result<StepResult>> result_;
  bool stopping_ = false;
  std::atomic<bool> device_lost_ = false;
  std::thread thread_;  // last: it uses everything above
};

}  // namespace gannet

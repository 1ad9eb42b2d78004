#include "engine/scheduler.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"

namespace gannet {

Scheduler::Scheduler(const SchedulerOptions& options, BlockPool& pool, WindowStore* windows, KvSource* source)
    : options_(options),
      pool_(pool),
      windows_(options.replay.bounded ? nullptr : windows),
      source_(source),
      hasher_(pool.layout().tokens),
      slots_(options.max_num_seqs) {
  GANNET_CHECK(options_.max_num_seqs <= options_.max_num_batched_tokens);
  if (options_.long_prefill_token_threshold == 0) {
    options_.long_prefill_token_threshold = options_.max_num_batched_tokens;
  }
}

void Scheduler::add(std::unique_ptr<LiveRequest> request) {
  LiveRequest* added = request.get();
  requests_.emplace(added->id, std::move(request));
  waiting_.insert(added);
}

LiveRequest* Scheduler::find(RequestId id) {
  const auto found = requests_.find(id);
  return found == requests_.end() ? nullptr : found->second.get();
}

std::vector<RequestId> Scheduler::ids() const {
  std::vector<RequestId> ids;
  for (const auto& [id, request] : requests_) ids.push_back(id);
  return ids;
}

void Scheduler::finish(LiveRequest& request, Result<FinishReason> outcome) {
  if (std::holds_alternative<WaitingForKv>(request.state)) source_->abandon(request.id);
  waiting_.erase(&request);
  std::erase(running_, &request);
  request.state = Finished{std::move(outcome)};
  const auto found = requests_.find(request.id);
  ended_.push_back(std::move(found->second));
  requests_.erase(found);
}

std::vector<std::unique_ptr<LiveRequest>> Scheduler::take_ended() {
  return std::exchange(ended_, {});
}

void Scheduler::forget_prefixes() {
  pool_.forget();
  for (LiveRequest* request : waiting_) request->obstacle = {};
  if (windows_ != nullptr) windows_->forget();
}

StepPlan Scheduler::plan() {
  StepPlan step{.number = ++step_number_, .parts = {}};
  budget_ = options_.max_num_batched_tokens;
  logprob_rows_ = options_.max_prompt_logprob_rows;
  starved_ = false;
  for (LiveRequest* request : running_) {
    if (request->can_decode() && !add_decode(step, *request)) starved_ = true;
  }
  plan_prefills(step);
  return step;
}

void Scheduler::settle(StepPlan& step) {
  drop_ended(step);
  if (starved_ || step.parts.empty()) make_progress(step);
}

// Requests that have ended since the step was planned need no rows.
void Scheduler::drop_ended(StepPlan& step) {
  std::erase_if(step.parts, [this](const StepPart& part) {
    if (!std::holds_alternative<Finished>(part.request->state)) return false;
    give_back(part);
    return true;
  });
}

void Scheduler::give_back(const StepPart& part) {
  budget_ += part.rows;
  if (part.save) windows_->release(*part.save);
}

// Whoever found no block takes those of the request that is served last. A prompt waits for others to end, unless
// nothing would run.
void Scheduler::make_progress(StepPlan& step) {
  const auto in_order = running_;
  for (LiveRequest* request : in_order) {
    if (request->planned_in == step.number || budget_ == 0) continue;
    if (request->can_decode()) {
      if (make_room(step, *request, request->residence()->next + 1)) add_decode(step, *request);
    } else if (std::holds_alternative<Prefilling>(request->state) && step.parts.empty()) {
      if (make_room(step, *request, request->residence()->next + 1)) {
        add_chunk(step, *request, std::min(budget_, grant_for(*request).remaining));
      }
    }
  }
}

// False when the request itself is the one to go.
bool Scheduler::make_room(StepPlan& step, LiveRequest& request, int64_t tokens) {
  while (!request.residence()->blocks.grow(tokens)) {
    LiveRequest& last = *running_.back();
    preempt(step, last);
    if (&last == &request) return false;
  }
  return true;
}

// Back to the queue; what it computed stays in the prefix cache until the blocks are needed.
void Scheduler::preempt(StepPlan& step, LiveRequest& request) {
  std::erase_if(step.parts, [&](const StepPart& part) {
    if (part.request != &request) return false;
    give_back(part);
    return true;
  });
  std::erase(running_, &request);
  request.state = Waiting{};
  request.pending_samples = 0;
  request.obstacle = {};
  if (request.wants_prompt_logprobs()) request.prompt_logprobs.clear();  // else they are complete
  waiting_.insert(&request);
  ++counts_.preemptions;
}

bool Scheduler::add_decode(StepPlan& step, LiveRequest& request) {
  if (budget_ == 0) return true;  // its turn comes: max_num_seqs is no larger than the budget
  if (!request.residence()->blocks.grow(request.residence()->next + 1)) return false;
  StepPart& part = add_part(step, request, 1);
  part.samples = true;
  ++request.pending_samples;
  keep_snapshot(request, part);
  return true;
}

StepPart& Scheduler::add_part(StepPlan& step, LiveRequest& request, int64_t rows) {
  Residence& residence = *request.residence();
  StepPart part{.request = &request,
                .slot = residence.slot.index(),
                .blocks = residence.blocks.ids().data(),
                .start = residence.next,
                .rows = rows,
                .prompt_logprobs = request.wants_prompt_logprobs(),
                .decoder_from = residence.replay.decoder_from,
                .cached = residence.replay.cached};
  if (!std::exchange(residence.begun, true)) {
    part.begin = residence.replay;
    part.restore = residence.windows;
    if (!request.started) request.started = LiveRequest::Clock::now();
  }
  residence.next += rows;
  request.planned_in = step.number;
  budget_ -= rows;
  return step.parts.emplace_back(std::move(part));
}

// A chunk of a prompt, shorter when blocks are short; false when there is none at all.
bool Scheduler::add_chunk(StepPlan& step, LiveRequest& request, int64_t rows) {
  Residence& residence = *request.residence();
  rows = chunk_rows(request, rows);
  if (rows == 0) return false;
  GANNET_CHECK(residence.blocks.grow(residence.next + rows));
  StepPart& part = add_part(step, request, rows);
  if (part.prompt_logprobs) logprob_rows_ -= rows;
  keep_snapshot(request, part);
  if (part.end() == request.length()) end_prefill(request, part);
  return true;
}

int64_t Scheduler::chunk_rows(LiveRequest& request, int64_t rows) const {
  const Residence& residence = *request.residence();
  const int64_t block = pool_.layout().tokens;
  const int64_t room = (static_cast<int64_t>(residence.blocks.ids().size()) + pool_.free_blocks()) * block;
  rows = std::min(rows, room - residence.next);
  if (windows_ == nullptr) return rows;
  // Snapshots are taken at block boundaries, and the prompt's last one must not be passed over.
  const int64_t last = (request.length() - 1) / block * block;
  const int64_t end = residence.next + rows;
  return residence.next < last && end > last ? last - residence.next : rows;
}

// The prompt's last rows have been planned. A request that is handed over runs its last window once more in between.
void Scheduler::end_prefill(LiveRequest& request, StepPart& part) {
  Residence& residence = *request.residence();
  const bool rebuild = request.hand_over && options_.replay.bounded && residence.replay.cached < request.length();
  if (rebuild) {
    residence.replay = plan_handover(options_.replay, request.length());
    residence.next = residence.replay.first;
    residence.begun = false;
    residence.windows.reset();
    return;
  }
  part.samples = true;
  ++request.pending_samples;
  Residence moved = std::move(residence);
  request.state = Decoding{std::move(moved)};
}

// Without bounded replay: windows are kept behind the last whole block of a prompt, behind each block of an answer, and
// now and then on the way through a long prompt.
void Scheduler::keep_snapshot(const LiveRequest& request, StepPart& part) {
  constexpr int64_t kInterval = 4096;
  const int64_t block = pool_.layout().tokens;
  if (windows_ == nullptr || !options_.prefix_caching || part.end() % block != 0) return;
  const bool on_the_way = part.end() / kInterval > part.start / kInterval;
  const bool last = part.end() + block >= request.prompt_tokens;
  if (!on_the_way && !last) return;
  part.save = windows_->take();
}

void Scheduler::apply(const StepPlan& step, StepResult& result) {
  for (size_t i = 0; i < step.parts.size(); ++i) {
    const StepPart& part = step.parts[i];
    LiveRequest& request = *part.request;
    StepResult::Part& came = result.parts[i];
    if (std::holds_alternative<Finished>(request.state)) {  // ended meanwhile
      if (part.save) windows_->release(*part.save);
      came = {};
      continue;
    }
    if (options_.prefix_caching) publish(request, part.end());
    if (part.save) windows_->publish(*part.save, request.hashes[part.end() / pool_.layout().tokens - 1]);
    std::move(came.prompt_logprobs.begin(), came.prompt_logprobs.end(), std::back_inserter(request.prompt_logprobs));
    if (came.error) {
      finish(request, tl::unexpected(*came.error));
      continue;
    }
    if (!part.samples) continue;
    --request.pending_samples;
    came.token->finish = request.append(came.token->id);
    if (came.token->finish) finish(request, *came.token->finish);
  }
}

void Scheduler::fail(const StepPlan& step, const Error& error) {
  for (const StepPart& part : step.parts) {
    if (part.save) windows_->release(*part.save);
    if (!std::holds_alternative<Finished>(part.request->state)) finish(*part.request, tl::unexpected(error));
  }
}

// The blocks that are complete now can be found by others.
void Scheduler::publish(LiveRequest& request, int64_t computed) {
  Residence* residence = request.residence();
  const int64_t whole = computed / pool_.layout().tokens;
  if (residence == nullptr || whole <= residence->published) return;
  hasher_.extend(request.root, request.tokens, request.hashes);
  for (int64_t b = residence->published; b < whole; ++b) {
    pool_.publish(residence->blocks.ids()[b], request.hashes[b]);
  }
  residence->published = whole;
}

}  // namespace gannet

#include "engine/engine.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/memory_limits.h"
#include "engine/loaded_model.h"
#include "engine/runner.h"
#include "engine/scheduler.h"
#include "engine/step_stats.h"

namespace gannet {
namespace {

using Clock = LiveRequest::Clock;

constexpr int64_t kPromptLogprobRows = 64;   // of a step; each needs a row of logits
constexpr int64_t kSnapshotsPerRequest = 4;  // of windows, without bounded replay
constexpr int kLostStepsToBreak = 3;         // in a row: then it is the engine that is at fault, not a request

// One thread plans, delivers tokens and takes new requests; the runner's thread runs steps meanwhile.
class BatchingEngine : public Engine {
 public:
  BatchingEngine(std::unique_ptr<LoadedModel> loaded, EngineOptions options)
      : options_(std::move(options)),
        loaded_(std::move(loaded)),
        windows_(window_state_bytes(loaded_->config()), snapshots()),
        scheduler_(scheduler_options(), loaded_->pool(), &windows_, nullptr),
        runner_(*loaded_, options_.max_num_seqs, options_.max_num_seqs + kPromptLogprobRows, &windows_),
        thread_([this] { serve(); }) {}

  ~BatchingEngine() override {
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

  BatchingEngine(const BatchingEngine&) = delete;
  BatchingEngine& operator=(const BatchingEngine&) = delete;

  const Config& config() const override { return loaded_->config(); }
  int64_t max_model_len() const override { return loaded_->max_tokens(); }
  Status health() const override {
    const std::scoped_lock lock(mutex_);
    if (broken_) return tl::unexpected(*broken_);
    return {};
  }
  int64_t unfinished() const override {
    const std::scoped_lock lock(mutex_);
    return unfinished_;
  }
  EngineStats stats() const override {
    const std::scoped_lock lock(mutex_);
    return stats_;
  }

  Result<RequestId> submit(Request request) override {
    GANNET_TRY_STATUS(check(request));
    const int64_t room = max_model_len() - static_cast<int64_t>(request.prompt.size());
    const int64_t wanted = request.sampling.max_tokens;
    auto live =
        std::make_unique<LiveRequest>(0, std::move(request), wanted > 0 ? wanted : room, options_.never_sampled);
    if (options_.enable_prefix_caching) {
      live->root = scheduler_.hasher().root(live->request.cache_salt);
      scheduler_.hasher().extend(live->root, live->tokens, live->hashes);
    }
    const std::scoped_lock lock(mutex_);
    if (broken_) return tl::unexpected(*broken_);
    const int64_t waiting = stats_.waiting + static_cast<int64_t>(arrived_.size());
    if (waiting >= options_.max_waiting) {
      return tl::unexpected(
          Error{ErrorKind::overloaded,
                fmt::format("the server is busy: {} requests wait already; try again later", waiting)});
    }
    live->id = ++last_id_;
    ++unfinished_;
    arrived_.push_back(std::move(live));
    wake_.notify_all();
    return last_id_;
  }

  void cancel(RequestId id) override {
    const std::scoped_lock lock(mutex_);
    to_end_.emplace_back(id, FinishReason::cancelled);
    wake_.notify_all();
  }

  void stop(RequestId id) override {
    const std::scoped_lock lock(mutex_);
    to_end_.emplace_back(id, FinishReason::stop);
    wake_.notify_all();
  }

  void reset_prefix_cache() override {
    const std::scoped_lock lock(mutex_);
    reset_asked_ = true;
    wake_.notify_all();
  }

 private:
  int64_t snapshots() const { return options_.swa_bounded_replay ? 0 : kSnapshotsPerRequest * options_.max_num_seqs; }

  SchedulerOptions scheduler_options() const {
    return {.max_num_batched_tokens = options_.max_num_batched_tokens,
            .max_num_seqs = options_.max_num_seqs,
            .long_prefill_token_threshold = options_.long_prefill_token_threshold,
            .max_prompt_logprob_rows = std::min(kPromptLogprobRows, options_.max_num_batched_tokens),
            .prefix_caching = options_.enable_prefix_caching,
            .replay = {.bounded = options_.swa_bounded_replay, .window = config().sliding_window}};
  }

  Status check(const Request& request) const {
    const auto length = static_cast<int64_t>(request.prompt.size());
    if (length == 0) return invalid_input("the prompt is empty; it must hold at least one token");
    if (length >= max_model_len()) {
      return invalid_input(
          "this model's maximum context length is {} tokens; the prompt has {} and leaves no room for an answer",
          max_model_len(), length);
    }
    if (request.sampling.max_tokens > max_model_len() - length) {
      return invalid_input(
          "this model's maximum context length is {} tokens; the prompt has {} and max_tokens asks for {} more",
          max_model_len(), length, request.sampling.max_tokens);
    }
    for (size_t i = 0; i < request.prompt.size(); ++i) {
      if (request.prompt[i] < 0 || request.prompt[i] >= config().vocab_size) {
        return invalid_input("the prompt's token {} at position {} is outside the vocabulary of {}", request.prompt[i],
                             i, config().vocab_size);
      }
    }
    return check_sampling(request.sampling, config().vocab_size);
  }

  // The step that runs is delivered while the next one runs already.
  void serve() {
    StepPlan running;
    while (true) {
      if (!wait_for_work(running)) return;
      if (running.parts.empty()) {
        take_mail();
        running = scheduler_.plan();
        scheduler_.settle(running);
        if (running.parts.empty()) {
          deliver(StepPlan(), StepResult());
          continue;
        }
        runner_.launch(running);
        announce(running);
      }
      StepPlan next = scheduler_.plan();
      Result<StepResult> result = runner_.wait();
      take_mail();
      if (result) {
        scheduler_.apply(running, *result);
        lost_steps_ = 0;
      } else {
        lose(running, result.error());
        result = StepResult();
      }
      scheduler_.settle(next);
      std::swap(running, next);
      if (!running.parts.empty()) runner_.launch(running);
      deliver(next, *std::move(result));
      announce(running);
    }
  }

  // Too little memory for one step is its requests' misfortune; when step after step is lost, nobody can be served any
  // more, and whoever watches over the process should know. A lost GPU does not come back at all.
  void lose(const StepPlan& step, const Error& error) {
    spdlog::error("{}", error.message);
    scheduler_.fail(step, error);
    if (++lost_steps_ < kLostStepsToBreak && !runner_.device_lost()) return;
    spdlog::critical("the engine cannot run any more: {}",
                     runner_.device_lost() ? error.message : fmt::format("{} steps in a row were lost", lost_steps_));
    for (const RequestId id : scheduler_.ids()) finish(id, tl::unexpected(error));
    const std::scoped_lock lock(mutex_);
    broken_ = error;
  }

  // False when the engine is to end and nobody is left.
  bool wait_for_work(const StepPlan& running) {
    std::unique_lock lock(mutex_);
    const auto something = [this] { return stopping_ || reset_asked_ || !arrived_.empty() || !to_end_.empty(); };
    if (running.parts.empty() && scheduler_.running() == 0 && scheduler_.waiting() == 0) wake_.wait(lock, something);
    return !stopping_ || scheduler_.unfinished() > 0 || !arrived_.empty() || !running.parts.empty();
  }

  // Nothing runs now: what a request holds may go.
  void take_mail() {
    std::vector<std::unique_ptr<LiveRequest>> arrived;
    std::vector<std::pair<RequestId, FinishReason>> to_end;
    bool reset = false;
    bool stopping = false;
    {
      const std::scoped_lock lock(mutex_);
      arrived.swap(arrived_);
      stats_.waiting += static_cast<int64_t>(arrived.size());
      to_end.swap(to_end_);
      reset = std::exchange(reset_asked_, false);
      stopping = stopping_;
    }
    for (auto& request : arrived) {
      if (request->request.timeout.count() > 0)
        deadlines_.emplace(request->arrived + request->request.timeout, request->id);
      scheduler_.add(std::move(request));
    }
    for (const auto& [id, reason] : to_end) finish(id, reason);
    if (stopping) {
      for (const RequestId id : scheduler_.ids()) finish(id, FinishReason::cancelled);
    }
    expire();
    if (reset) scheduler_.forget_prefixes();
  }

  void finish(RequestId id, Result<FinishReason> outcome) {
    if (LiveRequest* request = scheduler_.find(id)) scheduler_.finish(*request, std::move(outcome));
  }

  void expire() {
    const auto now = Clock::now();
    while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
      const RequestId id = deadlines_.begin()->second;
      deadlines_.erase(deadlines_.begin());
      LiveRequest* request = scheduler_.find(id);
      if (request == nullptr) continue;
      const auto limit = std::chrono::duration<double>(request->request.timeout).count();
      finish(id, tl::unexpected(
                     Error{ErrorKind::timed_out, fmt::format("the request was not through after {} seconds", limit)}));
    }
  }

  void announce(const StepPlan& step) {
    for (const StepPart& part : step.parts) {
      LiveRequest& request = *part.request;
      if (std::exchange(request.announced, true)) continue;
      if (request.request.on_start) request.request.on_start(*request.cached_tokens);
      const std::scoped_lock lock(mutex_);
      count_start(stats_, request);
    }
    const std::scoped_lock lock(mutex_);
    stats_.waiting = scheduler_.waiting();
  }

  void deliver(const StepPlan& step, StepResult result) {
    const auto now = Clock::now();
    for (size_t i = 0; i < result.parts.size(); ++i) {
      LiveRequest& request = *step.parts[i].request;
      const auto& token = result.parts[i].token;
      if (!token) continue;
      if (!request.first_token && request.request.on_prompt && request.request.sampling.prompt_logprobs >= 0) {
        request.request.on_prompt(with_first(request));
      }
      {
        const std::scoped_lock lock(mutex_);
        count_token(stats_, request, now);
      }
      if (request.request.on_token) request.request.on_token(*token);
    }
    const auto ended = scheduler_.take_ended();
    {
      const std::scoped_lock lock(mutex_);
      count_step(stats_, step, scheduler_, loaded_->pool());
      for (const auto& request : ended) count_end(stats_, *request, now);
      unfinished_ -= static_cast<int64_t>(ended.size());
    }
    for (const auto& request : ended) {
      deadlines_.erase({request->arrived + request->request.timeout, request->id});
      if (request->request.on_end) request->request.on_end(std::get<Finished>(request->state).outcome);
    }
  }

  // The first token of a prompt has no log-probability.
  static PromptLogprobs with_first(LiveRequest& request) {
    PromptLogprobs all = std::move(request.prompt_logprobs);
    all.insert(all.begin(), Token{.id = request.tokens[0], .logprob = {}, .top_logprobs = {}, .finish = {}});
    return all;
  }

  const EngineOptions options_;
  std::unique_ptr<LoadedModel> loaded_;
  WindowStore windows_;
  Scheduler scheduler_;
  Runner runner_;
  std::set<std::pair<Clock::time_point, RequestId>> deadlines_;
  int lost_steps_ = 0;  // in a row

  mutable std::mutex mutex_;  // for what follows
  std::condition_variable wake_;
  std::vector<std::unique_ptr<LiveRequest>> arrived_;
  std::vector<std::pair<RequestId, FinishReason>> to_end_;
  std::optional<Error> broken_;
  bool reset_asked_ = false;
  bool stopping_ = false;
  RequestId last_id_ = 0;
  int64_t unfinished_ = 0;
  EngineStats stats_;
  std::thread thread_;  // last: it uses everything above
};

// Room for four of the longest sequences, if they fit into a quarter of the memory that the process may take, and for
// one in any case.
int64_t default_cache_tokens(const Config& config, int64_t longest) {
  constexpr int64_t kSequences = 4;
  const auto memory = static_cast<double>(memory_limit().value_or(0));
  const double bytes = std::max(1.0, global_bytes_per_token(config));
  const auto fitting = static_cast<int64_t>(memory / 4 / bytes);
  return std::max(longest, std::min(kSequences * longest, fitting));
}

Status check_options(const EngineOptions& options, int64_t longest) {
  if (options.max_num_batched_tokens < 1) {
    return invalid_input("max_num_batched_tokens is {}; it must be 1 or more", options.max_num_batched_tokens);
  }
  if (options.max_num_seqs < 1 || options.max_num_seqs > options.max_num_batched_tokens) {
    return invalid_input("max_num_seqs is {}; it must be from 1 to max_num_batched_tokens, {}", options.max_num_seqs,
                         options.max_num_batched_tokens);
  }
  if (options.kv_cache_tokens > 0 && options.kv_cache_tokens < longest) {
    return invalid_input("kv_cache_tokens is {}; it must hold at least one sequence of {} tokens (max_model_len)",
                         options.kv_cache_tokens, longest);
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Engine>> create_engine(EngineOptions options) {
  GANNET_TRY(const Config config, load_config(options.model / "config.json"));
  const int64_t longest = options.max_model_len > 0 ? options.max_model_len : config.max_position_embeddings;
  GANNET_TRY_STATUS(check_options(options, longest));
  const int64_t wanted = options.kv_cache_tokens;
  LoadOptions load{.directory = options.model,
                   .threads = options.threads,
                   .model = {.device = options.cuda ? DeviceKind::cuda : DeviceKind::cpu,
                             .activations = options.bf16_activations ? Activations::bf16 : Activations::fp32,
                             .quantize_activations = options.quantize_activations,
                             .max_rows = options.max_num_batched_tokens,
                             .max_tokens = options.max_model_len,
                             .max_sequences = options.max_num_seqs},
                   .cache_tokens = wanted > 0 ? wanted : default_cache_tokens(config, longest),
                   .token_map = std::move(options.engram_token_map)};
  GANNET_TRY(auto loaded, LoadedModel::open(std::move(load)));
  return std::make_unique<BatchingEngine>(std::move(loaded), std::move(options));
}

}  // namespace gannet

#include "engine/engine.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <iterator>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "base/log.h"
#include "cache/sequence_state.h"
#include "engine/loaded_model.h"
#include "engine/sampler.h"

namespace gannet {
namespace {

struct Queued {
  RequestId id = 0;
  Request request;
};

// Runs one request at a time, in the order they came, on a thread of its own.
class SerialEngine : public Engine {
 public:
  SerialEngine(std::unique_ptr<LoadedModel> loaded, const EngineOptions& options)
      : loaded_(std::move(loaded)),
        bounded_replay_(options.swa_bounded_replay),
        state_(loaded_->config(), loaded_->pool()),
        logits_(loaded_->config().vocab_size),
        thread_([this] { serve(); }) {}

  ~SerialEngine() override {
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

  SerialEngine(const SerialEngine&) = delete;
  SerialEngine& operator=(const SerialEngine&) = delete;

  const Config& config() const override { return loaded_->config(); }
  int64_t max_model_len() const override { return loaded_->max_tokens(); }
  int64_t unfinished() const override {
    const std::scoped_lock lock(mutex_);
    return static_cast<int64_t>(live_.size());
  }

  EngineStats stats() const override { return {}; }
  void reset_prefix_cache() override {}
  Status health() const override { return {}; }

  Result<RequestId> submit(Request request) override {
    GANNET_TRY_STATUS(check(request));
    const std::scoped_lock lock(mutex_);
    const RequestId id = ++last_id_;
    live_.insert(id);
    queue_.push_back({id, std::move(request)});
    wake_.notify_all();
    return id;
  }

  void cancel(RequestId id) override {
    const std::scoped_lock lock(mutex_);
    if (live_.contains(id)) cancelled_.insert(id);
    wake_.notify_all();
  }

 private:
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

  void serve() {
    while (true) {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      Queued queued = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();

      end(queued, run_guarded(queued));
    }
  }

  // One request that runs out of memory must not take the others with it.
  Result<FinishReason> run_guarded(const Queued& queued) {
    try {
      return run(queued);
    } catch (const std::exception& error) {
      spdlog::error("request {} failed: {}", queued.id, error.what());
      return failed("the request failed: {}", error.what());
    }
  }

  void end(const Queued& queued, Result<FinishReason> reason) {
    {
      const std::scoped_lock lock(mutex_);
      live_.erase(queued.id);
      cancelled_.erase(queued.id);
    }
    if (queued.request.on_end) queued.request.on_end(std::move(reason));
  }

  // Ends waiting requests that were cancelled, so that they need not wait for the running one.
  void end_cancelled_in_queue() {
    std::vector<Queued> cancelled;
    {
      const std::scoped_lock lock(mutex_);
      const auto first = std::stable_partition(
          queue_.begin(), queue_.end(), [this](const Queued& queued) { return !cancelled_.contains(queued.id); });
      std::move(first, queue_.end(), std::back_inserter(cancelled));
      queue_.erase(first, queue_.end());
    }
    for (const Queued& queued : cancelled) end(queued, FinishReason::cancelled);
  }

  bool is_cancelled(RequestId id) const {
    const std::scoped_lock lock(mutex_);
    return stopping_ || cancelled_.contains(id);
  }

  FinishReason run(const Queued& queued) {
    const Request& request = queued.request;
    const auto prompt = static_cast<int64_t>(request.prompt.size());
    state_.reset();
    if (bounded_replay_) state_.set_decoder_from(std::max<int64_t>(0, prompt - config().sliding_window));
    if (!prefill(queued)) return FinishReason::cancelled;

    const int64_t room = max_model_len() - prompt;
    const int64_t limit = request.sampling.max_tokens > 0 ? std::min(request.sampling.max_tokens, room) : room;
    Sampler sampler(request.sampling, request.prompt, {});
    for (int64_t generated = 0;; ++generated) {
      Token token = sampler.choose(logits_, generated, {});
      const auto& stops = request.sampling.stop_ids;
      if (std::find(stops.begin(), stops.end(), token.id) != stops.end()) {
        token.finish = FinishReason::stop;
      } else if (generated + 1 == limit) {
        token.finish = FinishReason::length;
      }
      if (request.on_token) request.on_token(token);
      if (token.finish) return *token.finish;
      if (is_cancelled(queued.id)) return FinishReason::cancelled;
      step(&token.id, 1, true);
    }
  }

  // False when the request was cancelled on the way.
  bool prefill(const Queued& queued) {
    const auto prompt = static_cast<int64_t>(queued.request.prompt.size());
    while (state_.length() < prompt) {
      if (is_cancelled(queued.id)) return false;
      const int64_t start = state_.length();
      const int64_t rows = std::min(loaded_->model().max_rows(), prompt - start);
      step(&queued.request.prompt[start], rows, start + rows == prompt);
    }
    return true;
  }

  // Runs rows of the current sequence; the last one's logits when asked for.
  void step(const int32_t* ids, int64_t rows, bool want_logits) {
    GANNET_CHECK(state_.reserve(state_.length() + rows));
    batch_.clear();
    batch_.ids.assign(ids, ids + rows);
    batch_.sequences.push_back({.state = &state_, .first_row = 0, .rows = rows});
    if (want_logits) batch_.logit_rows.push_back(static_cast<int32_t>(rows - 1));
    loaded_->model().forward(batch_, logits_.data());
    end_cancelled_in_queue();
  }

  std::unique_ptr<LoadedModel> loaded_;
  bool bounded_replay_;
  SequenceState state_;
  Batch batch_;
  std::vector<float> logits_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Queued> queue_;
  std::set<RequestId> live_;
  std::set<RequestId> cancelled_;
  RequestId last_id_ = 0;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses everything above
};

}  // namespace

Result<std::unique_ptr<Engine>> create_engine(EngineOptions options) {
  LoadOptions load{.directory = options.model,
                   .threads = options.threads,
                   .model = {.activations = options.bf16_activations ? Activations::bf16 : Activations::fp32,
                             .quantize_activations = options.quantize_activations,
                             .max_rows = options.max_num_batched_tokens,
                             .max_tokens = options.max_model_len},
                   .token_map = std::move(options.engram_token_map)};
  GANNET_TRY(auto loaded, LoadedModel::open(std::move(load)));
  return std::make_unique<SerialEngine>(std::move(loaded), options);
}

}  // namespace gannet

#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace gannet::server {

// For tests: answers every request with the same ids, either at once or as many as the test lets through.
class ScriptedEngine : public Engine {
 public:
  // Set before requests come.
  std::vector<int32_t> script;
  gannet::FinishReason finish = gannet::FinishReason::stop;
  std::optional<Error> failure;  // ends the answer in place of `finish`
  bool by_steps = false;         // tokens come with step() only
  bool queued = false;           // no request begins before its first token
  bool with_logprobs = false;    // as if every token had logprob -0.5 and one rival; of prompts -0.25
  int64_t cached_tokens = 0;     // of every prompt, as far as it goes
  int64_t context = 4096;
  EngineStats reported;               // what stats() says
  std::atomic<bool> broken = false;   // health() is an error
  std::atomic<int> cache_resets = 0;  // calls of reset_prefix_cache()

  explicit ScriptedEngine(int64_t vocab_size) { config_.vocab_size = vocab_size; }

  const Config& config() const override { return config_; }
  int64_t max_model_len() const override { return context; }
  int64_t unfinished() const override {
    const std::lock_guard lock(mutex_);
    return static_cast<int64_t>(running_.size());
  }

  EngineStats stats() const override { return reported; }
  void reset_prefix_cache() override { ++cache_resets; }
  Status health() const override {
    if (broken) return failed("the device failed");
    return {};
  }

  Result<RequestId> submit(Request request) override {
    RequestId id = 0;
    {
      const std::lock_guard lock(mutex_);
      id = ++last_id_;
      seen_.push_back(request);
      running_[id] = Running{request, 0};
      changed_.notify_all();
    }
    const auto length = static_cast<int64_t>(request.prompt.size());
    if (request.on_start && !queued) request.on_start(std::min(cached_tokens, length));
    if (request.sampling.prompt_logprobs >= 0) request.on_prompt(prompt_logprobs(request.prompt));
    if (!by_steps) advance(id, script.size() + 1);
    return id;
  }

  void cancel(RequestId id) override {
    std::optional<Running> ended;
    {
      const std::lock_guard lock(mutex_);
      const auto found = running_.find(id);
      if (found == running_.end()) return;
      ended = std::move(found->second);
      running_.erase(found);
      ++cancelled_;
      changed_.notify_all();
    }
    ended->request.on_end(gannet::FinishReason::cancelled);
  }

  // Lets `count` tokens of every running answer through; the end comes with the last token.
  void step(size_t count = 1) {
    std::vector<RequestId> ids;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [id, running] : running_) ids.push_back(id);
    }
    for (const RequestId id : ids) advance(id, count);
  }

  // False if that has not happened after `patience`.
  bool wait_for_requests(size_t count) {
    return wait([&] { return seen_.size() >= count; });
  }
  bool wait_for_cancelled(size_t count) {
    return wait([&] { return cancelled_ >= count; });
  }
  std::vector<Request> seen() const {
    const std::lock_guard lock(mutex_);
    return seen_;
  }

 private:
  struct Running {
    Request request;
    size_t next = 0;
  };

  template <class Condition>
  bool wait(Condition condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(30), condition);
  }

  void advance(RequestId id, size_t count) {
    Running running;
    {
      const std::lock_guard lock(mutex_);
      const auto found = running_.find(id);
      if (found == running_.end()) return;
      running = found->second;
    }
    const auto most = static_cast<size_t>(running.request.sampling.max_tokens);
    const size_t length = most == 0 ? script.size() : std::min(script.size(), most);
    const bool cut = length < script.size();
    const size_t end = std::min(length, running.next + count);
    for (size_t i = running.next; i < end; ++i) {
      const int32_t chosen = constrained(script[i], running.request.constraint.get());
      running.request.on_token(token(chosen, -0.5F, with_logprobs));
    }
    const bool complete = end == length;
    {
      const std::lock_guard lock(mutex_);
      const auto found = running_.find(id);
      if (found == running_.end()) return;
      found->second.next = end;
      if (complete) running_.erase(found);
    }
    if (!complete) return;
    if (failure) {
      running.request.on_end(tl::unexpected(*failure));
    } else {
      running.request.on_end(cut ? gannet::FinishReason::length : finish);
    }
  }

  // The script's token, or the first one that may stand in its place.
  int32_t constrained(int32_t id, TokenConstraint* constraint) const {
    if (constraint == nullptr) return id;
    std::vector<uint32_t> mask(static_cast<size_t>(config_.vocab_size + 31) / 32);
    const auto allows = [&mask](int32_t other) { return (mask[other / 32] >> (other % 32) & 1U) != 0; };
    if (constraint->active()) {
      constraint->fill_mask(mask);
      for (int32_t other = 0; !allows(id) && other < config_.vocab_size; ++other) {
        if (allows(other)) id = other;
      }
    }
    constraint->accept(id);
    return id;
  }

  static Token token(int32_t id, float logprob, bool with_logprobs) {
    Token made;
    made.id = id;
    if (with_logprobs) {
      made.logprob = TokenLogprob{id, logprob};
      made.top_logprobs = {TokenLogprob{id, logprob}, TokenLogprob{3, logprob - 2}};
    }
    return made;
  }

  static PromptLogprobs prompt_logprobs(const std::vector<int32_t>& prompt) {
    PromptLogprobs made;
    for (const int32_t id : prompt) made.push_back(token(id, -0.25F, !made.empty()));
    return made;
  }

  Config config_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  RequestId last_id_ = 0;
  std::map<RequestId, Running> running_;
  std::vector<Request> seen_;
  size_t cancelled_ = 0;
};

}  // namespace gannet::server

#include "server/generation.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

namespace gannet::server {

// Shared with the engine's callbacks, which may outlive the Generation by a step.
struct Generation::Queue {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<int64_t> cached_tokens;
  std::optional<PromptLogprobs> prompt;
  std::deque<Token> tokens;
  std::optional<Result<FinishReason>> end;
  std::function<void()> wake;
  bool woken = false;  // since the last take() that left nothing

  // Call with the mutex held, after a change.
  void announce() {
    changed.notify_all();
    if (wake && !std::exchange(woken, true)) wake();
  }
};

Result<std::unique_ptr<Generation>> Generation::start(Engine& engine, Request request) {
  auto queue = std::make_shared<Queue>();
  request.on_start = [queue](int64_t cached_tokens) {
    const std::lock_guard lock(queue->mutex);
    queue->cached_tokens = cached_tokens;
    queue->announce();
  };
  request.on_prompt = [queue](PromptLogprobs prompt) {
    const std::lock_guard lock(queue->mutex);
    queue->prompt = std::move(prompt);
  };
  request.on_token = [queue](const Token& token) {
    const std::lock_guard lock(queue->mutex);
    queue->tokens.push_back(token);
    queue->announce();
  };
  request.on_end = [queue](Result<FinishReason> end) {
    const std::lock_guard lock(queue->mutex);
    queue->end = std::move(end);
    queue->announce();
  };
  GANNET_TRY(const RequestId id, engine.submit(std::move(request)));
  return std::make_unique<Generation>(engine, std::move(queue), id);
}

Generation::Generation(Engine& engine, std::shared_ptr<Queue> queue, RequestId id)
    : engine_(engine), queue_(std::move(queue)), id_(id) {}

Generation::~Generation() {
  {
    const std::lock_guard lock(queue_->mutex);
    queue_->wake = nullptr;
  }
  cancel();
}

void Generation::notify(std::function<void()> wake) {
  const std::lock_guard lock(queue_->mutex);
  queue_->wake = std::move(wake);
  if (queue_->cached_tokens || !queue_->tokens.empty() || queue_->end) queue_->announce();
}

Generation::Progress Generation::take(size_t limit) {
  Progress progress;
  const std::lock_guard lock(queue_->mutex);
  progress.cached_tokens = queue_->cached_tokens;
  progress.prompt = std::exchange(queue_->prompt, std::nullopt);
  while (!queue_->tokens.empty() && progress.tokens.size() < limit) {
    progress.tokens.push_back(std::move(queue_->tokens.front()));
    queue_->tokens.pop_front();
  }
  if (queue_->tokens.empty()) {
    progress.end = queue_->end;
    queue_->woken = false;
  } else if (queue_->wake) {
    queue_->wake();  // for the rest
  }
  return progress;
}

void Generation::wait(std::chrono::milliseconds patience) {
  std::unique_lock lock(queue_->mutex);
  queue_->changed.wait_for(lock, patience, [&] { return !queue_->tokens.empty() || queue_->end.has_value(); });
}

bool Generation::ended() const {
  const std::lock_guard lock(queue_->mutex);
  return queue_->end.has_value();
}

void Generation::cancel() {
  if (!ended()) engine_.cancel(id_);
}

void Generation::stop() {
  if (!ended()) engine_.stop(id_);
}

}  // namespace gannet::server

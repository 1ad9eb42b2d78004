#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.h"
#include "engine/engine.h"

namespace gannet::server {

// One request inside the engine: the bridge between the engine's thread, which only appends to a queue here, and the
// one thread that reads it. Destroying it cancels the request.
class Generation {
 public:
  // Submits to the engine, which must outlive the object. Errors are the engine's.
  static Result<std::unique_ptr<Generation>> start(Engine& engine, Request request);
  ~Generation();
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  // `wake` is called when there is something new after a take() that left nothing, the request's start included, on the
  // engine's thread; and at once when there is something already, or when a take() leaves something.
  void notify(std::function<void()> wake);

  struct Progress {
    std::optional<int64_t> cached_tokens;  // of the prompt; set once the request runs
    std::optional<PromptLogprobs> prompt;  // handed out once
    std::vector<Token> tokens;             // at most `limit`
    // Set once all tokens have been taken and the engine is through with the request.
    std::optional<Result<FinishReason>> end;
  };
  Progress take(size_t limit);
  // Waits until there are tokens to take or the end has come, at most `patience`.
  void wait(std::chrono::milliseconds patience);

  // Tells the engine that nobody wants more.
  void cancel();
  // Tells the engine that the answer is complete as it is.
  void stop();

 private:
  struct Queue;

 public:
  Generation(Engine& engine, std::shared_ptr<Queue> queue, RequestId id);  // for start()

 private:
  bool ended() const;

  Engine& engine_;
  std::shared_ptr<Queue> queue_;
  RequestId id_;
};

}  // namespace gannet::server

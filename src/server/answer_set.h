#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "server/answer.h"
#include "server/errors.h"
#include "server/served_model.h"
#include "text/chat_request.h"
#include "text/message_parser.h"

namespace gannet::server {

// All answers to one request: `n` for each of its prompts. Destroying it cancels those that have not ended.
class AnswerSet {
 public:
  struct Plan {
    std::string id;                             // of the response, for logs
    std::vector<std::vector<int32_t>> prompts;  // answer number = prompt number * n + sample number
    text::SamplingRequest sampling;
    text::ParseOptions parse;
    bool prompt_only = false;                // nothing is generated; max_tokens counts for nothing
    std::shared_ptr<AnswerMemory> memory{};  // null: calls are not kept
    // Makes the constraint of one answer; empty: none.
    std::function<Result<std::shared_ptr<TokenConstraint>>()> make_constraint{};
  };
  static constexpr int64_t kMaxAnswers = 128;             // of one request
  static constexpr int64_t kMaxPromptLogprobs = 500'000;  // of one request, those of likelier tokens included

  // Checks the plan against the model and starts all answers, or none. Samples of one prompt have seeds in sequence.
  static ApiResult<AnswerSet> start(const ServedModel& model, Plan plan);
  ~AnswerSet();
  AnswerSet(AnswerSet&&) = default;
  AnswerSet& operator=(AnswerSet&&) = default;

  void notify(const std::function<void()>& wake);
  size_t size() const { return answers_.size(); }
  Answer& operator[](size_t index) { return answers_[index]; }
  const Answer& operator[](size_t index) const { return answers_[index]; }
  bool all_ended() const;

  // Prompt of an answer, as the engine was given it.
  const std::vector<int32_t>& prompt(size_t index) const { return prompts_[index / per_prompt_]; }
  int64_t prompt_tokens() const;  // of all prompts, each counted once
  // Of these, tokens found in the cache: the engine's number, for several answers to one prompt that of the first.
  int64_t cached_tokens() const;
  int64_t completion_tokens() const;
  int64_t reasoning_tokens() const;

 private:
  AnswerSet() = default;

  std::string id_;  // empty once moved from
  std::vector<Answer> answers_;
  std::vector<SharedList<int32_t>> prompts_;
  size_t per_prompt_ = 1;  // answers
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
};

// Refuses a request for a model that is not served here; an empty name is the served model.
ApiResult<void> check_model(const ServedModel& model, const std::string& name);

// Refuses a text that has too many bytes for the context, whatever its tokens are; spares the work of making them.
ApiResult<void> check_prompt_bytes(const ServedModel& model, size_t bytes);

}  // namespace gannet::server

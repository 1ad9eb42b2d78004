#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/answer_memory.h"
#include "server/generation.h"
#include "text/message_parser.h"

namespace gannet::server {

struct AnswerOptions {
  bool include_stop = false;  // a matched stop string stays in the content
  bool prompt_only = false;   // nothing was to be generated: the tokens that come are dropped
  // Keeps what was generated for an answer with calls; null: nothing is kept. `starts` says where the prompt left off.
  std::shared_ptr<AnswerMemory> memory = nullptr;
  int32_t end_of_sentence = -1;  // not part of what is kept
  text::SampledMessage starts = {};
};

// One answer in the making: takes the engine's tokens and turns them into pieces of a message. For one thread.
class Answer {
 public:
  Answer(std::unique_ptr<Generation> generation, text::TokenMessageParser parser, AnswerOptions options);

  struct Step {
    std::vector<text::Delta> deltas;  // neighbours of one kind (and one call) are joined
    std::vector<Token> tokens;        // what the engine generated since the last step
  };
  // Everything that can be said now. Empty when there is nothing new; then the generation's `wake` tells when.
  Step advance();

  Generation& generation() { return *generation_; }
  // The engine has begun to work on it.
  bool running() const { return cached_tokens_.has_value() || started(); }
  bool started() const { return completion_tokens_ > 0 || ended_; }
  bool ended() const { return ended_; }
  // Why the answer broke off, if it did. It then has ended, and its message is what came before.
  const std::optional<Error>& error() const { return error_; }
  // The whole answer so far; complete once ended.
  const text::ParsedMessage& message() const { return parser_.message(); }
  // The content with the stop string, if that is to be included.
  std::string content() const;
  // The id of each call of the message.
  const std::vector<std::string>& call_ids() const { return call_ids_; }
  // Tokens of the prompt that the engine found in its cache; 0 until it runs.
  int64_t cached_tokens() const { return cached_tokens_.value_or(0); }
  // If they were asked for: once there is a first token.
  const PromptLogprobs& prompt_logprobs() const { return prompt_logprobs_; }
  // Generated tokens, the one that ended the answer included.
  int64_t completion_tokens() const { return completion_tokens_; }
  int64_t reasoning_tokens() const { return reasoning_tokens_; }

 private:
  void take_tokens(std::vector<Token> tokens, Step& step);
  void append(std::vector<text::Delta> deltas, Step& step);
  void end(text::StopCause cause, Step& step);
  void report_unparsed() const;
  void remember();

  std::unique_ptr<Generation> generation_;
  text::TokenMessageParser parser_;
  AnswerOptions options_;
  bool ended_ = false;
  std::optional<Error> error_;
  std::vector<std::string> call_ids_;
  std::vector<int32_t> ids_;  // all that was generated; only kept for the memory
  std::optional<int64_t> cached_tokens_;
  PromptLogprobs prompt_logprobs_;
  int64_t completion_tokens_ = 0;
  int64_t reasoning_tokens_ = 0;
};

// Appends `delta`, joined with the last one if it continues it.
void append_delta(std::vector<text::Delta>& deltas, text::Delta delta);

// An identifier that nobody can guess: the prefix and 24 random letters and digits.
std::string new_id(std::string_view prefix);

}  // namespace gannet::server

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/generation.h"
#include "text/message_parser.h"

namespace gannet::server {

// One answer in the making: takes the engine's tokens and turns them into pieces of a message. For one thread.
class Answer {
 public:
  // `include_stop`: a matched stop string stays in the content.
  Answer(std::unique_ptr<Generation> generation, text::TokenMessageParser parser, bool include_stop);

  struct Step {
    std::vector<text::Delta> deltas;  // neighbours of one kind (and one call) are joined
    std::vector<Token> tokens;        // what the engine generated since the last step
  };
  // Everything that can be said now. Empty when there is nothing new; then the generation's `wake` tells when.
  Step advance();

  Generation& generation() { return *generation_; }
  bool started() const { return completion_tokens_ > 0 || ended_; }
  bool ended() const { return ended_; }
  // Why the answer broke off, if it did. It then has ended, and its message is what came before.
  const std::optional<Error>& error() const { return error_; }
  // The whole answer so far; complete once ended.
  const text::ParsedMessage& message() const { return parser_.message(); }
  // The content with the stop string, if that is to be included.
  std::string content() const;
  // Generated tokens, the one that ended the answer included.
  int64_t completion_tokens() const { return completion_tokens_; }
  int64_t reasoning_tokens() const { return reasoning_tokens_; }

 private:
  void take_tokens(std::vector<Token> tokens, Step& step);
  void end(text::StopCause cause, Step& step);

  std::unique_ptr<Generation> generation_;
  text::TokenMessageParser parser_;
  bool include_stop_;
  bool ended_ = false;
  std::optional<Error> error_;
  int64_t completion_tokens_ = 0;
  int64_t reasoning_tokens_ = 0;
};

// Appends `delta`, joined with the last one if it continues it.
void append_delta(std::vector<text::Delta>& deltas, text::Delta delta);

}  // namespace gannet::server

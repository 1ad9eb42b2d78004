#pragma once

#include <deque>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "text/tokenizer.h"

namespace gannet::server {

// Finds the tokens that pieces of an answer's text are made of. The text comes later than its tokens when it is held
// back, and some tokens never become text: those are passed over.
class TextLogprobs {
 public:
  // The tokenizer must outlive the object.
  explicit TextLogprobs(const text::Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

  void push(const std::vector<Token>& tokens);
  // The tokens that begin in `text`, which follows what was taken before.
  std::vector<Token> take(std::string_view text);

 private:
  const text::Tokenizer* tokenizer_;
  std::deque<Token> tokens_;
  size_t used_ = 0;  // bytes of the first one
};

// A list of {token, logprob, bytes, top_logprobs}, as Chat Completions and Responses have it; tokens without a
// log-probability are left out. `as_ids`: tokens are named "token_id:5".
nlohmann::ordered_json token_logprobs_json(const text::Tokenizer& tokenizer, const std::vector<Token>& tokens,
                                           bool as_ids = false);

}  // namespace gannet::server

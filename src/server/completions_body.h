#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "server/errors.h"
#include "server/served_model.h"
#include "text/chat_request.h"

namespace gannet::server {

// The body of POST /v1/completions.
struct CompletionsBody {
  std::string model;                          // empty if absent
  std::vector<std::vector<int32_t>> prompts;  // at least one
  bool echo = false;                          // the answer begins with the prompt
  bool prompt_only = false;                   // max_tokens is 0: nothing is generated
  bool prompt_logprobs = false;               // wanted beside the choices' logprobs
  // What a conversation's request also says: how to answer, sampling, structured_output. It has no messages.
  text::ChatRequest request;
};

// Errors name the field.
ApiResult<CompletionsBody> completions_body(const ServedModel& model, std::string_view body);

}  // namespace gannet::server

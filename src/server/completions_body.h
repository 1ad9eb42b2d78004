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
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;
  text::SamplingRequest sampling;
};

// Errors name the field.
ApiResult<CompletionsBody> completions_body(const ServedModel& model, std::string_view body);

}  // namespace gannet::server

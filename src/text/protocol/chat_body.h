#pragma once

#include <string_view>

#include "base/error.h"
#include "text/chat_request.h"

namespace gannet::text {

// Body of POST /v1/chat/completions (OpenAI Chat Completions with the extensions of DeepSeek's API and of vLLM).
// `body` is the raw JSON: spelling of numbers, key order and repeated keys matter. Unknown fields are ignored. Errors
// are invalid_input and name the field. docs/text.md lists what is accepted beyond the official API.
Result<ChatRequest> chat_request(std::string_view body, const ConversionOptions& options = {});

}  // namespace gannet::text

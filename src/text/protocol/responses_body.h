#pragma once

#include <string_view>

#include "base/error.h"
#include "text/chat_request.h"
#include "text/json.h"

namespace gannet::text {

// Body of POST /v1/responses (OpenAI Responses). Rules as for chat_request().
Result<ChatRequest> responses_request(std::string_view body, const ConversionOptions& options = {});
// The same for a body that was read before.
Result<ChatRequest> read_responses_request(const Json& body, const ConversionOptions& options = {});

}  // namespace gannet::text

#pragma once

#include <string_view>

#include "base/error.h"
#include "text/chat_request.h"

namespace gannet::text {

// Body of POST /v1/responses (OpenAI Responses). Rules as for chat_request().
Result<ChatRequest> responses_request(std::string_view body, const ConversionOptions& options = {});

}  // namespace gannet::text

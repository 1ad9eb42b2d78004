#pragma once

#include <string_view>

#include "base/error.h"
#include "text/chat_request.h"

namespace gannet::text {

// Body of POST /v1/messages and /v1/messages/count_tokens (Anthropic Messages). Rules as for chat_request().
Result<ChatRequest> messages_request(std::string_view body, const ConversionOptions& options = {});

}  // namespace gannet::text

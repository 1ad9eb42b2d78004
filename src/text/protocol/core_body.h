#pragma once

#include <string_view>

#include "base/error.h"
#include "text/chat_request.h"

namespace gannet::text {

// A conversation written down directly, without any protocol's rules; for tests and tools. Fields: messages (role,
// content, reasoning_content, tool_calls [{id, name, arguments}], tool_call_id, prefix, tools, task), thinking_mode,
// tools [{name, description, parameters, strict}], tool_choice (auto, none, required), reasoning_effort (low, high,
// xhigh, max or 1..100), response_format (text, json_object), response_schema, response_regex, drop_thinking.
Result<ChatRequest> core_request(std::string_view body);

}  // namespace gannet::text

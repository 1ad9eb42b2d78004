#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/chat_request.h"
#include "text/protocol/fields.h"

namespace gannet::text {

// Reads name, description, strict and the parameters (under `schema_key`) of one function tool.
Result<ToolDefinition> read_tool(const Fields& fields, std::string_view schema_key);
Status check_tool_name(const std::string& name, std::string_view path);
Status check_unique_names(const std::vector<ToolDefinition>& tools);

// A schema for strict mode as the official API rewrites it: known keywords only, in a fixed order, every property
// required. A schema that its rules cannot express is left as it is.
Json strict_schema(const Json& schema);

// Keeps only the named tool, also among tools declared late, and makes calling it required. `path` is the field that
// named it.
Status choose_tool(ChatRequest& request, const std::string& name, std::string_view path);
// Drops what `tool_choice` makes pointless. A forced call comes behind the reasoning, if there is to be one.
Status settle_tool_choice(ChatRequest& request);

}  // namespace gannet::text

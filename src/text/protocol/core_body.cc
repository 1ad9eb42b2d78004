#include "text/protocol/core_body.h"

#include <utility>

#include "text/protocol/fields.h"
#include "text/protocol/sampling.h"

namespace gannet::text {
namespace {

Result<std::vector<ToolDefinition>> read_tools(const Fields& owner) {
  std::vector<ToolDefinition> tools;
  GANNET_TRY(const auto* list, owner.list("tools"));
  for (size_t index = 0; list != nullptr && index < list->size(); ++index) {
    GANNET_TRY(const auto fields, Fields::of((*list)[index], owner.path("tools", index)));
    ToolDefinition tool;
    GANNET_TRY(tool.name, fields.required_text("name"));
    GANNET_TRY(tool.description, fields.text("description"));
    GANNET_TRY(tool.strict, fields.flag_or("strict", false));
    GANNET_TRY(tool.defer_loading, fields.flag_or("defer_loading", false));
    const Json* parameters = fields.get("parameters");
    if (parameters != nullptr) tool.parameters = *parameters;
    tools.push_back(std::move(tool));
  }
  return tools;
}

Result<Role> read_role(const Fields& fields) {
  GANNET_TRY(const auto role, fields.required_text("role"));
  if (role == "system") return Role::system;
  if (role == "user") return Role::user;
  if (role == "assistant") return Role::assistant;
  if (role == "tool") return Role::tool;
  if (role == "latest_reminder") return Role::latest_reminder;
  return invalid_input("{}: {} is not one of system, user, assistant, tool, latest_reminder", fields.path("role"),
                       shown(role));
}

Result<Message> read_message(const Json& value, const std::string& path) {
  GANNET_TRY(const auto fields, Fields::of(value, path));
  Message message;
  GANNET_TRY(message.role, read_role(fields));
  GANNET_TRY(const auto content, fields.text("content"));
  message.content = content.value_or("");
  GANNET_TRY(message.reasoning, fields.text("reasoning_content"));
  GANNET_TRY(message.tool_call_id, fields.text("tool_call_id"));
  GANNET_TRY(message.prefix, fields.flag_or("prefix", false));
  GANNET_TRY(message.tools, read_tools(fields));
  GANNET_TRY(const auto task, fields.text("task"));
  message.task = task.value_or("");
  GANNET_TRY(const auto* calls, fields.list("tool_calls"));
  for (size_t index = 0; calls != nullptr && index < calls->size(); ++index) {
    GANNET_TRY(const auto call, Fields::of((*calls)[index], fields.path("tool_calls", index)));
    ToolCall read;
    GANNET_TRY(read.id, call.required_text("id"));
    GANNET_TRY(read.name, call.required_text("name"));
    GANNET_TRY(read.arguments, call.required_text("arguments"));
    message.tool_calls.push_back(std::move(read));
  }
  return message;
}

Status read_format(const Fields& fields, ResponseFormat& format) {
  GANNET_TRY(const auto name, fields.text("response_format"));
  if (name == "json_object") format.kind = ResponseFormat::Kind::json_object;
  if (name && *name != "json_object" && *name != "text") {
    return invalid_input("response_format: {} is not one of text, json_object", shown(*name));
  }
  if (const Json* schema = fields.get("response_schema")) {
    format.kind = ResponseFormat::Kind::json_schema;
    format.schema = *schema;
  }
  GANNET_TRY(const auto regex, fields.text("response_regex"));
  if (regex) {
    format.kind = ResponseFormat::Kind::regex;
    format.regex = *regex;
  }
  return {};
}

Status read_effort(const Fields& fields, ChatRequest& request) {
  const Json* effort = fields.get("reasoning_effort");
  if (effort == nullptr) return {};
  if (const auto* name = effort->string()) {
    GANNET_TRY(const int value, effort_by_name(*name, "reasoning_effort"));
    if (value > 0) request.effort = value;
    return {};
  }
  GANNET_TRY(const auto value, fields.integer("reasoning_effort", 1, 100));
  request.effort = static_cast<int>(*value);
  return {};
}

}  // namespace

Result<ChatRequest> core_request(std::string_view body) {
  GANNET_TRY(const Json parsed, parse_body(body));
  GANNET_TRY(const auto fields, Fields::of(parsed, ""));
  ChatRequest request;
  GANNET_TRY(const auto* messages, fields.list("messages"));
  for (size_t index = 0; messages != nullptr && index < messages->size(); ++index) {
    GANNET_TRY(auto message, read_message((*messages)[index], fields.path("messages", index)));
    request.messages.push_back(std::move(message));
  }
  GANNET_TRY(request.thinking, fields.flag_or("thinking_mode", true));
  GANNET_TRY(const bool drops, fields.flag_or("drop_thinking", true));
  request.keep_reasoning = !drops;
  GANNET_TRY(request.tools, read_tools(fields));
  GANNET_TRY(const auto choice, fields.text("tool_choice"));
  if (choice == "none") request.tool_choice = ToolChoice::none;
  if (choice == "required") request.tool_choice = ToolChoice::required;
  if (choice && *choice != "none" && *choice != "required" && *choice != "auto") {
    return invalid_input("tool_choice: {} is not one of auto, none, required", shown(*choice));
  }
  GANNET_TRY_STATUS(read_effort(fields, request));
  GANNET_TRY_STATUS(read_format(fields, request.response_format));
  return request;
}

}  // namespace gannet::text

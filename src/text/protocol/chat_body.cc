#include "text/protocol/chat_body.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_set>
#include <utility>

#include "text/protocol/content.h"
#include "text/protocol/fields.h"
#include "text/protocol/sampling.h"
#include "text/protocol/structured_output.h"
#include "text/protocol/tools.h"
#include "text/protocol/unknown_fields.h"

namespace gannet::text {
namespace {

constexpr std::string_view kKnownFields[] = {"messages",
                                             "tools",
                                             "tool_choice",
                                             "parallel_tool_calls",
                                             "response_format",
                                             "reasoning_effort",
                                             "thinking",
                                             "chat_template_kwargs",
                                             "add_generation_prompt",
                                             "continue_final_message",
                                             "max_completion_tokens",
                                             "logprobs",
                                             "verbosity"};

Status add_image_part(const Fields& part, Content& content) {
  const Json* source = part.get("image_url");
  if (source == nullptr) return invalid_input("{}: missing; expected an object with a url", part.path("image_url"));
  Image image;
  image.field = part.path("image_url");
  if (const auto* url = source->string()) {
    image.url = *url;
  } else {
    GANNET_TRY(const auto fields, Fields::of(*source, part.path("image_url")));
    GANNET_TRY(image.url, fields.required_text("url"));
    GANNET_TRY(const auto detail, fields.text("detail"));
    image.detail = detail.value_or("");
  }
  GANNET_TRY_STATUS(check_image_url(image.url, image.field));
  content.add_image(std::move(image));
  return {};
}

// A file that is a picture counts as one; the model reads no other kind.
Status add_file_part(const Fields& part, Role role, Content& content) {
  GANNET_TRY(const auto nested, part.object("file"));
  GANNET_TRY(auto data, (nested ? *nested : part).text("file_data"));
  if (!data || !data->starts_with("data:image/") || role == Role::assistant) {
    content.add_text("[Unsupported Document]");
    return {};
  }
  Image image;
  image.url = *std::move(data);
  image.field = part.path("file_data");
  content.add_image(std::move(image));
  return {};
}

Status add_part(const Json& value, const std::string& path, Role role, Content& content) {
  GANNET_TRY(const auto part, Fields::of(value, path));
  GANNET_TRY(const auto type, part.required_text("type"));
  if (type == "text" || type == "input_text" || type == "output_text") {
    GANNET_TRY(const auto text, part.required_text("text"));
    content.add_text(text);
    return {};
  }
  if (type == "refusal") {
    GANNET_TRY(const auto text, part.required_text("refusal"));
    content.add_text(text);
    return {};
  }
  if (type == "file" || type == "input_file") return add_file_part(part, role, content);
  if (type != "image_url") {
    return invalid_input("{}: {} is not supported; expected text, image_url or file", part.path("type"), shown(type));
  }
  if (role == Role::assistant) return invalid_input("{}: an assistant message cannot hold an image", path);
  return add_image_part(part, content);
}

Result<Content> read_content(const Fields& message, Role role) {
  Content content;
  const Json* value = message.get("content");
  const std::string path = message.path("content");
  if (value == nullptr) {
    if (role == Role::assistant || role == Role::tool) return content;
    return invalid_input("{}: missing; expected a string or a list of parts", path);
  }
  if (const auto* text = value->string()) {
    content.add_text(*text);
    return content;
  }
  const auto* parts = value->array();
  if (parts == nullptr) return wrong_type(path, "a string or a list of parts", *value);
  for (size_t index = 0; index < parts->size(); ++index) {
    GANNET_TRY_STATUS(add_part((*parts)[index], message.path("content", index), role, content));
  }
  return content;
}

Result<ToolCall> read_tool_call(const Json& value, const std::string& path) {
  GANNET_TRY(const auto fields, Fields::of(value, path));
  ToolCall call;
  GANNET_TRY(call.id, fields.required_text("id"));
  GANNET_TRY(const auto function, fields.object("function"));
  if (!function) return invalid_input("{}: missing; expected name and arguments", fields.path("function"));
  GANNET_TRY(call.name, function->required_text("name"));
  const Json* arguments = function->get("arguments");
  if (arguments == nullptr) {
    call.arguments = "{}";
  } else if (const auto* text = arguments->string()) {
    call.arguments = *text;
  } else if (arguments->is_object()) {
    call.arguments = python_json(*arguments);
  } else {
    return wrong_type(function->path("arguments"), "a string of JSON", *arguments);
  }
  return call;
}

Status read_assistant(const Fields& fields, Message& message) {
  GANNET_TRY(message.reasoning, fields.text("reasoning_content"));
  // vLLM's name for it; other servers use the same name for other things.
  const Json* alias = fields.get("reasoning");
  if (!message.reasoning && alias != nullptr && alias->is_string()) message.reasoning = *alias->string();
  GANNET_TRY(message.prefix, fields.flag_or("prefix", false));
  GANNET_TRY(const auto* calls, fields.list("tool_calls"));
  for (size_t index = 0; calls != nullptr && index < calls->size(); ++index) {
    GANNET_TRY(auto call, read_tool_call((*calls)[index], fields.path("tool_calls", index)));
    message.tool_calls.push_back(std::move(call));
  }
  return {};
}

Result<Role> read_role(const Fields& fields) {
  GANNET_TRY(const auto role, fields.required_text("role"));
  if (role == "system" || role == "developer") return Role::system;
  if (role == "user") return Role::user;
  if (role == "assistant") return Role::assistant;
  if (role == "tool") return Role::tool;
  if (role == "latest_reminder") return Role::latest_reminder;
  return invalid_input("{}: {} is not one of system, developer, user, assistant, tool, latest_reminder",
                       fields.path("role"), shown(role));
}

Status read_message(const Json& value, const std::string& path, ChatRequest& request) {
  GANNET_TRY(const auto fields, Fields::of(value, path));
  Message message;
  GANNET_TRY(message.role, read_role(fields));
  GANNET_TRY(auto content, read_content(fields, message.role));
  if (message.role == Role::system) drop_billing_line(content);
  if (message.role == Role::assistant) GANNET_TRY_STATUS(read_assistant(fields, message));
  if (message.role == Role::tool) {
    GANNET_TRY(message.tool_call_id, fields.required_text("tool_call_id"));
  }
  if (message.role == Role::system && content.empty()) return {};
  content.move_to(message);
  request.messages.push_back(std::move(message));
  return {};
}

// Each call must be answered by one tool message, and those must come right after it. Dropped empty system messages
// do not count, so this looks at what the conversation became.
class CallChecker {
 public:
  Status check(const Message& message, size_t index) {
    const std::string path = fmt::format("messages[{}]", index);
    if (message.role == Role::tool) return answer(*message.tool_call_id, path);
    GANNET_TRY_STATUS(finish(path));
    for (const ToolCall& call : message.tool_calls) {
      if (!open_.insert(call.id).second) {
        return invalid_input("{}.tool_calls: the id {} occurs twice", path, shown(call.id));
      }
    }
    calls_ = open_;
    return {};
  }

  Status finish(std::string_view path) const {
    if (open_.empty()) return {};
    return invalid_input("{}: expected a tool message for the call {} first; every call needs its result", path,
                         shown(*open_.begin()));
  }

 private:
  Status answer(const std::string& id, const std::string& path) {
    if (open_.erase(id) > 0) return {};
    if (calls_.contains(id)) return invalid_input("{}.tool_call_id: {} was answered before", path, shown(id));
    return invalid_input("{}.tool_call_id: no call with the id {} precedes", path, shown(id));
  }

  std::unordered_set<std::string> calls_;  // of the last assistant message
  std::unordered_set<std::string> open_;   // those without a result so far
};

Status read_messages(const Fields& body, ChatRequest& request) {
  GANNET_TRY(const auto* messages, body.list("messages"));
  if (messages == nullptr || messages->empty()) {
    return invalid_input("messages: expected a list of at least one message");
  }
  CallChecker calls;
  for (size_t index = 0; index < messages->size(); ++index) {
    const size_t known = request.messages.size();
    GANNET_TRY_STATUS(read_message((*messages)[index], body.path("messages", index), request));
    if (request.messages.size() > known) GANNET_TRY_STATUS(calls.check(request.messages.back(), index));
    const bool is_last = index + 1 == messages->size();
    if (!request.messages.empty() && request.messages.back().prefix && !is_last) {
      return invalid_input("messages[{}].prefix: only the last message can be continued", index);
    }
  }
  GANNET_TRY_STATUS(calls.finish("messages"));
  GANNET_TRY(request.add_generation_prompt, body.flag_or("add_generation_prompt", true));
  GANNET_TRY(const bool continues, body.flag_or("continue_final_message", false));
  if (continues && !request.messages.empty() && request.messages.back().role == Role::assistant) {
    request.messages.back().prefix = true;
  }
  return {};
}

Status read_tools(const Fields& body, ChatRequest& request) {
  GANNET_TRY(const auto* tools, body.list("tools"));
  for (size_t index = 0; tools != nullptr && index < tools->size(); ++index) {
    GANNET_TRY(const auto fields, Fields::of((*tools)[index], body.path("tools", index)));
    GANNET_TRY(const auto type, fields.text("type"));
    if (type && *type != "function") {
      return invalid_input("{}: {} is not supported; expected function", fields.path("type"), shown(*type));
    }
    GANNET_TRY(const auto function, fields.object("function"));
    if (!function)
      return invalid_input("{}: missing; expected name, description and parameters", fields.path("function"));
    GANNET_TRY(auto tool, read_tool(*function, "parameters"));
    if (tool.strict) tool.parameters = strict_schema(tool.parameters);
    request.tools.push_back(std::move(tool));
  }
  return check_unique_names(request.tools);
}

Status allow_tools(const Fields& choice, ChatRequest& request) {
  GANNET_TRY(const auto nested, choice.object("allowed_tools"));
  const Fields& allowed = nested ? *nested : choice;
  GANNET_TRY(const auto mode, allowed.text("mode"));
  GANNET_TRY(const auto* tools, allowed.list("tools"));
  std::unordered_set<std::string> names;
  for (size_t index = 0; tools != nullptr && index < tools->size(); ++index) {
    GANNET_TRY(const auto fields, Fields::of((*tools)[index], allowed.path("tools", index)));
    GANNET_TRY(const auto function, fields.object("function"));
    GANNET_TRY(auto name, (function ? *function : fields).required_text("name"));
    names.insert(std::move(name));
  }
  std::erase_if(request.tools, [&names](const ToolDefinition& tool) { return !names.contains(tool.name); });
  if (mode == "required") request.tool_choice = ToolChoice::required;
  return {};
}

Status read_tool_choice(const Fields& body, ChatRequest& request) {
  const Json* choice = body.get("tool_choice");
  if (choice == nullptr) return {};
  if (const auto* name = choice->string()) {
    if (*name == "none") request.tool_choice = ToolChoice::none;
    if (*name == "required") request.tool_choice = ToolChoice::required;
    if (*name == "none" || *name == "required" || *name == "auto") return {};
    return invalid_input("tool_choice: {} is not one of none, auto, required", shown(*name));
  }
  GANNET_TRY(const auto fields, Fields::of(*choice, "tool_choice"));
  GANNET_TRY(const auto type, fields.required_text("type"));
  if (type == "allowed_tools") return allow_tools(fields, request);
  if (type != "function") return invalid_input("tool_choice.type: {} is not function", shown(type));
  GANNET_TRY(const auto function, fields.object("function"));
  GANNET_TRY(const auto name, (function ? *function : fields).required_text("name"));
  return choose_tool(request, name, "tool_choice");
}

Status read_response_format(const Fields& body, ChatRequest& request) {
  GANNET_TRY(const auto fields, body.object("response_format"));
  if (!fields) return {};
  ResponseFormat& format = request.response_format;
  GANNET_TRY(const auto type, fields->required_text("type"));
  if (type == "text") return {};
  if (type == "json_object") {
    format.kind = ResponseFormat::Kind::json_object;
    return check_json_is_mentioned(request);
  }
  if (type == "regex") {
    format.kind = ResponseFormat::Kind::regex;
    GANNET_TRY(format.regex, fields->required_text("regex"));
    return {};
  }
  if (type != "json_schema") {
    return invalid_input("response_format.type: {} is not one of text, json_object, json_schema, regex", shown(type));
  }
  GANNET_TRY(const auto schema, fields->object("json_schema"));
  if (!schema) return invalid_input("response_format.json_schema: missing; expected an object with a schema");
  const Json* value = schema->get("schema");
  if (value == nullptr) return invalid_input("response_format.json_schema.schema: missing; expected a JSON schema");
  GANNET_TRY_STATUS(check_schema(*value, "response_format.json_schema.schema"));
  format.kind = ResponseFormat::Kind::json_schema;
  format.schema = *value;
  return {};
}

// A name, an integer 1..100, or a fraction in [0, 1) of 100 (halves to even, at least 1).
Result<std::optional<int>> read_effort(const Fields& fields) {
  constexpr std::string_view kKey = "reasoning_effort";
  const Json* value = fields.get(kKey);
  if (value == nullptr) return std::optional<int>{};
  if (const auto* name = value->string()) {
    GANNET_TRY(const int effort, effort_by_name(*name, fields.path(kKey)));
    return std::optional(effort);
  }
  if (const auto* fraction = std::get_if<double>(&value->value());
      fraction != nullptr && *fraction >= 0 && *fraction < 1) {
    return std::optional(std::max(1, static_cast<int>(std::nearbyint(*fraction * 100))));
  }
  GANNET_TRY(const auto number, fields.integer(kKey, 1, 100));
  return std::optional(static_cast<int>(*number));
}

Status read_thinking_mode(const Fields& body, const ConversionOptions& options, ChatRequest& request) {
  GANNET_TRY(auto enabled, read_thinking(body));
  GANNET_TRY(auto effort, read_effort(body));
  GANNET_TRY(const auto arguments, body.object("chat_template_kwargs"));
  if (arguments) {
    for (const std::string_view key : {"thinking", "enable_thinking"}) {
      GANNET_TRY(const auto flag, arguments->flag(key));
      if (flag) enabled = flag;
    }
    GANNET_TRY(const auto override, read_effort(*arguments));
    if (override) effort = override;
    GANNET_TRY(const auto drops, arguments->flag("drop_thinking"));
    request.keep_reasoning = drops && !*drops;
  }
  settle_thinking(request, options, enabled, effort);
  return {};
}

Status read_limits(const Fields& body, SamplingRequest& sampling) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  // The newer name wins; the older one is then not even looked at.
  const std::string_view key = body.has("max_completion_tokens") ? "max_completion_tokens" : "max_tokens";
  GANNET_TRY(sampling.max_tokens, body.integer(key, 1, kMost));
  GANNET_TRY(sampling.logprobs, body.flag_or("logprobs", false));
  if (sampling.top_logprobs > 0 && !sampling.logprobs) {
    return invalid_input("top_logprobs: {} needs \"logprobs\": true", sampling.top_logprobs);
  }
  return {};
}

Status read_formats(const Fields& body, ChatRequest& request) {
  GANNET_TRY_STATUS(read_response_format(body, request));
  GANNET_TRY_STATUS(read_structured_output(body, request.structured_output));
  const auto is_set = [](const ResponseFormat& format) { return format.kind != ResponseFormat::Kind::text; };
  if (!is_set(request.response_format) || !is_set(request.structured_output)) return {};
  return invalid_input("response_format: cannot be combined with structured_outputs or guided_*; use one of them");
}

Status check_prefix(const ChatRequest& request) {
  if (request.messages.empty() || !request.messages.back().prefix) return {};
  if (request.response_format.kind != ResponseFormat::Kind::json_object) return {};
  return invalid_input("response_format: json_object cannot be combined with a message to be continued");
}

}  // namespace

Result<ChatRequest> chat_request(std::string_view body, const ConversionOptions& options) {
  GANNET_TRY(const Json parsed, parse_body(body));
  GANNET_TRY(const auto fields, Fields::of(parsed, ""));
  ChatRequest request;
  GANNET_TRY(const auto model, fields.text("model"));
  request.model = model.value_or("");
  GANNET_TRY_STATUS(read_output(fields, request));
  GANNET_TRY_STATUS(read_messages(fields, request));
  GANNET_TRY_STATUS(read_thinking_mode(fields, options, request));
  GANNET_TRY_STATUS(read_tools(fields, request));
  GANNET_TRY_STATUS(read_tool_choice(fields, request));
  GANNET_TRY_STATUS(settle_tool_choice(request));
  GANNET_TRY(request.parallel_tool_calls, fields.flag_or("parallel_tool_calls", true));
  GANNET_TRY_STATUS(read_formats(fields, request));
  GANNET_TRY_STATUS(check_prefix(request));
  GANNET_TRY_STATUS(check_reasoning_came_back(request, options, "messages[].reasoning_content"));
  GANNET_TRY_STATUS(read_sampling(fields, request.sampling));
  GANNET_TRY_STATUS(read_stop(fields, "stop", request.sampling));
  GANNET_TRY_STATUS(read_limits(fields, request.sampling));
  note_unknown_fields("chat/completions", fields, kKnownFields);
  return request;
}

}  // namespace gannet::text

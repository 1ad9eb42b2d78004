#include "server/responses_object.h"

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

namespace gannet::server {
namespace {

// A member as it was sent, or what stands for its absence.
OrderedJson sent(const text::Json& object, std::string_view key, OrderedJson otherwise = nullptr) {
  const text::Json* value = object.find(key);
  if (value == nullptr || value->is_null()) return otherwise;
  return OrderedJson::parse(text::compact_json(*value), nullptr, false);
}

OrderedJson function_tool(const text::Json& tool) {
  OrderedJson json;
  json["type"] = "function";
  for (const char* key : {"name", "description", "parameters", "strict"}) json[key] = sent(tool, key);
  return json;
}

std::string type_of(const text::Json& tool) {
  const text::Json* type = tool.find("type");
  return type != nullptr && type->string() != nullptr ? *type->string() : std::string();
}

// Clients' types need all members of a declaration.
OrderedJson tool_json(const text::Json& tool) {
  const std::string type = type_of(tool);
  if (type == "function") return function_tool(tool);
  OrderedJson json = OrderedJson::parse(text::compact_json(tool), nullptr, false);
  if (type == "tool_search") {
    for (const char* key : {"execution", "description", "parameters"}) json[key] = sent(tool, key);
  }
  const text::Json* members = tool.find("tools");
  if (type != "namespace" || members == nullptr || members->array() == nullptr) return json;
  json["tools"] = OrderedJson::array();
  for (const auto& member : *members->array()) json["tools"].push_back(function_tool(member));
  return json;
}

OrderedJson tools_json(const text::Json& body) {
  OrderedJson list = OrderedJson::array();
  const text::Json* tools = body.find("tools");
  if (tools == nullptr || tools->array() == nullptr) return list;
  for (const auto& tool : *tools->array()) list.push_back(tool_json(tool));
  return list;
}

OrderedJson text_json(const text::Json& body) {
  const text::Json* text = body.find("text");
  const text::Json none;
  const text::Json& sent_text = text != nullptr ? *text : none;
  OrderedJson plain;
  plain["type"] = "text";
  OrderedJson json;
  json["format"] = sent(sent_text, "format", std::move(plain));
  json["verbosity"] = sent(sent_text, "verbosity");
  return json;
}

OrderedJson reasoning_json(const text::Json& body, const text::ChatRequest& chat) {
  const text::Json* reasoning = body.find("reasoning");
  const text::Json none;
  const text::Json& sent_reasoning = reasoning != nullptr ? *reasoning : none;
  OrderedJson json;
  json["effort"] = sent(sent_reasoning, "effort", chat.thinking ? "high" : "none");
  json["summary"] = nullptr;
  return json;
}

}  // namespace

OrderedJson response_object(const ServedModel& model, const text::Json& body, const text::ChatRequest& chat,
                            const std::string& id, bool is_stored) {
  OrderedJson json;
  json["id"] = id;
  json["object"] = "response";
  json["created_at"] = unix_time();
  json["status"] = "in_progress";
  json["background"] = false;
  for (const char* key : {"completed_at", "content_filters", "error"}) json[key] = nullptr;
  json["frequency_penalty"] = chat.sampling.frequency_penalty.value_or(0);
  json["incomplete_details"] = nullptr;
  for (const char* key : {"instructions", "max_output_tokens", "max_tool_calls"}) json[key] = sent(body, key);
  json["model"] = model.names.front();
  json["moderation"] = nullptr;
  json["output"] = OrderedJson::array();
  json["parallel_tool_calls"] = chat.parallel_tool_calls;
  json["presence_penalty"] = chat.sampling.presence_penalty.value_or(0);
  for (const char* key : {"previous_response_id", "prompt_cache_key", "prompt_cache_retention"}) {
    json[key] = sent(body, key);
  }
  json["reasoning"] = reasoning_json(body, chat);
  json["safety_identifier"] = sent(body, "safety_identifier");
  json["service_tier"] = "default";
  json["store"] = is_stored;
  json["temperature"] = chat.sampling.temperature.value_or(1);
  json["text"] = text_json(body);
  json["tool_choice"] = sent(body, "tool_choice", "auto");
  json["tools"] = tools_json(body);
  json["top_logprobs"] = 0;
  json["top_p"] = chat.sampling.top_p.value_or(1);
  json["truncation"] = "disabled";
  json["usage"] = nullptr;
  json["user"] = sent(body, "user");
  json["metadata"] = sent(body, "metadata", OrderedJson::object());
  return json;
}

}  // namespace gannet::server

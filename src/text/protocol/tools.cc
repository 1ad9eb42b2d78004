#include "text/protocol/tools.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace gannet::text {
namespace {

constexpr size_t kLongestName = 128;

size_t code_points(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }));
}

// "type" must allow an object; a missing type does.
Status check_parameters(const Json& parameters, std::string_view path) {
  if (!parameters.is_object()) return wrong_type(path, "a JSON schema of an object", parameters);
  const Json* type = parameters.find("type");
  if (type == nullptr) return {};
  const auto names_object = [](const Json& name) { return name.string() != nullptr && *name.string() == "object"; };
  const auto* alternatives = type->array();
  const bool allows_object =
      alternatives != nullptr && std::any_of(alternatives->begin(), alternatives->end(), names_object);
  if (names_object(*type) || allows_object) return {};
  return invalid_input("{}.type: {} is not \"object\"; the arguments of a call are an object", path,
                       shown(python_json(*type)));
}

// Takes tools away from the messages that declare them; such a message that says nothing else goes too.
template <class Unwanted>
void remove_late_tools(ChatRequest& request, Unwanted unwanted) {
  std::erase_if(request.messages, [&unwanted](Message& message) {
    if (std::erase_if(message.tools, unwanted) == 0) return false;
    return message.tools.empty() && message.content.empty() && message.images.empty();
  });
}

}  // namespace

Status check_tool_name(const std::string& name, std::string_view path) {
  if (name.empty()) return invalid_input("{}: empty; expected 1 to {} characters", path, kLongestName);
  if (const size_t length = code_points(name); length > kLongestName) {
    return invalid_input("{}: {} characters; expected 1 to {}", path, length, kLongestName);
  }
  // Anything else can stand in the markup of a call.
  const auto breaks_markup = [](char byte) {
    return static_cast<unsigned char>(byte) <= 0x20 || byte == '"' || byte == '<' || byte == '>' || byte == 0x7F;
  };
  if (std::any_of(name.begin(), name.end(), breaks_markup)) {
    return invalid_input("{}: {} holds a space, a quote, an angle bracket or a control character", path, shown(name));
  }
  return {};
}

Result<ToolDefinition> read_tool(const Fields& fields, std::string_view schema_key) {
  ToolDefinition tool;
  GANNET_TRY(tool.name, fields.required_text("name"));
  GANNET_TRY_STATUS(check_tool_name(tool.name, fields.path("name")));
  GANNET_TRY(tool.description, fields.text("description"));
  GANNET_TRY(tool.strict, fields.flag_or("strict", false));
  const Json* parameters = fields.get(schema_key);
  if (parameters != nullptr) GANNET_TRY_STATUS(check_parameters(*parameters, fields.path(schema_key)));
  tool.parameters = parameters != nullptr ? *parameters : Json(Json::Object());
  return tool;
}

Status check_unique_names(const std::vector<ToolDefinition>& tools) {
  std::unordered_set<std::string_view> names;
  for (const ToolDefinition& tool : tools) {
    if (!names.insert(tool.name).second) return invalid_input("tools: {} is declared twice", shown(tool.name));
  }
  return {};
}

Status choose_tool(ChatRequest& request, const std::string& name, std::string_view path) {
  if (request.tools.empty()) return {};
  const auto is_other = [&name](const ToolDefinition& tool) { return tool.name != name; };
  if (std::all_of(request.tools.begin(), request.tools.end(), is_other)) {
    return invalid_input("{}: {} is not among the declared tools", path, shown(name));
  }
  std::erase_if(request.tools, is_other);
  remove_late_tools(request, is_other);
  request.tool_choice = ToolChoice::required;
  return {};
}

Status settle_tool_choice(ChatRequest& request) {
  if (request.tools.empty()) {
    request.tool_choice = ToolChoice::automatic;
    return {};
  }
  if (request.tool_choice == ToolChoice::none) {
    remove_late_tools(request, [](const ToolDefinition&) { return true; });
  }
  if (request.tool_choice == ToolChoice::required && request.thinking) {
    request.tool_choice = ToolChoice::automatic;
    request.must_call = true;
  }
  return {};
}

}  // namespace gannet::text

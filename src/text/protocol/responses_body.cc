#include "text/protocol/responses_body.h"

#include <algorithm>
#include <limits>
#include <unordered_set>
#include <utility>

#include "text/protocol/content.h"
#include "text/protocol/fields.h"
#include "text/protocol/sampling.h"
#include "text/protocol/sealed_reasoning.h"
#include "text/protocol/structured_output.h"
#include "text/protocol/tools.h"
#include "text/protocol/unknown_fields.h"

namespace gannet::text {
namespace {

constexpr std::string_view kToolSearch = "tool_search";

constexpr std::string_view kKnownFields[] = {
    "input",          "instructions",      "tools",   "tool_choice",          "parallel_tool_calls", "text",
    "reasoning",      "max_output_tokens", "include", "previous_response_id", "truncation",          "background",
    "max_tool_calls", "client_metadata"};

Status add_part(const Json& value, const std::string& path, Content& content) {
  GANNET_TRY(const auto part, Fields::of(value, path));
  GANNET_TRY(const auto type, part.required_text("type"));
  if (type == "input_text" || type == "output_text" || type == "text") {
    GANNET_TRY(const auto text, part.required_text("text"));
    content.add_text(text);
    return {};
  }
  if (type == "refusal") {
    GANNET_TRY(const auto text, part.required_text("refusal"));
    content.add_text(text);
    return {};
  }
  if (type == "input_file") {
    content.add_text("[Unsupported Document]");
    return {};
  }
  if (type != "input_image") {
    return invalid_input("{}: {} is not supported; expected input_text, output_text, input_image or input_file",
                         part.path("type"), shown(type));
  }
  Image image;
  image.field = part.path("image_url");
  GANNET_TRY(image.url, part.required_text("image_url"));
  GANNET_TRY(const auto detail, part.text("detail"));
  image.detail = detail.value_or("");
  GANNET_TRY_STATUS(check_image_url(image.url, image.field));
  content.add_image(std::move(image));
  return {};
}

Result<Content> read_content(const Fields& item, std::string_view key) {
  Content content;
  const Json* value = item.get(key);
  if (value == nullptr) return invalid_input("{}: missing; expected a string or a list of parts", item.path(key));
  if (const auto* text = value->string()) {
    content.add_text(*text);
    return content;
  }
  const auto* parts = value->array();
  if (parts == nullptr) return wrong_type(item.path(key), "a string or a list of parts", *value);
  for (size_t index = 0; index < parts->size(); ++index) {
    GANNET_TRY_STATUS(add_part((*parts)[index], item.path(key, index), content));
  }
  return content;
}

// A tool of free text becomes a function with one string argument; what its format demands is told in words.
Result<ToolDefinition> read_custom_tool(const Fields& fields) {
  ToolDefinition tool;
  GANNET_TRY(tool.name, fields.required_text("name"));
  GANNET_TRY_STATUS(check_tool_name(tool.name, fields.path("name")));
  GANNET_TRY(const auto description, fields.text("description"));
  tool.description = description.value_or("");
  GANNET_TRY(const auto format, fields.object("format"));
  if (format) {
    GANNET_TRY(const auto syntax, format->text("syntax"));
    GANNET_TRY(const auto definition, format->text("definition"));
    if (definition) {
      *tool.description +=
          fmt::format("\n\nThe input must follow this {} grammar:\n{}", syntax.value_or("lark"), *definition);
    }
  }
  tool.parameters = Json(Json::Object{{"type", "object"},
                                      {"properties", Json::Object{{"input", Json::Object{{"type", "string"}}}}},
                                      {"required", Json::Array{"input"}},
                                      {"additionalProperties", false}});
  return tool;
}

// Collects tools from "tools" and from the outputs of tool searches.
class ToolReader {
 public:
  explicit ToolReader(ChatRequest& request) : request_(request) {}

  // Appends the tools of one declaration; hosted tools are left out.
  Status read(const Json& value, const std::string& path, std::vector<ToolDefinition>& tools) {
    GANNET_TRY(const auto fields, Fields::of(value, path));
    GANNET_TRY(const auto type, fields.required_text("type"));
    if (type == "function") {
      GANNET_TRY(auto tool, read_function(fields));
      tools.push_back(std::move(tool));
    } else if (type == "namespace") {
      return read_namespace(fields, tools);
    } else if (type == "custom") {
      GANNET_TRY(auto tool, read_custom_tool(fields));
      request_.custom_tools.push_back(tool.name);
      tools.push_back(std::move(tool));
    } else if (type == kToolSearch) {
      GANNET_TRY(const auto execution, fields.text("execution"));
      if (execution == "client") {
        GANNET_TRY(auto tool, read_search_tool(fields));
        tools.push_back(std::move(tool));
      }
    }
    return {};
  }

 private:
  static Result<ToolDefinition> read_function(const Fields& fields) {
    GANNET_TRY(auto tool, read_tool(fields, "parameters"));
    if (tool.strict) tool.parameters = strict_schema(tool.parameters);
    return tool;
  }

  Status read_namespace(const Fields& fields, std::vector<ToolDefinition>& tools) {
    GANNET_TRY(const auto name, fields.required_text("name"));
    GANNET_TRY_STATUS(check_tool_name(name, fields.path("name")));
    GANNET_TRY(const auto description, fields.text("description"));
    GANNET_TRY(const auto* members, fields.list("tools"));
    for (size_t index = 0; members != nullptr && index < members->size(); ++index) {
      GANNET_TRY(const auto member, Fields::of((*members)[index], fields.path("tools", index)));
      GANNET_TRY(const auto type, member.required_text("type"));
      if (type != "function") {
        return invalid_input("{}: {} is not supported in a namespace; expected function", member.path("type"),
                             shown(type));
      }
      GANNET_TRY(auto tool, read_function(member));
      const std::string local_name = std::exchange(tool.name, fmt::format("{}::{}", name, tool.name));
      if (description && !description->empty()) {
        tool.description = fmt::format("{}\n{}", *description, tool.description.value_or(""));
      }
      request_.namespaces[tool.name] = {name, local_name};
      tools.push_back(std::move(tool));
    }
    return {};
  }

  Result<ToolDefinition> read_search_tool(const Fields& fields) {
    ToolDefinition tool;
    tool.name = kToolSearch;
    request_.tool_search_name = kToolSearch;
    GANNET_TRY(tool.description, fields.text("description"));
    const Json* parameters = fields.get("parameters");
    tool.parameters = parameters != nullptr ? *parameters : Json(Json::Object());
    return tool;
  }

  ChatRequest& request_;
};

// The result of a tool search as the model reads it: the found functions in one flat list.
Json::Array describe_found_tools(const Json::Array& tools) {
  const auto member = [](const Json& tool, std::string_view key) {
    const Json* value = tool.find(key);
    return value != nullptr ? *value : Json();
  };
  const auto describe = [&member](const Json& tool) {
    Json::Object out;
    for (const std::string_view key : {"type", "name", "description", "parameters", "strict"}) {
      out.emplace_back(key, member(tool, key));
    }
    return out;
  };
  Json::Array out;
  for (const Json& tool : tools) {
    const Json type = member(tool, "type");
    if (type.string() != nullptr && *type.string() == "function") {
      out.emplace_back(describe(tool));
    } else if (type.string() != nullptr && *type.string() == "namespace") {
      const Json* description = tool.find("description");
      const Json name_space(
          Json::Object{{"name", member(tool, "name")},
                       {"description", description != nullptr && description->is_string() ? *description : Json("")}});
      const Json* members = tool.find("tools");
      if (members == nullptr || !members->is_array()) continue;
      for (const Json& function : *members->array()) {
        auto object = describe(function);
        object.emplace_back("namespace", name_space);
        out.emplace_back(std::move(object));
      }
    } else {
      out.emplace_back(Json::Object{{"type", type}, {"name", member(tool, "name")}});
    }
  }
  return out;
}

// Turns the flat list of items into messages. Reasoning, an assistant's text and its calls are separate items that
// form one assistant message; a run of outputs answers the calls before it.
class ItemReader {
 public:
  ItemReader(ChatRequest& request, ToolReader& tools) : request_(request), tools_(tools) {}

  Status read(const Json& value, const std::string& path) {
    GANNET_TRY(const auto item, Fields::of(value, path));
    GANNET_TRY(const auto type, item.text("type"));
    if (!type || *type == "message") return read_message(item);
    if (*type == "reasoning") return read_reasoning(item);
    if (*type == "function_call" || *type == "custom_tool_call" || *type == "tool_search_call") {
      return read_call(item, *type);
    }
    if (*type == "function_call_output" || *type == "custom_tool_call_output") return read_output(item);
    if (*type == "tool_search_output") return read_search_output(item);
    return {};  // items of hosted tools, references, ...: nothing the model needs
  }

  Status finish(const std::string& path) {
    GANNET_TRY_STATUS(end_outputs(path));
    end_assistant();
    if (!open_calls_.empty()) return missing_output(path);
    return {};
  }

 private:
  Status read_message(const Fields& item) {
    GANNET_TRY(const auto role, item.required_text("role"));
    GANNET_TRY(auto content, read_content(item, "content"));
    if (role == "assistant") return add_assistant_text(item, std::move(content));
    if (role != "user" && role != "system" && role != "developer") {
      return invalid_input("{}: {} is not one of user, assistant, system, developer", item.path("role"), shown(role));
    }
    GANNET_TRY_STATUS(end_turn(item.path("role")));
    Message message;
    message.role = role == "user" ? Role::user : Role::system;
    content.move_to(message);
    request_.messages.push_back(std::move(message));
    return {};
  }

  Status add_assistant_text(const Fields& item, Content content) {
    if (content.has_images()) {
      return invalid_input("{}: an assistant message cannot hold an image", item.path("content"));
    }
    GANNET_TRY_STATUS(end_outputs(item.path("role")));
    // An output must follow its call at once.
    if (!assistant().tool_calls.empty()) return missing_output(item.path("role"));
    std::string& text = assistant_->content;
    if (!text.empty() && !content.empty()) text += "\n\n";
    text += content.text();
    return {};
  }

  Status read_reasoning(const Fields& item) {
    GANNET_TRY_STATUS(end_outputs(item.path("type")));
    if (assistant_ && !assistant_->tool_calls.empty()) return missing_output(item.path("type"));
    std::string thought;
    GANNET_TRY(const auto* parts, item.list("content"));
    for (size_t index = 0; parts != nullptr && index < parts->size(); ++index) {
      GANNET_TRY(const auto part, Fields::of((*parts)[index], item.path("content", index)));
      GANNET_TRY(const auto text, part.required_text("text"));
      if (index > 0) thought += "\n";
      thought += text;
    }
    if (thought.empty()) {
      GANNET_TRY(const auto sealed, item.text("encrypted_content"));
      thought = unseal_reasoning(sealed.value_or("")).value_or("");
    }
    if (thought.empty()) return {};
    // Reasoning after the text begins another message.
    if (assistant_ && !assistant_->content.empty()) end_assistant();
    Message& message = assistant();
    message.reasoning = message.reasoning ? *message.reasoning + "\n" + thought : thought;
    return {};
  }

  Status read_call(const Fields& item, const std::string& type) {
    GANNET_TRY_STATUS(end_outputs(item.path("type")));
    ToolCall call;
    GANNET_TRY(call.id, item.required_text("call_id"));
    if (call.id.empty()) return invalid_input("{}: empty; expected at least one character", item.path("call_id"));
    if (!known_calls_.insert(call.id).second) {
      return invalid_input("{}: {} occurs twice", item.path("call_id"), shown(call.id));
    }
    if (type == "function_call") {
      GANNET_TRY(call.name, item.required_text("name"));
      GANNET_TRY(const auto name_space, item.text("namespace"));
      if (name_space) call.name = fmt::format("{}::{}", *name_space, call.name);
      GANNET_TRY(call.arguments, item.required_text("arguments"));
    } else if (type == "custom_tool_call") {
      GANNET_TRY(call.name, item.required_text("name"));
      GANNET_TRY(auto input, item.required_text("input"));
      call.arguments = python_json(Json(Json::Object{{"input", std::move(input)}}));
    } else {
      call.name = kToolSearch;
      const Json* arguments = item.get("arguments");
      if (arguments == nullptr || !arguments->is_object()) {
        return invalid_input("{}: expected an object", item.path("arguments"));
      }
      call.arguments = python_json(*arguments);
    }
    open_calls_.insert(call.id);
    assistant().tool_calls.push_back(std::move(call));
    return {};
  }

  Status read_output(const Fields& item) {
    GANNET_TRY(auto content, read_content(item, "output"));
    return add_output(item, std::move(content));
  }

  Status read_search_output(const Fields& item) {
    GANNET_TRY(const auto* tools, item.list("tools"));
    Content content;
    content.add_text(compact_json(Json(tools != nullptr ? describe_found_tools(*tools) : Json::Array())));
    GANNET_TRY_STATUS(add_output(item, std::move(content)));
    std::vector<ToolDefinition> found;
    for (size_t index = 0; tools != nullptr && index < tools->size(); ++index) {
      GANNET_TRY_STATUS(tools_.read((*tools)[index], item.path("tools", index), found));
    }
    if (!found.empty()) found_tools_.push_back(std::move(found));
    return {};
  }

  Status add_output(const Fields& item, Content content) {
    GANNET_TRY(const auto id, item.text("call_id"));
    end_assistant();
    if (id && open_calls_.erase(*id) == 0) {
      const std::string_view why = known_calls_.contains(*id) ? "was answered before" : "answers no call";
      return invalid_input("{}: {} {}", item.path("call_id"), shown(*id), why);
    }
    Message message;
    message.role = Role::tool;
    message.tool_call_id = id;
    content.move_to(message);
    request_.messages.push_back(std::move(message));
    in_outputs_ = true;
    return {};
  }

  Message& assistant() {
    if (!assistant_) {
      assistant_.emplace();
      assistant_->role = Role::assistant;
    }
    return *assistant_;
  }

  // Parallel calls have no order of their own here; that of their ids makes the prompt repeatable.
  void end_assistant() {
    if (!assistant_) return;
    std::stable_sort(assistant_->tool_calls.begin(), assistant_->tool_calls.end(),
                     [](const ToolCall& a, const ToolCall& b) { return a.id < b.id; });
    request_.messages.push_back(*std::move(assistant_));
    assistant_.reset();
  }

  // After a run of outputs every call must have its own. Tools that the outputs brought are told after them.
  Status end_outputs(const std::string& path) {
    if (!in_outputs_) return {};
    if (!open_calls_.empty()) return missing_output(path);
    in_outputs_ = false;
    for (auto& tools : std::exchange(found_tools_, {})) {
      Message message;
      message.role = Role::system;
      message.tools = std::move(tools);
      for (ToolDefinition tool : message.tools) {
        tool.defer_loading = true;
        request_.tools.push_back(std::move(tool));
      }
      request_.messages.push_back(std::move(message));
    }
    return {};
  }

  Status end_turn(const std::string& path) {
    GANNET_TRY_STATUS(end_outputs(path));
    end_assistant();
    if (!open_calls_.empty()) return missing_output(path);
    return {};
  }

  tl::unexpected<Error> missing_output(std::string_view path) const {
    return invalid_input("{}: expected the output of the call {} first; every call needs its output", path,
                         shown(*open_calls_.begin()));
  }

  ChatRequest& request_;
  ToolReader& tools_;
  std::optional<Message> assistant_;  // being put together
  bool in_outputs_ = false;
  std::vector<std::vector<ToolDefinition>> found_tools_;  // of each tool search in the run of outputs
  std::unordered_set<std::string> known_calls_;
  std::unordered_set<std::string> open_calls_;  // those without an output so far
};

Status read_input(const Fields& body, ChatRequest& request, ToolReader& tools) {
  GANNET_TRY(const auto instructions, body.text("instructions"));
  const bool has_instructions = instructions && !instructions->empty();
  if (has_instructions) {
    Message message;
    message.role = Role::system;
    message.content = *instructions;
    request.messages.push_back(std::move(message));
  }
  const Json* input = body.get("input");
  if (input == nullptr) {
    if (has_instructions) return {};
    return invalid_input("input: missing; expected a string or a list of items");
  }
  if (const auto* text = input->string()) {
    Message message;
    message.content = *text;
    request.messages.push_back(std::move(message));
    return {};
  }
  const auto* items = input->array();
  if (items == nullptr) return wrong_type("input", "a string or a list of items", *input);
  if (items->empty()) return invalid_input("input: empty; expected at least one item");
  ItemReader reader(request, tools);
  for (size_t index = 0; index < items->size(); ++index) {
    GANNET_TRY_STATUS(reader.read((*items)[index], body.path("input", index)));
  }
  return reader.finish("input");
}

Status read_tools(const Fields& body, ChatRequest& request, ToolReader& reader) {
  GANNET_TRY(const auto* tools, body.list("tools"));
  for (size_t index = 0; tools != nullptr && index < tools->size(); ++index) {
    GANNET_TRY_STATUS(reader.read((*tools)[index], body.path("tools", index), request.tools));
  }
  return check_unique_names(request.tools);
}

Status allow_tools(const Fields& choice, ChatRequest& request) {
  GANNET_TRY(const auto mode, choice.text("mode"));
  GANNET_TRY(const auto* tools, choice.list("tools"));
  std::unordered_set<std::string> names;
  for (size_t index = 0; tools != nullptr && index < tools->size(); ++index) {
    GANNET_TRY(const auto fields, Fields::of((*tools)[index], choice.path("tools", index)));
    GANNET_TRY(const auto name, fields.text("name"));
    if (name) names.insert(*name);
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
  if (type != "function" && type != "custom") return {};  // a hosted tool: left out, so nothing can be forced
  GANNET_TRY(const auto name, fields.required_text("name"));
  return choose_tool(request, name, "tool_choice.name");
}

Status read_text_format(const Fields& body, ChatRequest& request) {
  GANNET_TRY(const auto text, body.object("text"));
  if (!text) return {};
  GANNET_TRY(const auto format, text->object("format"));
  if (!format) return {};
  GANNET_TRY(const auto type, format->required_text("type"));
  if (type == "text") return {};
  if (type == "json_object") {
    request.response_format.kind = ResponseFormat::Kind::json_object;
    return check_json_is_mentioned(request);
  }
  if (type != "json_schema") {
    return invalid_input("text.format.type: {} is not one of text, json_object, json_schema", shown(type));
  }
  const Json* schema = format->get("schema");
  if (schema == nullptr) return invalid_input("text.format.schema: missing; expected a JSON schema");
  GANNET_TRY_STATUS(check_schema(*schema, "text.format.schema"));
  request.response_format.kind = ResponseFormat::Kind::json_schema;
  request.response_format.schema = *schema;
  return {};
}

Status read_thinking_mode(const Fields& body, const ConversionOptions& options, ChatRequest& request) {
  std::optional<int> effort;
  GANNET_TRY(const auto reasoning, body.object("reasoning"));
  if (reasoning) {
    GANNET_TRY(const auto name, reasoning->text("effort"));
    if (name) {
      GANNET_TRY(effort, effort_by_name(*name, reasoning->path("effort")));
    }
  }
  settle_thinking(request, options, {}, effort);
  return {};
}

}  // namespace

Result<ChatRequest> responses_request(std::string_view body, const ConversionOptions& options) {
  GANNET_TRY(const Json parsed, parse_body(body));
  return read_responses_request(parsed, options);
}

Result<ChatRequest> read_responses_request(const Json& body, const ConversionOptions& options) {
  GANNET_TRY(const auto fields, Fields::of(body, ""));
  ChatRequest request;
  GANNET_TRY(const auto model, fields.text("model"));
  request.model = model.value_or("");
  GANNET_TRY_STATUS(read_output(fields, request));
  GANNET_TRY(const auto previous, fields.text("previous_response_id"));
  request.previous_response_id = previous.value_or("");
  GANNET_TRY_STATUS(read_thinking_mode(fields, options, request));
  ToolReader tools(request);
  GANNET_TRY_STATUS(read_tools(fields, request, tools));
  GANNET_TRY_STATUS(read_input(fields, request, tools));
  GANNET_TRY_STATUS(read_tool_choice(fields, request));
  GANNET_TRY_STATUS(settle_tool_choice(request));
  GANNET_TRY(request.parallel_tool_calls, fields.flag_or("parallel_tool_calls", true));
  GANNET_TRY_STATUS(read_text_format(fields, request));
  GANNET_TRY_STATUS(check_reasoning_came_back(request, options, "input[].content"));
  SamplingRequest& sampling = request.sampling;
  GANNET_TRY_STATUS(read_sampling(fields, sampling));
  sampling.logprobs = sampling.top_logprobs > 0;
  GANNET_TRY(sampling.max_tokens, fields.integer("max_output_tokens", 1, std::numeric_limits<int64_t>::max()));
  if (sampling.n != 1)
    return invalid_input("n: {}; a response holds one answer, so it must be 1 or absent", sampling.n);
  note_unknown_fields("responses", fields, kKnownFields);
  return request;
}

}  // namespace gannet::text

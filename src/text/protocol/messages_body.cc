#include "text/protocol/messages_body.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <unordered_map>
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

constexpr double kMaxDouble = std::numeric_limits<double>::max();

constexpr std::string_view kKnownFields[] = {"messages",      "system",        "tools",         "tool_choice",
                                             "thinking",      "output_config", "output_format", "context_management",
                                             "stop_sequences"};

Status add_image_block(const Fields& block, Content& content) {
  GANNET_TRY(const auto source, block.object("source"));
  if (!source) return invalid_input("{}: missing; expected an object", block.path("source"));
  GANNET_TRY(const auto type, source->required_text("type"));
  Image image;
  image.field = block.path("source");
  if (type == "base64") {
    GANNET_TRY(const auto media_type, source->required_text("media_type"));
    GANNET_TRY(const auto data, source->required_text("data"));
    image.url = fmt::format("data:{};base64,{}", media_type, data);
  } else if (type == "url") {
    GANNET_TRY(image.url, source->required_text("url"));
  } else {
    return invalid_input("{}: {} is not supported; expected base64 or url", source->path("type"), shown(type));
  }
  GANNET_TRY_STATUS(check_image_url(image.url, image.field));
  content.add_image(std::move(image));
  return {};
}

Status add_document_block(const Fields& block, Content& content) {
  GANNET_TRY(const auto source, block.object("source"));
  std::string media_type = "unknown";
  if (source) {
    GANNET_TRY(const auto named, source->text("media_type"));
    media_type = named.value_or(media_type);
  }
  content.add_text(fmt::format("[Unsupported document type: {}]", media_type));
  return {};
}

// Blocks that Anthropic's own servers would have run; they carry nothing for the model.
bool is_hosted_block(std::string_view type) {
  return type == "server_tool_use" || type == "mcp_tool_use" || type == "redacted_thinking" ||
         type.ends_with("_tool_result");
}

// Tools that Anthropic's own servers would run; without those they cannot be offered.
bool is_hosted_tool(std::string_view type) {
  constexpr std::string_view kHosted[] = {"web_search", "web_fetch", "code_execution", "tool_search"};
  return std::any_of(std::begin(kHosted), std::end(kHosted),
                     [type](std::string_view prefix) { return type.starts_with(prefix); });
}

class MessagesConverter {
 public:
  explicit MessagesConverter(const Fields& body) : body_(body) {}

  Status convert(ChatRequest& request) {
    request_ = &request;
    GANNET_TRY_STATUS(read_tools());
    GANNET_TRY_STATUS(read_tool_choice());
    GANNET_TRY_STATUS(read_system());
    GANNET_TRY(const auto* messages, body_.list("messages"));
    if (messages == nullptr || messages->empty()) {
      return invalid_input("messages: expected a list of at least one message");
    }
    for (size_t index = 0; index < messages->size(); ++index) {
      GANNET_TRY_STATUS(read_message((*messages)[index], body_.path("messages", index)));
    }
    GANNET_TRY_STATUS(check_answered("messages"));
    if (!chosen_tool_.empty()) GANNET_TRY_STATUS(choose_tool(request, chosen_tool_, "tool_choice.name"));
    return settle_tool_choice(request);
  }

 private:
  Status read_tools() {
    GANNET_TRY(const auto* tools, body_.list("tools"));
    for (size_t index = 0; tools != nullptr && index < tools->size(); ++index) {
      GANNET_TRY(const auto fields, Fields::of((*tools)[index], body_.path("tools", index)));
      GANNET_TRY(const auto type, fields.text("type"));
      if (type && is_hosted_tool(*type)) {
        GANNET_TRY(const auto name, fields.text("name"));
        if (name) hosted_tools_.insert(*name);
        continue;
      }
      if (type && *type != "custom") {
        return invalid_input("{}: {} is not supported; declare the tool with an input_schema", fields.path("type"),
                             shown(*type));
      }
      if (!fields.has("input_schema")) {
        return invalid_input("{}: missing; expected a JSON schema", fields.path("input_schema"));
      }
      GANNET_TRY(auto tool, read_tool(fields, "input_schema"));
      GANNET_TRY(tool.defer_loading, fields.flag_or("defer_loading", false));
      request_->tools.push_back(std::move(tool));
    }
    const auto is_deferred = [](const ToolDefinition& tool) { return tool.defer_loading; };
    if (!request_->tools.empty() && std::all_of(request_->tools.begin(), request_->tools.end(), is_deferred)) {
      return invalid_input("tools: all are deferred (defer_loading); at least one must be loaded");
    }
    GANNET_TRY_STATUS(check_unique_names(request_->tools));
    for (const ToolDefinition& tool : request_->tools) tools_by_name_[tool.name] = tool;
    return {};
  }

  Status read_tool_choice() {
    GANNET_TRY(const auto choice, body_.object("tool_choice"));
    if (!choice) return {};
    GANNET_TRY(const auto type, choice->required_text("type"));
    GANNET_TRY(const bool serial, choice->flag_or("disable_parallel_tool_use", false));
    request_->parallel_tool_calls = !serial;
    // The official API renders "any" like "auto".
    if (type == "any" && !request_->tools.empty()) request_->must_call = true;
    if (type == "auto" || type == "any") return {};
    if (type == "none") {
      request_->tool_choice = ToolChoice::none;
      return {};
    }
    if (type != "tool") {
      return invalid_input("tool_choice.type: {} is not one of auto, any, tool, none", shown(type));
    }
    GANNET_TRY(auto name, choice->required_text("name"));
    if (!hosted_tools_.contains(name)) chosen_tool_ = std::move(name);
    return {};
  }

  Status read_system() {
    const Json* system = body_.get("system");
    if (system == nullptr) return {};
    Content content;
    if (const auto* text = system->string()) {
      content.add_text(*text);
    } else if (const auto* blocks = system->array()) {
      GANNET_TRY_STATUS(read_system_blocks(*blocks, content));
    } else {
      return wrong_type("system", "a string or a list of text blocks", *system);
    }
    Message message;
    message.role = Role::system;
    content.move_to(message);
    request_->messages.push_back(std::move(message));
    return {};
  }

  Status read_system_blocks(const Json::Array& blocks, Content& content) {
    for (size_t index = 0; index < blocks.size(); ++index) {
      GANNET_TRY(const auto block, Fields::of(blocks[index], body_.path("system", index)));
      GANNET_TRY(const auto type, block.required_text("type"));
      if (type != "text") return invalid_input("{}: {} is not text", block.path("type"), shown(type));
      GANNET_TRY(const auto text, block.required_text("text"));
      // Claude Code's first block differs in every request, so no prefix would ever be found in the cache.
      if (index == 0 && contains_word(std::string_view(text).substr(0, kBillingHeader.size()), kBillingHeader))
        continue;
      content.add_text(text);
    }
    return {};
  }

  Status read_message(const Json& value, const std::string& path) {
    GANNET_TRY(const auto fields, Fields::of(value, path));
    GANNET_TRY(const auto role, fields.required_text("role"));
    const Json* content = fields.get("content");
    if (content == nullptr) return invalid_input("{}: missing; expected a string or a list", fields.path("content"));
    if (content->string() == nullptr && content->array() == nullptr) {
      return wrong_type(fields.path("content"), "a string or a list of blocks", *content);
    }
    if (role == "system" || role == "developer") return read_system_message(fields, *content);
    if (content->array() != nullptr && content->array()->empty()) {
      return invalid_input("{}: empty; expected at least one block", fields.path("content"));
    }
    if (role == "user") return read_user_message(fields, *content);
    if (role == "assistant") return read_assistant_message(fields, *content);
    return invalid_input("{}: {} is not one of user, assistant, system", fields.path("role"), shown(role));
  }

  Status read_system_message(const Fields& fields, const Json& content) {
    GANNET_TRY_STATUS(check_answered(fields.path("role")));
    Message message;
    message.role = Role::system;
    Content text;
    GANNET_TRY_STATUS(
        for_each_block(fields, content, text, [&](const Fields& block, const std::string& type) -> Status {
          if (type != "tool_addition") return not_here(block, type, "a system message");

          GANNET_TRY(const auto tool, block.object("tool"));
          if (!tool) return invalid_input("{}: missing; expected a tool_reference", block.path("tool"));
          GANNET_TRY(const auto name, tool->required_text("name"));
          return add_late_tool(name, tool->path("name"), message);
        }));
    text.move_to(message);
    request_->messages.push_back(std::move(message));
    return {};
  }

  Status read_user_message(const Fields& fields, const Json& content) {
    Content text;
    bool has_text = content.string() != nullptr;
    std::vector<Message> results;
    Message late;
    late.role = Role::system;
    GANNET_TRY_STATUS(for_each_block(
        fields, content, text,
        [&](const Fields& block, const std::string& type) -> Status {
          if (type != "tool_result") return not_here(block, type, "a user message");
          GANNET_TRY(auto result, read_tool_result(block, late));
          results.push_back(std::move(result));
          return {};
        },
        &has_text));
    if (results.empty() && !open_calls_.empty()) return check_answered(fields.path("content"));
    for (Message& result : results) request_->messages.push_back(std::move(result));
    if (has_text) {
      Message message;
      text.move_to(message);
      request_->messages.push_back(std::move(message));
    }
    if (!late.tools.empty()) request_->messages.push_back(std::move(late));
    return {};
  }

  Result<Message> read_tool_result(const Fields& block, Message& late) {
    Message result;
    result.role = Role::tool;
    GANNET_TRY(result.tool_call_id, block.required_text("tool_use_id"));
    const std::string& id = *result.tool_call_id;
    if (open_calls_.erase(id) == 0) {
      const std::string_view why =
          calls_.contains(id) ? "was answered before" : "is not a tool_use of the last assistant message";
      return invalid_input("{}: {} {}", block.path("tool_use_id"), shown(id), why);
    }
    const Json* content = block.get("content");
    Content text;
    if (content != nullptr) {
      if (content->string() == nullptr && content->array() == nullptr) {
        return wrong_type(block.path("content"), "a string or a list of blocks", *content);
      }
      GANNET_TRY_STATUS(
          for_each_block(block, *content, text, [&](const Fields& part, const std::string& type) -> Status {
            if (type != "tool_reference") return not_here(part, type, "a tool_result");
            GANNET_TRY(const auto name, part.required_text("tool_name"));
            text.add_text(name);
            return add_late_tool(name, part.path("tool_name"), late);
          }));
    }
    text.move_to(result);
    return result;
  }

  Status read_assistant_message(const Fields& fields, const Json& content) {
    GANNET_TRY_STATUS(check_answered(fields.path("role")));
    Message message;
    message.role = Role::assistant;
    Content text(true);
    GANNET_TRY_STATUS(
        for_each_block(fields, content, text, [&](const Fields& block, const std::string& type) -> Status {
          if (type == "thinking") {
            GANNET_TRY(const auto thought, block.required_text("thinking"));
            message.reasoning = message.reasoning ? *message.reasoning + "\n\n" + thought : thought;
            return {};
          }
          if (type == "tool_use") return add_tool_use(block, message);
          return not_here(block, type, "an assistant message");
        }));
    if (text.has_images())
      return invalid_input("{}: an assistant message cannot hold an image", fields.path("content"));
    text.move_to(message);
    calls_ = open_calls_;
    request_->messages.push_back(std::move(message));
    return {};
  }

  Status add_tool_use(const Fields& block, Message& message) {
    ToolCall call;
    GANNET_TRY(call.id, block.required_text("id"));
    GANNET_TRY(call.name, block.required_text("name"));
    const Json* input = block.find("input");  // any JSON, null included
    call.arguments = input == nullptr ? "{}" : spaced_json(*input);
    if (!open_calls_.insert(call.id).second) {
      return invalid_input("{}: {} occurs twice", block.path("id"), shown(call.id));
    }
    message.tool_calls.push_back(std::move(call));
    return {};
  }

  using OtherBlock = std::function<Status(const Fields& block, const std::string& type)>;

  // Calls `other` for every block that is not text, image or document, and skips what only Anthropic's servers use.
  static Status for_each_block(const Fields& owner, const Json& content, Content& text, const OtherBlock& other,
                               bool* has_text = nullptr) {
    if (const auto* whole = content.string()) {
      text.add_text(*whole);
      return {};
    }
    const auto& blocks = *content.array();
    for (size_t index = 0; index < blocks.size(); ++index) {
      GANNET_TRY(const auto block, Fields::of(blocks[index], owner.path("content", index)));
      GANNET_TRY(const auto type, block.required_text("type"));
      const bool is_part = type == "text" || type == "image" || type == "document";
      if (is_part && has_text != nullptr) *has_text = true;
      if (type == "text") {
        GANNET_TRY(const auto part, block.required_text("text"));
        text.add_text(part);
      } else if (type == "image") {
        GANNET_TRY_STATUS(add_image_block(block, text));
      } else if (type == "document") {
        GANNET_TRY_STATUS(add_document_block(block, text));
      } else if (!is_hosted_block(type)) {
        GANNET_TRY_STATUS(other(block, type));
      }
    }
    return {};
  }

  static Status not_here(const Fields& block, std::string_view type, std::string_view where) {
    return invalid_input("{}: a block of type {} cannot stand in {}", block.path("type"), shown(type), where);
  }

  Status add_late_tool(const std::string& name, const std::string& path, Message& message) {
    const auto known = tools_by_name_.find(name);
    if (known == tools_by_name_.end()) {
      return invalid_input("{}: {} is not among the declared tools", path, shown(name));
    }
    message.tools.push_back(known->second);
    return {};
  }

  Status check_answered(std::string_view path) const {
    if (open_calls_.empty()) return {};
    return invalid_input("{}: expected a tool_result for the tool_use {} first; every call needs its result", path,
                         shown(*open_calls_.begin()));
  }

  const Fields& body_;
  ChatRequest* request_ = nullptr;
  std::unordered_set<std::string> hosted_tools_;
  std::unordered_map<std::string, ToolDefinition> tools_by_name_;
  std::string chosen_tool_;
  std::unordered_set<std::string> calls_;       // of the last assistant message
  std::unordered_set<std::string> open_calls_;  // those without a result so far
};

Status read_thinking_mode(const Fields& body, const ConversionOptions& options, ChatRequest& request) {
  GANNET_TRY(const auto enabled, read_thinking(body));
  std::optional<int> effort;
  GANNET_TRY(const auto config, body.object("output_config"));
  if (config) {
    GANNET_TRY(const auto name, config->text("effort"));
    if (name) {
      GANNET_TRY(effort, effort_by_name(*name, config->path("effort")));
    }
  }
  settle_thinking(request, options, enabled, effort);
  return {};
}

// How many tokens the reasoning may have.
Result<std::optional<int64_t>> read_budget(const Fields& body) {
  const Json* thinking = body.get("thinking");
  if (thinking == nullptr || !thinking->is_object()) return std::optional<int64_t>{};
  GANNET_TRY(const auto fields, Fields::of(*thinking, "thinking"));
  GANNET_TRY(const auto type, fields.text("type"));
  if (type != "enabled") return std::optional<int64_t>{};
  return fields.integer("budget_tokens", 1, std::numeric_limits<int64_t>::max());
}

// {"type": "json_schema", "schema": ...} as output_config.format, or in its older place, output_format.
Status read_output_format(const Fields& body, ResponseFormat& format) {
  GANNET_TRY(const auto config, body.object("output_config"));
  const bool is_nested = config && config->has("format");
  GANNET_TRY(const auto wanted, (is_nested ? *config : body).object(is_nested ? "format" : "output_format"));
  if (!wanted) return {};
  GANNET_TRY(const auto type, wanted->required_text("type"));
  if (type != "json_schema") {
    return invalid_input("{}: {} is not supported; expected json_schema", wanted->path("type"), shown(type));
  }
  const Json* schema = wanted->get("schema");
  if (schema == nullptr) return invalid_input("{}: missing; expected a JSON schema", wanted->path("schema"));
  GANNET_TRY_STATUS(check_schema(*schema, wanted->path("schema")));
  format.kind = ResponseFormat::Kind::json_schema;
  format.schema = *schema;
  return {};
}

}  // namespace

Result<ChatRequest> messages_request(std::string_view body, const ConversionOptions& options) {
  GANNET_TRY(const Json parsed, parse_body(body));
  GANNET_TRY(const auto fields, Fields::of(parsed, ""));
  ChatRequest request;
  GANNET_TRY(const auto model, fields.text("model"));
  request.model = model.value_or("");
  GANNET_TRY_STATUS(read_output(fields, request));
  GANNET_TRY_STATUS(read_thinking_mode(fields, options, request));
  GANNET_TRY(const auto budget, read_budget(fields));
  GANNET_TRY_STATUS(MessagesConverter(fields).convert(request));
  GANNET_TRY_STATUS(check_reasoning_came_back(request, options, "messages[].content[].thinking"));
  SamplingRequest& sampling = request.sampling;
  GANNET_TRY(sampling.max_tokens, fields.integer("max_tokens", 1, std::numeric_limits<int64_t>::max()));
  GANNET_TRY(sampling.temperature, fields.number("temperature", 0, 2));
  GANNET_TRY(sampling.top_p, fields.number("top_p", 0, 1));
  if (sampling.top_p && *sampling.top_p <= 0) return invalid_input("top_p: must be above 0 and at most 1");
  GANNET_TRY(const auto top_k, fields.number("top_k", -kMaxDouble, kMaxDouble));
  if (top_k && *top_k >= 1 && *top_k <= std::numeric_limits<int32_t>::max())
    sampling.top_k = static_cast<int64_t>(*top_k);
  GANNET_TRY_STATUS(read_more_sampling(fields, sampling));
  if (sampling.n != 1) return invalid_input("n: {}; a message is one answer, so it must be 1 or absent", sampling.n);
  if (!sampling.thinking_token_budget) sampling.thinking_token_budget = budget;
  GANNET_TRY_STATUS(read_stop(fields, "stop_sequences", sampling));
  GANNET_TRY_STATUS(read_output_format(fields, request.response_format));
  note_unknown_fields("messages", fields, kKnownFields);
  return request;
}

}  // namespace gannet::text

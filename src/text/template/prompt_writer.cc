#include "text/template/prompt_writer.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include "text/template/control_tokens.h"

namespace gannet::text {
namespace {

// Unknown ids count as the first call (spec: text, section 1.3 C).
void sort_tool_results(Turn& turn, const Message& assistant) {
  std::unordered_map<std::string_view, size_t> call_index;
  for (const ToolCall& call : assistant.tool_calls) call_index.try_emplace(call.id, call_index.size());
  std::vector<size_t> places;
  std::vector<std::pair<size_t, const Message*>> results;
  for (size_t place = 0; place < turn.messages.size(); ++place) {
    const Message* message = turn.messages[place];
    if (message->role != Role::tool || !message->tool_call_id) continue;
    const auto known = call_index.find(*message->tool_call_id);
    places.push_back(place);
    results.emplace_back(known == call_index.end() ? 0 : known->second, message);
  }
  std::stable_sort(results.begin(), results.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t next = 0; next < places.size(); ++next) turn.messages[places[next]] = results[next].second;
}

bool is_user_turn(Role role) {
  return role == Role::user || role == Role::tool;
}

void write_tag(PromptWriter& out, std::string_view open, std::string_view name) {
  out.plain(open);
  out.control(control::kDsml);
  out.plain(name);
}

void write_parameter(PromptWriter& out, std::string_view name, std::string_view value, bool is_string,
                     const ToolMarkup& markup) {
  write_tag(out, "<", markup.parameter);
  out.plain(" name=\"");
  out.plain(name);
  out.plain(is_string ? "\" string=\"true\">" : "\" string=\"false\">");
  out.plain(value);
  write_tag(out, "</", markup.parameter);
  out.plain(">");
}

void write_arguments(PromptWriter& out, const std::string& arguments, const ToolMarkup& markup) {
  const auto parsed = parse_json(arguments);
  const Json::Object* object = parsed ? parsed->object() : nullptr;
  if (object == nullptr) {
    out.plain("\n");
    write_parameter(out, "arguments", arguments, true, markup);
    out.plain("\n");
    return;
  }
  if (object->empty()) {
    out.plain(markup.no_parameters);
    return;
  }
  for (const auto& [key, value] : *object) {
    out.plain("\n");
    if (const auto* text = value.string()) {
      write_parameter(out, key, *text, true, markup);
    } else {
      write_parameter(out, key, markup.json(value), false, markup);
    }
  }
  out.plain("\n");
}

}  // namespace

std::string RenderedPrompt::text() const {
  std::string joined;
  for (const auto& segment : segments) joined += segment.text;
  return joined;
}

void PromptWriter::control(std::string_view spelling) {
  prompt_.segments.push_back({.text = std::string(spelling), .is_control = true});
}

void PromptWriter::plain(std::string_view text) {
  if (text.empty()) return;
  auto& segments = prompt_.segments;
  const bool continues = !segments.empty() && !segments.back().is_control && segments.back().sampled == nullptr;
  if (!continues) segments.push_back({});
  segments.back().text += text;
}

void PromptWriter::split_at(std::string_view text, std::span<const std::string_view> spellings) {
  // Every spelling begins with one of these two characters; nothing else needs a look.
  constexpr std::string_view kFullBar = "｜";
  size_t start = 0;
  for (size_t position = 0; position < text.size(); ++position) {
    if (text[position] != '<' && text[position] != kFullBar[0]) continue;
    const std::string_view rest = text.substr(position);
    for (const std::string_view spelling : spellings) {
      if (!rest.starts_with(spelling)) continue;
      plain(text.substr(start, position - start));
      control(spelling);
      start = position + spelling.size();
      position = start - 1;
      break;
    }
  }
  plain(text.substr(start));
}

void PromptWriter::markup(std::string_view text) {
  constexpr std::array<std::string_view, 3> kSpellings = {control::kThinkStart, control::kThinkEnd, control::kDsml};
  split_at(text, kSpellings);
}

void PromptWriter::grounded(std::string_view text) {
  split_at(text, control::kGrounding);
}

void PromptWriter::sampled(std::shared_ptr<const SampledMessage> message) {
  prompt_.segments.push_back({.text = "", .is_control = false, .sampled = std::move(message)});
}

void PromptWriter::content(const Message& message) {
  const std::string_view text = message.content;
  size_t start = 0;
  for (const Image& image : message.images) {
    plain(text.substr(start, image.offset - start));
    control(control::kImage);
    prompt_.images.push_back(image);
    start = image.offset;
  }
  plain(text.substr(start));
}

void write_effort(PromptWriter& out, const ChatRequest& request) {
  out.plain(fmt::format("Reasoning Effort: {} (range 1-100, the higher the value, the more thorough the reasoning)\n\n",
                        request.effort.value_or(kDefaultEffort)));
}

void write_calls_opening(PromptWriter& out, const ToolMarkup& markup) {
  write_tag(out, "\n\n<", markup.calls);
  out.plain(">\n");
}

void write_tool_calls(PromptWriter& out, std::span<const ToolCall> calls, const ToolMarkup& markup) {
  if (calls.empty()) return;
  write_calls_opening(out, markup);
  for (const ToolCall& call : calls) {
    write_tag(out, "<", markup.invoke);
    out.plain(" name=\"");
    out.plain(call.name);
    out.plain("\">");
    write_arguments(out, call.arguments, markup);
    write_tag(out, "</", markup.invoke);
    out.plain(">\n");
  }
  write_tag(out, "</", markup.calls);
  out.plain(">");
}

void write_tools_block(PromptWriter& out, std::span<const ToolDefinition> tools, const ToolMarkup& markup) {
  const std::string text = fmt::format(
      R"(## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<{0}{1}>" block like the following:

<{0}{1}>
<{0}{2} name="$TOOL_NAME">
<{0}{3} name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</{0}{3}>
...
</{0}{2}>
<{0}{2} name="$TOOL_NAME2">
...
</{0}{2}>
</{0}{1}>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

)",
      control::kDsml, markup.calls, markup.invoke, markup.parameter);
  out.markup(text);
  write_tool_schemas(out, tools, false, markup);
  out.plain("\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n");
}

void write_tool_schemas(PromptWriter& out, std::span<const ToolDefinition> tools, bool with_deferred,
                        const ToolMarkup& markup) {
  std::string_view separator;
  for (const ToolDefinition& tool : tools) {
    if (tool.defer_loading && !with_deferred) continue;
    out.plain(separator);
    out.plain(fmt::format(R"({{"name": {}, "description": {}, "parameters": {}}})", json_quote(tool.name),
                          json_quote(tool.description.value_or("")), markup.json(tool.parameters)));
    separator = "\n";
  }
}

bool has_prompt_text(const ResponseFormat& format) {
  return format.kind == ResponseFormat::Kind::json_object || format.kind == ResponseFormat::Kind::json_schema;
}

void write_response_format(PromptWriter& out, const ResponseFormat& format, const ToolMarkup& markup) {
  out.plain("## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n");
  out.plain(format.kind == ResponseFormat::Kind::json_object ? R"({"type": "json_object"})"
                                                             : markup.json(format.schema));
}

std::vector<Turn> make_turns(std::span<const Message* const> messages) {
  std::vector<Turn> turns;
  const Message* calling = nullptr;  // the nearest assistant message that made calls
  bool run_is_open = false;
  for (const Message* message : messages) {
    if (is_user_turn(message->role)) {
      if (!run_is_open) turns.push_back({Role::user, {}});
      turns.back().messages.push_back(message);
      run_is_open = message->task.empty();
      continue;
    }
    if (run_is_open && calling != nullptr) sort_tool_results(turns.back(), *calling);
    run_is_open = false;
    turns.push_back({message->role, {message}});
    if (message->role == Role::assistant && !message->tool_calls.empty()) calling = message;
  }
  if (run_is_open && calling != nullptr) sort_tool_results(turns.back(), *calling);
  return turns;
}

std::vector<const Message*> conversation(const ChatRequest& request, bool needs_system) {
  static const Message kEmptySystem = [] {
    Message message;
    message.role = Role::system;
    return message;
  }();
  std::vector<const Message*> messages;
  messages.reserve(request.messages.size() + 1);
  const bool has_system = !request.messages.empty() && request.messages.front().role == Role::system;
  if (needs_system && !has_system) messages.push_back(&kEmptySystem);
  for (const Message& message : request.messages) messages.push_back(&message);
  return messages;
}

void write_user_turn(PromptWriter& out, const Turn& turn) {
  std::string_view separator;
  for (const Message* message : turn.messages) {
    out.plain(separator);
    if (message->role == Role::tool) out.plain("<tool_result>");
    out.content(*message);
    if (message->role == Role::tool) out.plain("</tool_result>");
    separator = "\n\n";
  }
}

bool shows_tools(const ChatRequest& request) {
  return !request.tools.empty() && request.tool_choice != ToolChoice::none;
}

}  // namespace gannet::text

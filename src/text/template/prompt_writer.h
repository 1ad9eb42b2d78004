#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_encoder.h"
#include "text/chat_request.h"

namespace gannet::text {

// Collects the segments of a prompt.
class PromptWriter {
 public:
  // The spelling of one control token.
  void control(std::string_view spelling);
  // Text that never becomes a control token.
  void plain(std::string_view text);
  // Text of our own making in which the spellings of <think>, </think> and the DSML token are those tokens.
  void markup(std::string_view text);
  // An assistant's text: grounding tokens are control tokens, nothing else is.
  void grounded(std::string_view text);
  // What the model generated, unchanged.
  void sampled(std::shared_ptr<const SampledMessage> message);
  // A message's content with its images' placeholders.
  void content(const Message& message);

  RenderedPrompt take() { return std::move(prompt_); }

 private:
  void split_at(std::string_view text, std::span<const std::string_view> spellings);

  RenderedPrompt prompt_;
};

// How a model generation spells its tool markup: what follows the DSML token.
struct ToolMarkup {
  std::string_view calls;
  std::string_view invoke;
  std::string_view parameter;
  std::string_view no_parameters;    // what stands between the tags of a call without arguments
  std::string (*json)(const Json&);  // how values and schemas are printed
};
inline constexpr ToolMarkup kToolMarkupV41{" calls", " invoke", " parameter", "\n\n", python_json};
inline constexpr ToolMarkup kToolMarkupV4{"tool_calls", "invoke", "parameter", "\n", spaced_json};

// The line that tells the model how long to think.
void write_effort(PromptWriter& out, const ChatRequest& request);
inline constexpr int kDefaultEffort = 75;

// "\n\n<DSML calls>\n": what opens a block of calls.
void write_calls_opening(PromptWriter& out, const ToolMarkup& markup);
// The whole block of an assistant message's calls, with the two newlines before it; nothing if there are none.
void write_tool_calls(PromptWriter& out, std::span<const ToolCall> calls, const ToolMarkup& markup);
// "## Tools" to its final newline, listing the tools that are not deferred.
void write_tools_block(PromptWriter& out, std::span<const ToolDefinition> tools, const ToolMarkup& markup);
// One line of JSON per tool that is not deferred, joined by newlines.
void write_tool_schemas(PromptWriter& out, std::span<const ToolDefinition> tools, bool with_deferred,
                        const ToolMarkup& markup);
// "## Response Format:" and the schema; only for formats that have_prompt_text().
void write_response_format(PromptWriter& out, const ResponseFormat& format, const ToolMarkup& markup);
bool has_prompt_text(const ResponseFormat& format);

// One turn of the conversation as the templates see it: a message, or a run of user and tool messages that form one
// user turn.
struct Turn {
  Role role = Role::user;
  std::vector<const Message*> messages;  // one, unless role is user
  const Message& message() const { return *messages.front(); }
};

// Joins runs of user and tool messages (a user message with a task ends its run) and puts the tool results of each turn
// in the order of the calls they answer: only results with an id move, among their own places; an unknown id counts as
// the first call.
std::vector<Turn> make_turns(std::span<const Message* const> messages);
// Messages of a request, with an empty system message put first when `needs_system` and there is none.
std::vector<const Message*> conversation(const ChatRequest& request, bool needs_system);
// User text and tool results, joined by blank lines.
void write_user_turn(PromptWriter& out, const Turn& turn);

bool shows_tools(const ChatRequest& request);

// The three templates.
RenderedPrompt render_api(const ChatRequest& request);
RenderedPrompt render_checkpoint(const ChatRequest& request);
RenderedPrompt render_v4(const ChatRequest& request);

}  // namespace gannet::text

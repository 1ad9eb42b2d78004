#include <span>

#include "text/template/control_tokens.h"
#include "text/template/prompt_writer.h"

// The official API's rules (spec: text, the corrections; frozen cases in tests/data/text/chat_encode.jsonl).

namespace gannet::text {
namespace {

// Of several reminders in a row the first counts.
std::vector<Turn> without_repeated_reminders(std::vector<Turn> turns) {
  std::vector<Turn> kept;
  for (Turn& turn : turns) {
    const bool repeats =
        !kept.empty() && kept.back().role == Role::latest_reminder && turn.role == Role::latest_reminder;
    if (!repeats) kept.push_back(std::move(turn));
  }
  return kept;
}

class ApiTemplate {
 public:
  explicit ApiTemplate(const ChatRequest& request) : request_(request), shows_tools_(shows_tools(request)) {}

  RenderedPrompt render() {
    const bool formats = has_prompt_text(request_.response_format);
    const auto messages = conversation(request_, shows_tools_ || formats);
    const auto turns = without_repeated_reminders(make_turns(messages));
    out_.control(control::kBegin);
    for (size_t index = 0; index < turns.size(); ++index) write_turn(turns[index], index);
    const bool continues = !turns.empty() && turns.back().role == Role::assistant && turns.back().message().prefix;
    if (!continues && request_.add_generation_prompt) {
      out_.control(control::kAssistant);
      out_.control(request_.thinking ? control::kThinkStart : control::kThinkEnd);
    }
    if (shows_tools_ && request_.tool_choice == ToolChoice::required && request_.add_generation_prompt)
      write_calls_opening(out_, kToolMarkupV41);
    return out_.take();
  }

 private:
  void write_turn(const Turn& turn, size_t index) {
    if (index == 0 && (request_.thinking || turn.role == Role::system)) {
      out_.control(control::kSystem);
      if (request_.thinking) write_effort(out_, request_);
    }
    switch (turn.role) {
      case Role::system:
        return write_system(turn.message(), index);
      case Role::assistant:
        return write_assistant(turn.message(), index);
      case Role::latest_reminder:
        out_.control(control::kLatestReminder);
        return out_.content(turn.message());
      case Role::user:
      case Role::tool:
        out_.control(control::kUser);
        return write_user_turn(out_, turn);
    }
  }

  void write_system(const Message& message, size_t index) {
    if (index > 0) out_.control(control::kSystem);
    out_.content(message);
    if (index == 0 && shows_tools_) {
      out_.plain("\n\n");
      write_tools_block(out_, request_.tools, kToolMarkupV41);
    }
    if (index == 0 && has_prompt_text(request_.response_format)) {
      out_.plain("\n\n");
      write_response_format(out_, request_.response_format, kToolMarkupV41);
    }
    if (!message.tools.empty()) {
      out_.plain("\n\n### Updated Tool Schemas\n\n");
      write_tool_schemas(out_, message.tools, true, kToolMarkupV41);
    }
  }

  void write_assistant(const Message& message, size_t index) {
    // Reasoning of history shows only beside tools; that of a message to be continued always, unless nothing precedes
    // it.
    const bool keeps_reasoning = request_.thinking && (shows_tools_ || (message.prefix && index > 0));
    out_.control(control::kAssistant);
    if (message.sampled != nullptr) return write_sampled(message.sampled);
    if (keeps_reasoning) {
      out_.control(control::kThinkStart);
      out_.grounded(message.reasoning.value_or(""));
    }
    const bool reasoning_goes_on =
        keeps_reasoning && message.prefix && message.content.empty() && message.tool_calls.empty();
    if (!reasoning_goes_on) out_.control(control::kThinkEnd);
    out_.grounded(message.content);
    write_tool_calls(out_, message.tool_calls, kToolMarkupV41);
    if (!message.prefix) out_.control(control::kEnd);
  }

  void write_sampled(const std::shared_ptr<const SampledMessage>& message) {
    out_.control(message->thinking ? control::kThinkStart : control::kThinkEnd);
    if (message->calls_open) write_calls_opening(out_, kToolMarkupV41);
    out_.sampled(message);
    out_.control(control::kEnd);
  }

  const ChatRequest& request_;
  const bool shows_tools_;
  PromptWriter out_;
};

}  // namespace

RenderedPrompt render_api(const ChatRequest& request) {
  return ApiTemplate(request).render();
}

}  // namespace gannet::text

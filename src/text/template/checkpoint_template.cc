#include <algorithm>
#include <optional>

#include "text/template/control_tokens.h"
#include "text/template/prompt_writer.h"

// The rules of the encoder that ships with the checkpoint (spec: text, section 1.3).

namespace gannet::text {
namespace {

class CheckpointTemplate {
 public:
  explicit CheckpointTemplate(const ChatRequest& request) : request_(request), shows_tools_(shows_tools(request)) {}

  RenderedPrompt render() {
    const auto messages = conversation(request_, shows_tools_ || has_prompt_text(request_.response_format));
    turns_ = make_turns(messages);
    const bool has_tools = shows_tools_ || std::any_of(messages.begin(), messages.end(),
                                                       [](const Message* message) { return !message->tools.empty(); });
    drops_reasoning_ = request_.thinking && !has_tools && !request_.keep_reasoning;
    for (size_t index = 0; index < turns_.size(); ++index) {
      if (opens_answer(index)) last_question_ = index;
    }
    out_.control(control::kBegin);
    for (size_t index = 0; index < turns_.size(); ++index) {
      write_turn(index);
      write_what_follows(index);
    }
    if (shows_tools_ && request_.tool_choice == ToolChoice::required) write_calls_opening(out_, kToolMarkupV41);
    return out_.take();
  }

 private:
  // A user turn, or a system message in the middle of the conversation.
  bool opens_answer(size_t index) const {
    const Role role = turns_[index].role;
    return role == Role::user || (role == Role::system && index > 0);
  }

  const std::string& task(size_t index) const { return turns_[index].messages.back()->task; }

  void write_turn(size_t index) {
    const Turn& turn = turns_[index];
    if (index == 0 && (request_.thinking || turn.role == Role::system)) {
      out_.control(control::kSystem);
      if (request_.thinking) write_effort(out_, request_);
    }
    switch (turn.role) {
      case Role::system:
        return write_system(index);
      case Role::assistant:
        return write_assistant(index);
      case Role::latest_reminder:
        out_.control(control::kLatestReminder);
        return out_.content(turn.message());
      case Role::user:
      case Role::tool:
        out_.control(control::kUser);
        return write_user_turn(out_, turn);
    }
  }

  void write_system(size_t index) {
    const Message& message = turns_[index].message();
    if (index > 0) out_.control(control::kSystem);
    out_.content(message);
    if (index == 0 && shows_tools_) {
      out_.plain("\n\n");
      write_tools_block(out_, request_.tools, kToolMarkupV41);
    }
    if (!message.tools.empty()) {
      out_.plain("\n\n");
      write_tools_block(out_, message.tools, kToolMarkupV41);
    }
    if (index == 0 && has_prompt_text(request_.response_format)) {
      out_.plain("\n\n");
      write_response_format(out_, request_.response_format, kToolMarkupV41);
    }
  }

  void write_assistant(size_t index) {
    const Message& message = turns_[index].message();
    const bool follows_task = index > 0 && !task(index - 1).empty();
    const bool is_recent = !last_question_ || index > *last_question_;
    const bool goes_on = message.prefix && message.content.empty() && message.tool_calls.empty();
    if (request_.thinking && !follows_task && (!drops_reasoning_ || is_recent)) {
      out_.grounded(message.reasoning.value_or(""));
      if (!goes_on) out_.control(control::kThinkEnd);
    }
    out_.grounded(message.content);
    write_tool_calls(out_, message.tool_calls, kToolMarkupV41);
    if (!message.prefix) out_.control(control::kEnd);
  }

  void write_what_follows(size_t index) {
    if (index + 1 < turns_.size()) {
      const Role next = turns_[index + 1].role;
      if (next != Role::assistant && next != Role::latest_reminder) return;
    }
    const bool thinks = request_.thinking && (!drops_reasoning_ || !last_question_ || index >= *last_question_);
    const std::string_view think = thinks ? control::kThinkStart : control::kThinkEnd;
    if (task(index) == "action") {
      out_.control(control::kAssistant);
      out_.control(request_.thinking ? control::kThinkStart : control::kThinkEnd);
      out_.control("<｜action｜>");
    } else if (!task(index).empty()) {
      out_.control(fmt::format("<｜{}｜>", task(index)));
    } else if (opens_answer(index)) {
      out_.control(control::kAssistant);
      out_.control(think);
    }
  }

  const ChatRequest& request_;
  const bool shows_tools_;
  bool drops_reasoning_ = false;
  std::vector<Turn> turns_;
  std::optional<size_t> last_question_;  // the last turn that opens_answer()
  PromptWriter out_;
};

}  // namespace

RenderedPrompt render_checkpoint(const ChatRequest& request) {
  return CheckpointTemplate(request).render();
}

}  // namespace gannet::text

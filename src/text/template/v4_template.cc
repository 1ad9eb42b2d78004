#include <algorithm>

#include "text/template/control_tokens.h"
#include "text/template/prompt_writer.h"

// The official API's rules for DeepSeek-V4 (spec: text, section 1.4): no system token, all system text first, another
// effort text and another tool markup. Kept as a regression target.

namespace gannet::text {
namespace {

constexpr std::string_view kHighEffort =
    "Reasoning Effort: Absolute maximum with no shortcuts permitted.\n"
    "You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the root cause, "
    "rigorously stress-testing your logic against all potential paths, edge cases, and adversarial scenarios.\n"
    "Explicitly write out your entire deliberation process, documenting every intermediate step, considered "
    "alternative, and rejected hypothesis to ensure absolutely no assumption is left unchecked.\n\n";
constexpr std::string_view kMaxEffort =
    "Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.\n"
    "You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: exhaustively decompose the "
    "problem into its most fundamental components, trace every causal chain to its root, and resolve the underlying "
    "cause rather than any surface symptom.\n"
    "Do not stop reasoning until you have independently verified the solution from multiple angles and are certain "
    "that no assumption remains unchecked and no error remains undiscovered.\n\n";
constexpr std::string_view kJsonObject =
    "You are a helpful assistant designed to output JSON.\n## Response Format:\n\nReply with JSON object ONLY.";

// V4 knows three efforts; others count as the nearest below.
std::string_view effort_text(int effort) {
  if (effort >= 100) return kMaxEffort;
  return effort >= kDefaultEffort ? kHighEffort : "";
}

// V4 cannot see.
Message without_images(Message message) {
  for (auto image = message.images.rbegin(); image != message.images.rend(); ++image) {
    message.content.insert(image->offset, "[Unsupported Image]");
  }
  message.images.clear();
  return message;
}

// What V4 sees of a conversation: the system messages apart, and parallel calls in the order of their ids.
struct V4Conversation {
  std::vector<Message> system;
  std::vector<Message> others;

  explicit V4Conversation(const ChatRequest& request) {
    for (const Message& message : request.messages) {
      if (message.role == Role::system) {
        system.push_back(without_images(message));
        continue;
      }
      others.push_back(without_images(message));
      auto& calls = others.back().tool_calls;
      std::stable_sort(calls.begin(), calls.end(), [](const ToolCall& a, const ToolCall& b) { return a.id < b.id; });
    }
  }
};

void write_system(PromptWriter& out, const ChatRequest& request, const std::vector<Message>& messages) {
  std::string_view separator;
  for (const Message& message : messages) {
    out.plain(separator);
    out.content(message);
    separator = "\n\n";
  }
  if (shows_tools(request)) {
    out.plain("\n\n");
    write_tools_block(out, request.tools, kToolMarkupV4);
  }
  if (request.response_format.kind == ResponseFormat::Kind::json_object) {
    out.plain("\n\n");
    out.plain(kJsonObject);
  } else if (has_prompt_text(request.response_format)) {
    out.plain("\n\n");
    write_response_format(out, request.response_format, kToolMarkupV4);
  }
}

void write_assistant(PromptWriter& out, const Message& message, bool keeps_reasoning) {
  out.control(control::kAssistant);
  if (keeps_reasoning) {
    out.control(control::kThinkStart);
    out.grounded(message.reasoning.value_or(""));
  }
  const bool reasoning_goes_on =
      keeps_reasoning && message.prefix && message.content.empty() && message.tool_calls.empty();
  if (!reasoning_goes_on) out.control(control::kThinkEnd);
  out.grounded(message.content);
  write_tool_calls(out, message.tool_calls, kToolMarkupV4);
  if (!message.prefix) out.control(control::kEnd);
}

// Of several user messages in a row the empty ones leave nothing behind.
void write_user(PromptWriter& out, Turn turn) {
  auto& messages = turn.messages;
  const auto is_empty_user = [](const Message* message) {
    return message->role == Role::user && message->content.empty();
  };
  for (size_t index = 0; index < messages.size();) {
    const bool follows_user = index > 0 && messages[index - 1]->role == Role::user;
    const bool precedes_user = index + 1 < messages.size() && messages[index + 1]->role == Role::user;
    if (is_empty_user(messages[index]) && (follows_user || precedes_user)) {
      messages.erase(messages.begin() + static_cast<ptrdiff_t>(index));
    } else {
      ++index;
    }
  }
  out.control(control::kUser);
  write_user_turn(out, turn);
}

}  // namespace

RenderedPrompt render_v4(const ChatRequest& request) {
  const V4Conversation split(request);
  std::vector<const Message*> messages;
  for (const Message& message : split.others) messages.push_back(&message);
  const auto turns = make_turns(messages);
  PromptWriter out;
  out.control(control::kBegin);
  if (request.thinking) out.plain(effort_text(request.effort.value_or(kDefaultEffort)));
  write_system(out, request, split.system);
  for (const Turn& turn : turns) {
    if (turn.role == Role::assistant) {
      write_assistant(out, turn.message(), request.thinking && (shows_tools(request) || turn.message().prefix));
    } else if (turn.role == Role::latest_reminder) {
      out.control(control::kLatestReminder);
      out.content(turn.message());
    } else {
      write_user(out, turn);
    }
  }
  if (turns.empty() || turns.back().role != Role::assistant || !turns.back().message().prefix) {
    out.control(control::kAssistant);
    out.control(request.thinking ? control::kThinkStart : control::kThinkEnd);
  }
  if (shows_tools(request) && request.tool_choice == ToolChoice::required) write_calls_opening(out, kToolMarkupV4);
  return out.take();
}

}  // namespace gannet::text

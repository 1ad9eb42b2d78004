#include "server/answer_memory.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "text/chat_encoder.h"
#include "text/json_value.h"

namespace gannet::server {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

// The calls may come back in another order; the Responses API has none.
bool same_calls(const std::vector<text::ToolCall>& known, const std::vector<text::ToolCall>& sent) {
  if (known.size() != sent.size()) return false;
  return std::all_of(known.begin(), known.end(), [&sent](const text::ToolCall& call) {
    const auto same_id = [&call](const text::ToolCall& other) { return other.id == call.id; };
    const auto other = std::find_if(sent.begin(), sent.end(), same_id);
    return other != sent.end() && other->name == call.name && same_json(other->arguments, call.arguments);
  });
}

bool says_the_same(const AnswerMemory::Turn& turn, const text::Message& message) {
  if (message.prefix || !message.images.empty() || !same_calls(turn.calls, message.tool_calls)) return false;
  if (trimmed(message.content) != trimmed(turn.content)) return false;
  const std::string_view reasoning = trimmed(message.reasoning ? *message.reasoning : std::string_view());
  return reasoning.empty() || reasoning == trimmed(turn.reasoning);
}

size_t bytes_of(const AnswerMemory::Turn& turn) {
  constexpr size_t kOverhead = 256;  // of the containers, for a turn and for a call
  size_t bytes = kOverhead + turn.sampled.ids.size() * sizeof(int32_t) + turn.reasoning.size() + turn.content.size();
  for (const auto& call : turn.calls) bytes += kOverhead + call.id.size() + call.name.size() + call.arguments.size();
  return bytes;
}

}  // namespace

bool same_json(const std::string& left, const std::string& right) {
  if (left == right) return true;
  const auto one = text::parse_json(left);
  const auto other = text::parse_json(right);
  return one && other && text::same_value(*one, *other);
}

void AnswerMemory::remember(Turn turn) {
  const size_t bytes = bytes_of(turn);
  if (bytes > byte_limit_ || turn.calls.empty()) return;
  auto kept = std::make_shared<const Turn>(std::move(turn));
  const std::lock_guard lock(mutex_);
  while (bytes_ + bytes > byte_limit_) forget_oldest();
  bytes_ += bytes;
  turns_.push_front(std::move(kept));
  for (const auto& call : turns_.front()->calls) by_call_[call.id] = turns_.begin();
}

void AnswerMemory::forget_oldest() {
  const auto& oldest = *turns_.back();
  bytes_ -= bytes_of(oldest);
  for (const auto& call : oldest.calls) by_call_.erase(call.id);
  turns_.pop_back();
}

std::shared_ptr<const AnswerMemory::Turn> AnswerMemory::find(const std::string& call_id) {
  const std::lock_guard lock(mutex_);
  const auto found = by_call_.find(call_id);
  if (found == by_call_.end()) return nullptr;
  turns_.splice(turns_.begin(), turns_, found->second);
  return turns_.front();
}

AnswerMemory::Replays AnswerMemory::splice(text::ChatRequest& chat) {
  Replays replays;
  // Where reasoning is not shown, or shown where there was none, the header before the message is another one.
  const bool shows_tools = text::parse_options(chat).tools;
  for (auto& message : chat.messages) {
    if (message.tool_calls.empty()) continue;
    const auto turn = find(message.tool_calls.front().id);
    if (turn == nullptr) {
      ++replays.unknown;
    } else if (turn->sampled.thinking == (chat.thinking && shows_tools) && says_the_same(*turn, message)) {
      ++replays.spliced;
      message.sampled = std::shared_ptr<const text::SampledMessage>(turn, &turn->sampled);
    } else {
      ++replays.mismatched;
    }
  }
  return replays;
}

void AnswerMemory::count(const Replays& replays) {
  const std::lock_guard lock(mutex_);
  replays_.spliced += replays.spliced;
  replays_.mismatched += replays.mismatched;
  replays_.unknown += replays.unknown;
}

AnswerMemory::Counts AnswerMemory::counts() const {
  const std::lock_guard lock(mutex_);
  return {.replays = replays_, .turns = static_cast<int64_t>(turns_.size()), .bytes = static_cast<int64_t>(bytes_)};
}

}  // namespace gannet::server

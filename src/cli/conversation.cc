#include "cli/conversation.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace gannet::cli {
namespace {

constexpr std::array<std::string_view, 5> kEffortNames = {"minimal", "low", "medium", "high", "max"};

bool is_effort_name(std::string_view value) {
  return std::find(kEffortNames.begin(), kEffortNames.end(), value) != kEffortNames.end();
}

std::optional<int> effort_number(const std::string& value) {
  int number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  const bool whole = error == std::errc() && end == value.data() + value.size();
  return whole && number >= 1 && number <= 100 ? std::optional(number) : std::nullopt;
}

}  // namespace

Status check_thinking(const std::string& value, const std::string& name) {
  if (value.empty() || value == "on" || value == "off" || is_effort_name(value) || effort_number(value)) return {};
  return invalid_input("{} is '{}'; it must be on, off, {} or a number from 1 to 100", name, value,
                       fmt::join(kEffortNames, ", "));
}

Status Conversation::set_thinking(const std::string& value) {
  GANNET_TRY_STATUS(check_thinking(value, "/thinking"));
  settings_.thinking = value;
  return {};
}

std::string Conversation::request(const std::string& text) const {
  nlohmann::ordered_json body;
  if (!settings_.model.empty()) body["model"] = settings_.model;
  body["messages"] = nlohmann::ordered_json::array();
  if (!settings_.system.empty()) body["messages"].push_back({{"role", "system"}, {"content", settings_.system}});
  for (const auto& message : messages_) body["messages"].push_back(message);
  body["messages"].push_back({{"role", "user"}, {"content", text}});
  body["stream"] = true;
  body["stream_options"]["include_usage"] = true;
  body["temperature"] = settings_.temperature;
  if (settings_.top_p) body["top_p"] = *settings_.top_p;
  if (settings_.max_tokens) body["max_tokens"] = *settings_.max_tokens;
  if (settings_.seed) body["seed"] = *settings_.seed;
  const std::string& thinking = settings_.thinking;
  if (!thinking.empty()) body["thinking"]["type"] = thinking == "off" ? "disabled" : "enabled";
  if (is_effort_name(thinking)) body["reasoning_effort"] = thinking;
  if (const auto number = effort_number(thinking)) body["reasoning_effort"] = *number;
  return body.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void Conversation::add_turn(const std::string& text, const server::ChatTurn& answer) {
  messages_.push_back({{"role", "user"}, {"content", text}});
  nlohmann::ordered_json message = {{"role", "assistant"}, {"content", answer.content}};
  if (!answer.reasoning.empty()) message["reasoning_content"] = answer.reasoning;
  messages_.push_back(std::move(message));
}

}  // namespace gannet::cli

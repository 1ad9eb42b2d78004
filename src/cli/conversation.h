#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/error.h"
#include "server/chat_client.h"

namespace gannet::cli {

// What `gannet chat` keeps between turns, and the request it makes of it.
class Conversation {
 public:
  struct Settings {
    std::string model;  // empty: whatever the server has
    std::string system;
    std::string thinking;  // "on", "off", an effort's name or number; empty: the server's default
    double temperature = 1;
    std::optional<double> top_p;
    std::optional<int64_t> max_tokens;
    std::optional<int64_t> seed;
  };

  explicit Conversation(Settings settings) : settings_(std::move(settings)) {}

  // The body of a request that adds `text` to the conversation. Nothing is kept until add_turn().
  std::string request(const std::string& text) const;
  void add_turn(const std::string& text, const server::ChatTurn& answer);
  void clear() { messages_ = nlohmann::ordered_json::array(); }
  void set_system(std::string text) { settings_.system = std::move(text); }
  // Error (invalid_input): not on, off, low, medium, high, max or 1..100.
  Status set_thinking(const std::string& value);
  const Settings& settings() const { return settings_; }

 private:
  Settings settings_;
  nlohmann::ordered_json messages_ = nlohmann::ordered_json::array();
};

Status check_thinking(const std::string& value, const std::string& name);

}  // namespace gannet::cli

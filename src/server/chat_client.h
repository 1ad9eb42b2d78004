#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"
#include "server/http_client.h"
#include "server/served_model.h"

namespace gannet::server {

// One turn of a chat as its listener sees it.
struct ChatTurn {
  std::string reasoning;
  std::string content;
  std::string finish_reason;  // empty: it did not come to its end
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
};

struct ChatListener {
  std::function<void(std::string_view)> on_reasoning;
  std::function<void(std::string_view)> on_content;
  std::function<bool()> keep_going;  // asked several times a second; false ends the turn
};

// Something that answers Chat Completions bodies by streaming.
class ChatBackend {
 public:
  virtual ~ChatBackend() = default;
  // `body` must ask for a stream with usage. Error: the refusal's message, or what broke.
  virtual Result<ChatTurn> ask(const std::string& body, const ChatListener& listener) = 0;
};

// The model in this process; `model` must outlive the result.
std::unique_ptr<ChatBackend> local_chat(const ServedModel& model);
// A running server; `url` may end in /v1. `api_key` may be empty.
std::unique_ptr<ChatBackend> remote_chat(Url url, std::string api_key);

}  // namespace gannet::server

#include "server/chat_client.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/openai_chat.h"
#include "server/sse_reader.h"

namespace gannet::server {
namespace {

using Json = nlohmann::json;

constexpr auto kPollInterval = std::chrono::milliseconds(50);

std::string text_of(const Json& object, const char* field) {
  const auto found = object.find(field);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

int64_t number_of(const Json& object, const char* field) {
  const auto found = object.find(field);
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

// OpenAI's error body; other bodies are shown as they are.
std::string error_message(const std::string& body) {
  constexpr size_t kLongest = 500;
  const Json json = Json::parse(body, nullptr, false);
  if (json.is_object() && json.contains("error") && json["error"].is_object()) {
    return text_of(json["error"], "message");
  }
  return body.substr(0, kLongest);
}

// Puts a turn together from the chunks of its stream. Other servers' chunks may lack any field.
class TurnReader {
 public:
  explicit TurnReader(const ChatListener& listener) : listener_(listener) {}

  void push(std::string_view bytes) {
    sse_.push(bytes, [this](std::string_view data) { take(data); });
  }

  Result<ChatTurn> finish() {
    if (!error_.empty()) return failed("{}", error_);
    return std::move(turn_);
  }

 private:
  void take(std::string_view data) {
    const Json chunk = Json::parse(data, nullptr, false);
    if (!chunk.is_object()) return;
    if (chunk.contains("error")) error_ = error_message(std::string(data));
    if (const auto usage = chunk.find("usage"); usage != chunk.end() && usage->is_object()) {
      turn_.prompt_tokens = number_of(*usage, "prompt_tokens");
      turn_.completion_tokens = number_of(*usage, "completion_tokens");
    }
    const auto choices = chunk.find("choices");
    if (choices == chunk.end() || !choices->is_array() || choices->empty() || !choices->front().is_object()) return;
    const Json& choice = choices->front();
    if (const auto reason = text_of(choice, "finish_reason"); !reason.empty()) turn_.finish_reason = reason;
    const auto delta = choice.find("delta");
    if (delta == choice.end() || !delta->is_object()) return;
    std::string reasoning = text_of(*delta, "reasoning_content");
    if (reasoning.empty()) reasoning = text_of(*delta, "reasoning");
    const std::string content = text_of(*delta, "content");
    turn_.reasoning += reasoning;
    turn_.content += content;
    if (!reasoning.empty()) listener_.on_reasoning(reasoning);
    if (!content.empty()) listener_.on_content(content);
  }

  const ChatListener& listener_;
  SseReader sse_;
  ChatTurn turn_;
  std::string error_;
};

class LocalChat : public ChatBackend {
 public:
  explicit LocalChat(const ServedModel& model) : model_(model) {}

  Result<ChatTurn> ask(const std::string& body, const ChatListener& listener) override {
    HttpRequest request;
    request.method = "POST";
    request.body = body;
    Reply reply = openai_chat(model_, request);
    if (const auto* refusal = std::get_if<HttpResponse>(&reply)) return failed("{}", error_message(refusal->body));
    auto* stream = std::get_if<std::unique_ptr<StreamedAnswer>>(&reply);
    GANNET_CHECK(stream != nullptr);

    TurnReader reader(listener);
    // The answer may call the signal until it is destroyed, so the signal is shared with it.
    const auto signal = std::make_shared<Signal>();
    (*stream)->start([signal] { signal->set(); });
    for (bool complete = false; !complete && listener.keep_going();) {
      std::string piece;
      complete = (*stream)->pull(piece);
      reader.push(piece);
      if (piece.empty() && !complete) signal->wait();
    }
    return reader.finish();
  }

 private:
  class Signal {
   public:
    void set() {
      const std::lock_guard lock(mutex_);
      set_ = true;
      changed_.notify_one();
    }
    void wait() {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kPollInterval, [this] { return set_; });
      set_ = false;
    }

   private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool set_ = false;
  };

  const ServedModel& model_;
};

class RemoteChat : public ChatBackend {
 public:
  RemoteChat(Url url, std::string api_key) : url_(std::move(url)), api_key_(std::move(api_key)) {
    constexpr std::string_view kVersion = "/v1";
    if (url_.path.ends_with(kVersion)) url_.path.resize(url_.path.size() - kVersion.size());
  }

  Result<ChatTurn> ask(const std::string& body, const ChatListener& listener) override {
    TurnReader reader(listener);
    ClientRequest request;
    request.method = "POST";
    request.path = "/v1/chat/completions";
    request.headers.emplace_back("Content-Type", "application/json");
    request.headers.emplace_back("Accept", "text/event-stream");
    if (!api_key_.empty()) request.headers.emplace_back("Authorization", "Bearer " + api_key_);
    request.body = body;
    request.on_data = [&reader](std::string_view bytes) { reader.push(bytes); };
    request.keep_going = listener.keep_going;
    GANNET_TRY(const ClientResponse response, send_request(url_, request));
    if (response.status != 200 && !response.cancelled) {
      return failed("{} answered {}: {}", url_.text(), response.status, error_message(response.body));
    }
    return reader.finish();
  }

 private:
  Url url_;
  std::string api_key_;
};

}  // namespace

std::unique_ptr<ChatBackend> local_chat(const ServedModel& model) {
  return std::make_unique<LocalChat>(model);
}

std::unique_ptr<ChatBackend> remote_chat(Url url, std::string api_key) {
  return std::make_unique<RemoteChat>(std::move(url), std::move(api_key));
}

}  // namespace gannet::server

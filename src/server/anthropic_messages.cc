#include "server/anthropic_messages.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "server/answer_conversation.h"
#include "server/openai_json.h"
#include "text/chat_encoder.h"
#include "text/protocol/messages_body.h"

namespace gannet::server {
namespace {

using text::Delta;

constexpr std::string_view kPing = "event: ping\ndata: {\"type\":\"ping\"}\n\n";

OrderedJson messages_usage(const AnswerSet& answers, int64_t output_tokens) {
  OrderedJson usage;
  usage["input_tokens"] = answers.prompt_tokens() - answers.cached_tokens();
  usage["cache_creation_input_tokens"] = 0;
  usage["cache_read_input_tokens"] = answers.cached_tokens();
  usage["output_tokens"] = output_tokens;
  usage["service_tier"] = "standard";
  return usage;
}

std::string_view stop_reason(const text::ParsedMessage& message) {
  if (message.stop_sequence) return "stop_sequence";
  switch (message.finish_reason) {
    case text::FinishReason::stop:
      return "end_turn";
    case text::FinishReason::length:
      return "max_tokens";
    case text::FinishReason::content_filter:
      return "refusal";
    case text::FinishReason::tool_calls:
      return "tool_use";
  }
  return "end_turn";
}

OrderedJson string_or_null(const std::optional<std::string>& text) {
  return text ? OrderedJson(*text) : OrderedJson(nullptr);
}

// What all parts of one answer need.
struct Response {
  std::string id;  // also the signature of its thinking: clients only send that back
  std::string model;
  bool thinks = false;  // the answer begins with reasoning, which is shown, be it empty
  bool shows_reasoning = true;

  OrderedJson message() const {
    OrderedJson json;
    json["id"] = id;
    json["type"] = "message";
    json["role"] = "assistant";
    json["model"] = model;
    json["content"] = OrderedJson::array();
    json["stop_reason"] = nullptr;
    json["stop_sequence"] = nullptr;
    return json;
  }
};

class MessagesStream : public StreamedAnswer {
 public:
  MessagesStream(Response response, AnswerSet answers) : response_(std::move(response)), answers_(std::move(answers)) {}

  void start(std::function<void()> wake) override { answers_.notify(wake); }
  std::string content_type() const override { return "text/event-stream"; }
  Headers headers() const override { return stream_headers(); }
  // Clients expect message_start before any other event, and nothing but events.
  void keep_alive(std::string& out) override {
    if (!std::exchange(begun_, true)) write_start(out);
    out += kPing;
  }
  int64_t tokens() const override { return answers_.completion_tokens(); }

  bool pull(std::string& out) override {
    Answer& answer = answers_[0];
    const auto step = answer.advance();
    if (const auto& error = answer.error()) {
      out += "event: error\ndata: " + anthropic_error_body(api_error(*error)) + "\n\n";
      return true;
    }
    if (answer.running() && !std::exchange(begun_, true)) write_start(out);
    for (const auto& delta : step.deltas) write_delta(delta, out);
    if (!answer.ended()) return false;
    close_block(out);
    write_end(out);
    return true;
  }

 private:
  enum class Block { none, thinking, text, tool_use };

  void write_start(std::string& out) const {
    OrderedJson event;
    event["type"] = "message_start";
    event["message"] = response_.message();
    event["message"]["usage"] = messages_usage(answers_, 0);
    out += sse_event("message_start", event);
  }

  void write_end(std::string& out) const {
    const auto& message = answers_[0].message();
    OrderedJson event;
    event["type"] = "message_delta";
    event["delta"]["stop_reason"] = stop_reason(message);
    event["delta"]["stop_sequence"] = string_or_null(message.stop_sequence);
    event["usage"] = messages_usage(answers_, answers_.completion_tokens());
    out += sse_event("message_delta", event);
    out += "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
  }

  void write_delta(const Delta& delta, std::string& out) {
    if (delta.kind == Delta::Kind::reasoning) {
      if (!response_.shows_reasoning) return;
      if (open_ != Block::thinking) open_thinking(out);
      return write_piece("thinking_delta", "thinking", delta.text, out);
    }
    // Whoever is to think shows a block for it, also when nothing was thought.
    if (response_.thinks && next_ == 0) open_thinking(out);
    if (delta.kind == Delta::Kind::content) {
      if (open_ != Block::text) open_block(Block::text, {{"type", "text"}, {"text", ""}}, out);
      return write_piece("text_delta", "text", delta.text, out);
    }
    if (delta.kind == Delta::Kind::arguments) return write_piece("input_json_delta", "partial_json", delta.text, out);
    OrderedJson block;
    block["type"] = "tool_use";
    block["id"] = answers_[0].call_ids()[static_cast<size_t>(delta.call)];
    block["name"] = delta.text;
    block["input"] = OrderedJson::object();
    open_block(Block::tool_use, std::move(block), out);
  }

  void open_thinking(std::string& out) {
    open_block(Block::thinking, {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}}, out);
  }

  void open_block(Block kind, OrderedJson block, std::string& out) {
    close_block(out);
    open_ = kind;
    OrderedJson event;
    event["type"] = "content_block_start";
    event["index"] = next_;
    event["content_block"] = std::move(block);
    out += sse_event("content_block_start", event);
    if (next_++ == 0) out += kPing;
  }

  void close_block(std::string& out) {
    if (open_ == Block::none) return;
    if (open_ == Block::thinking) write_piece("signature_delta", "signature", response_.id, out);
    open_ = Block::none;
    OrderedJson event;
    event["type"] = "content_block_stop";
    event["index"] = next_ - 1;
    out += sse_event("content_block_stop", event);
  }

  void write_piece(const char* type, const char* member, const std::string& text, std::string& out) const {
    OrderedJson event;
    event["type"] = "content_block_delta";
    event["index"] = next_ - 1;
    event["delta"]["type"] = type;
    event["delta"][member] = text;
    out += sse_event("content_block_delta", event);
  }

  Response response_;
  AnswerSet answers_;
  bool begun_ = false;
  Block open_ = Block::none;
  int next_ = 0;  // index of the next block
};

class MessagesWhole : public WholeAnswer {
 public:
  MessagesWhole(Response response, AnswerSet answers, std::string request_id)
      : response_(std::move(response)), answers_(std::move(answers)), request_id_(std::move(request_id)) {}

  void start(std::function<void()> wake) override { answers_.notify(wake); }
  int64_t tokens() const override { return answers_.completion_tokens(); }

  std::optional<HttpResponse> poll() override {
    Answer& answer = answers_[0];
    answer.advance();
    if (!answer.ended()) return std::nullopt;
    if (const auto& error = answer.error()) return anthropic_error(api_error(*error), request_id_);
    const auto& message = answer.message();
    OrderedJson json = response_.message();
    add_content(answer, json["content"]);
    json["stop_reason"] = stop_reason(message);
    json["stop_sequence"] = string_or_null(message.stop_sequence);
    json["usage"] = messages_usage(answers_, answers_.completion_tokens());
    HttpResponse response;
    response.body = to_text(json);
    return response;
  }

 private:
  void add_content(const Answer& answer, OrderedJson& content) const {
    const auto& message = answer.message();
    const std::string text = answer.content();
    const bool says_something = !text.empty() || !message.tool_calls.empty();
    const bool thought = response_.shows_reasoning && !message.reasoning.empty();
    if (thought || (response_.thinks && says_something)) {
      content.push_back({{"type", "thinking"}, {"thinking", message.reasoning}, {"signature", response_.id}});
    }
    if (!text.empty()) content.push_back({{"type", "text"}, {"text", text}});
    for (size_t index = 0; index < message.tool_calls.size(); ++index) {
      OrderedJson block;
      block["type"] = "tool_use";
      block["id"] = answer.call_ids()[index];
      block["name"] = message.tool_calls[index].name;
      block["input"] = OrderedJson::parse(message.tool_calls[index].arguments, nullptr, false);
      content.push_back(std::move(block));
    }
  }

  Response response_;
  AnswerSet answers_;
  std::string request_id_;
};

ApiResult<Reply> answer(const ServedModel& model, const HttpRequest& request) {
  auto chat = text::messages_request(request.body, model.conversion);
  if (!chat) return tl::unexpected(api_error(chat.error()));
  Response response;
  response.id = new_id("msg_");
  response.model = model.names.front();
  response.shows_reasoning = chat->include_reasoning;
  response.thinks =
      response.shows_reasoning && text::parse_options(*chat).stage == text::ParseOptions::Stage::reasoning;
  GANNET_TRY(AnswerSet answers, answer_conversation(model, *chat, response.id));
  if (chat->stream) return std::make_unique<MessagesStream>(std::move(response), std::move(answers));
  return std::make_unique<MessagesWhole>(std::move(response), std::move(answers), request.id);
}

ApiResult<Reply> count(const ServedModel& model, const HttpRequest& request) {
  auto chat = text::messages_request(request.body, model.conversion);
  if (!chat) return tl::unexpected(api_error(chat.error()));
  GANNET_TRY(const auto prompt, conversation_prompt(model, *chat));
  HttpResponse response;
  OrderedJson json;
  json["input_tokens"] = prompt.size();
  response.body = to_text(json);
  return response;
}

}  // namespace

Reply anthropic_messages(const ServedModel& model, const HttpRequest& request) {
  auto reply = answer(model, request);
  return reply ? *std::move(reply) : Reply(anthropic_error(reply.error(), request.id));
}

Reply anthropic_count_tokens(const ServedModel& model, const HttpRequest& request) {
  auto reply = count(model, request);
  return reply ? *std::move(reply) : Reply(anthropic_error(reply.error(), request.id));
}

}  // namespace gannet::server

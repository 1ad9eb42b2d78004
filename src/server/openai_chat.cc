#include "server/openai_chat.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "server/answer_set.h"
#include "server/openai_json.h"
#include "text/chat_encoder.h"
#include "text/protocol/chat_body.h"

namespace gannet::server {
namespace {

using text::Delta;

// What every part of the response needs.
struct ChatResponse {
  std::string id = new_id("chatcmpl-");
  int64_t created = unix_time();
  std::string model;
  const text::Tokenizer* tokenizer = nullptr;
  bool thinking = false;
  bool logprobs = false;
  bool include_usage = false;
  bool continuous_usage = false;

  OrderedJson head(std::string_view object) const {
    OrderedJson json;
    json["id"] = id;
    json["object"] = object;
    json["created"] = created;
    json["model"] = model;
    return json;
  }
};

OrderedJson logprob_entry(const text::Tokenizer& tokenizer, int32_t id, float logprob) {
  OrderedJson entry;
  const std::string text = token_display(tokenizer, id);
  entry["token"] = text;
  entry["logprob"] = finite_logprob(logprob);
  entry["bytes"] = OrderedJson::array();
  for (const char byte : text) entry["bytes"].push_back(static_cast<unsigned char>(byte));
  return entry;
}

// Null without tokens that have one.
OrderedJson logprobs_json(const text::Tokenizer& tokenizer, const std::vector<Token>& tokens) {
  OrderedJson content = OrderedJson::array();
  for (const auto& token : tokens) {
    if (!token.logprob) continue;
    OrderedJson entry = logprob_entry(tokenizer, token.logprob->id, token.logprob->logprob);
    entry["top_logprobs"] = OrderedJson::array();
    for (const auto& other : token.top_logprobs) {
      entry["top_logprobs"].push_back(logprob_entry(tokenizer, other.id, other.logprob));
    }
    content.push_back(std::move(entry));
  }
  if (content.empty()) return nullptr;
  OrderedJson json;
  json["content"] = std::move(content);
  return json;
}

OrderedJson delta_json(const Delta& delta) {
  OrderedJson json;
  if (delta.kind == Delta::Kind::reasoning) {
    json["reasoning_content"] = delta.text;
  } else if (delta.kind == Delta::Kind::content) {
    json["content"] = delta.text;
  } else {
    OrderedJson call;
    call["index"] = delta.call;
    if (delta.kind == Delta::Kind::tool_call) {
      call["id"] = new_id("call_");
      call["type"] = "function";
      call["function"]["name"] = delta.text;
      call["function"]["arguments"] = "";
    } else {
      call["function"]["arguments"] = delta.text;
    }
    json["tool_calls"] = OrderedJson::array({std::move(call)});
  }
  return json;
}

class ChatStream : public StreamedAnswer {
 public:
  ChatStream(ChatResponse response, AnswerSet answers)
      : response_(std::move(response)), answers_(std::move(answers)), choices_(answers_.size()) {}

  void start(std::function<void()> wake) override { answers_.notify(wake); }
  std::string content_type() const override { return "text/event-stream"; }
  Headers headers() const override { return stream_headers(response_.id); }
  std::string_view keep_alive() const override { return kSsePing; }

  bool pull(std::string& out) override {
    for (size_t index = 0; index < answers_.size(); ++index) {
      if (!choices_[index].finished) advance(index, out);
      if (const auto& error = answers_[index].error()) {
        out += sse_error(*error);
        out += kSseDone;
        return true;
      }
    }
    if (!answers_.all_ended()) return false;
    if (response_.include_usage) {
      OrderedJson last = response_.head("chat.completion.chunk");
      last["choices"] = OrderedJson::array();
      last["usage"] = usage_json(answers_);
      out += sse_event(last);
    }
    out += kSseDone;
    return true;
  }

 private:
  struct Choice {
    bool begun = false;
    bool finished = false;
    std::vector<Token> tokens;  // generated since the last chunk; only kept for their logprobs
  };

  void advance(size_t index, std::string& out) {
    Answer& answer = answers_[index];
    Choice& choice = choices_[index];
    auto step = answer.advance();
    if (!answer.started()) return;
    if (!std::exchange(choice.begun, true)) {
      OrderedJson first;
      first["role"] = "assistant";
      first["content"] = "";
      out += chunk(index, std::move(first), nullptr);
    }
    if (response_.logprobs) {
      for (auto& token : step.tokens) choice.tokens.push_back(std::move(token));
    }
    for (const auto& delta : step.deltas) out += chunk(index, delta_json(delta), nullptr);
    if (!answer.ended() || answer.error()) return;
    choice.finished = true;
    OrderedJson last;
    last["content"] = "";
    out += chunk(index, std::move(last), text::finish_reason_name(answer.message().finish_reason));
  }

  std::string chunk(size_t index, OrderedJson delta, const OrderedJson& finish_reason) {
    OrderedJson choice;
    choice["index"] = index;
    choice["delta"] = std::move(delta);
    choice["logprobs"] = logprobs_json(*response_.tokenizer, std::exchange(choices_[index].tokens, {}));
    choice["finish_reason"] = finish_reason;
    const auto& stop = answers_[index].message().stop_sequence;
    if (!finish_reason.is_null() && stop) choice["stop_reason"] = *stop;
    OrderedJson json = response_.head("chat.completion.chunk");
    json["choices"] = OrderedJson::array({std::move(choice)});
    if (response_.continuous_usage) {
      json["usage"] = usage_json(answers_);
    } else if (response_.include_usage) {
      json["usage"] = nullptr;
    }
    return sse_event(json);
  }

  ChatResponse response_;
  AnswerSet answers_;
  std::vector<Choice> choices_;
};

class ChatWhole : public WholeAnswer {
 public:
  ChatWhole(ChatResponse response, AnswerSet answers)
      : response_(std::move(response)), answers_(std::move(answers)), tokens_(answers_.size()) {}

  void start(std::function<void()> wake) override { answers_.notify(wake); }

  std::optional<HttpResponse> poll() override {
    for (size_t index = 0; index < answers_.size(); ++index) {
      auto step = answers_[index].advance();
      if (response_.logprobs) {
        for (auto& token : step.tokens) tokens_[index].push_back(std::move(token));
      }
      if (const auto& error = answers_[index].error()) return openai_error(api_error(*error));
    }
    if (!answers_.all_ended()) return std::nullopt;

    OrderedJson json = response_.head("chat.completion");
    json["choices"] = OrderedJson::array();
    for (size_t index = 0; index < answers_.size(); ++index) json["choices"].push_back(choice(index));
    json["usage"] = usage_json(answers_);
    HttpResponse response;
    response.body = to_text(json);
    response.headers = answer_headers(response_.id);
    return response;
  }

 private:
  OrderedJson choice(size_t index) const {
    const auto& message = answers_[index].message();
    OrderedJson json;
    json["index"] = index;
    json["message"] = message_json(answers_[index]);
    json["logprobs"] = logprobs_json(*response_.tokenizer, tokens_[index]);
    json["finish_reason"] = text::finish_reason_name(message.finish_reason);
    if (message.stop_sequence) json["stop_reason"] = *message.stop_sequence;
    return json;
  }

  OrderedJson message_json(const Answer& answer) const {
    const auto& message = answer.message();
    const std::string content = answer.content();
    OrderedJson json;
    json["role"] = "assistant";
    json["content"] = content;
    // A call without words has no content, as OpenAI's clients expect; any other answer has at least an empty one.
    if (content.empty() && !message.tool_calls.empty()) json["content"] = nullptr;
    if (response_.thinking || !message.reasoning.empty()) json["reasoning_content"] = message.reasoning;
    if (message.tool_calls.empty()) return json;
    json["tool_calls"] = OrderedJson::array();
    for (const auto& parsed : message.tool_calls) {
      OrderedJson call;
      call["id"] = new_id("call_");
      call["type"] = "function";
      call["function"]["name"] = parsed.name;
      call["function"]["arguments"] = parsed.arguments;
      json["tool_calls"].push_back(std::move(call));
    }
    return json;
  }

  ChatResponse response_;
  AnswerSet answers_;
  std::vector<std::vector<Token>> tokens_;  // of each answer; only kept for their logprobs
};

ApiResult<void> check_images(const text::ChatRequest& chat) {
  for (const auto& message : chat.messages) {
    if (message.images.empty()) continue;
    const auto& field = message.images.front().field;
    return tl::unexpected(
        bad_request(fmt::format("{}: this server does not take images; send text only", field), field));
  }
  return {};
}

ApiResult<Reply> answer(const ServedModel& model, const HttpRequest& request) {
  auto parsed = text::chat_request(request.body, model.conversion);
  if (!parsed) return tl::unexpected(api_error(parsed.error()));
  const text::ChatRequest& chat = *parsed;
  GANNET_TRY_STATUS(check_model(model, chat.model));
  GANNET_TRY_STATUS(check_images(chat));
  auto prompt = text::encode_chat(chat, *model.tokenizer);
  if (!prompt) return tl::unexpected(api_error(prompt.error()));

  ChatResponse response;
  response.model = model.names.front();
  response.tokenizer = model.tokenizer;
  response.thinking = chat.thinking;
  response.logprobs = chat.sampling.logprobs;
  response.include_usage = chat.include_usage;
  response.continuous_usage = chat.continuous_usage;

  AnswerSet::Plan plan;
  plan.id = response.id;
  plan.prompts.push_back(*std::move(prompt));
  plan.sampling = chat.sampling;
  plan.parse = text::parse_options(chat);
  GANNET_TRY(AnswerSet answers, AnswerSet::start(model, std::move(plan)));
  if (chat.stream) return std::make_unique<ChatStream>(std::move(response), std::move(answers));
  return std::make_unique<ChatWhole>(std::move(response), std::move(answers));
}

}  // namespace

Reply openai_chat(const ServedModel& model, const HttpRequest& request) {
  auto reply = answer(model, request);
  return reply ? *std::move(reply) : Reply(openai_error(reply.error()));
}

}  // namespace gannet::server

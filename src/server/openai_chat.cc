#include "server/openai_chat.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "server/answer_set.h"
#include "server/openai_answers.h"
#include "server/openai_json.h"
#include "text/chat_encoder.h"
#include "text/protocol/chat_body.h"

namespace gannet::server {
namespace {

using text::Delta;

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

class ChatStream : public OpenAiStream {
 public:
  ChatStream(OpenAiResponse response, AnswerSet answers)
      : OpenAiStream(std::move(response), std::move(answers)), choices_(this->answers().size()) {}

 private:
  struct Choice {
    bool begun = false;
    std::vector<Token> tokens;  // generated since the last chunk; only kept for their logprobs
  };

  void append(size_t index, Answer::Step step, std::string& out) override {
    const Answer& answer = answers()[index];
    Choice& choice = choices_[index];
    if (!answer.started()) return;
    if (!std::exchange(choice.begun, true)) {
      OrderedJson first;
      first["role"] = "assistant";
      first["content"] = "";
      out += choice_chunk(index, std::move(first), nullptr);
    }
    if (response().logprobs) {
      for (auto& token : step.tokens) choice.tokens.push_back(std::move(token));
    }
    for (const auto& delta : step.deltas) out += choice_chunk(index, delta_json(delta), nullptr);
    if (!answer.ended() || answer.error()) return;
    OrderedJson last;
    last["content"] = "";
    out += choice_chunk(index, std::move(last), text::finish_reason_name(answer.message().finish_reason));
  }

  std::string choice_chunk(size_t index, OrderedJson delta, const OrderedJson& finish_reason) {
    OrderedJson choice;
    choice["index"] = index;
    choice["delta"] = std::move(delta);
    choice["logprobs"] = logprobs_json(*response().tokenizer, std::exchange(choices_[index].tokens, {}));
    choice["finish_reason"] = finish_reason;
    const auto& stop = answers()[index].message().stop_sequence;
    if (!finish_reason.is_null() && stop) choice["stop_reason"] = *stop;
    return chunk(std::move(choice));
  }

  std::vector<Choice> choices_;
};

class ChatWhole : public OpenAiWhole {
 public:
  ChatWhole(OpenAiResponse response, AnswerSet answers, bool thinking)
      : OpenAiWhole(std::move(response), std::move(answers)), thinking_(thinking) {}

 private:
  OrderedJson choice(size_t index, const std::vector<Token>& tokens) const override {
    const auto& message = answers()[index].message();
    OrderedJson json;
    json["index"] = index;
    json["message"] = message_json(answers()[index]);
    json["logprobs"] = logprobs_json(*response().tokenizer, tokens);
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
    if (thinking_ || !message.reasoning.empty()) json["reasoning_content"] = message.reasoning;
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

  bool thinking_;  // the answer has a place for its reasoning, also when it is empty
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
  const auto rendered = text::render_prompt(chat);
  size_t bytes = 0;
  for (const auto& segment : rendered.segments) bytes += segment.text.size();
  GANNET_TRY_STATUS(check_prompt_bytes(model, bytes));
  auto prompt = text::encode_prompt(rendered, *model.tokenizer);
  if (!prompt) return tl::unexpected(api_error(prompt.error()));

  OpenAiResponse response;
  response.id = new_id("chatcmpl-");
  response.object = chat.stream ? "chat.completion.chunk" : "chat.completion";
  response.model = model.names.front();
  response.tokenizer = model.tokenizer;
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
  return std::make_unique<ChatWhole>(std::move(response), std::move(answers), chat.thinking);
}

}  // namespace

Reply openai_chat(const ServedModel& model, const HttpRequest& request) {
  auto reply = answer(model, request);
  return reply ? *std::move(reply) : Reply(openai_error(reply.error()));
}

}  // namespace gannet::server

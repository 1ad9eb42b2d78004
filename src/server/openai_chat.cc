#include "server/openai_chat.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "server/answer_conversation.h"
#include "server/openai_answers.h"
#include "server/openai_json.h"
#include "server/text_logprobs.h"
#include "text/chat_encoder.h"
#include "text/protocol/chat_body.h"

namespace gannet::server {
namespace {

using text::Delta;

// Null without tokens that have one.
OrderedJson logprobs_json(const OpenAiResponse& response, const std::vector<Token>& tokens) {
  OrderedJson content = token_logprobs_json(*response.tokenizer, tokens, response.tokens_as_ids);
  if (content.empty()) return nullptr;
  OrderedJson json;
  json["content"] = std::move(content);
  return json;
}

OrderedJson delta_json(const Delta& delta, const Answer& answer) {
  OrderedJson json;
  if (delta.kind == Delta::Kind::reasoning) {
    json["reasoning_content"] = delta.text;
  } else if (delta.kind == Delta::Kind::content) {
    json["content"] = delta.text;
  } else {
    OrderedJson call;
    call["index"] = delta.call;
    if (delta.kind == Delta::Kind::tool_call) {
      call["id"] = answer.call_ids()[static_cast<size_t>(delta.call)];
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

// What a client may want to know of the prompt.
void add_prompt_members(const OpenAiResponse& response, const AnswerSet& answers, size_t index, OrderedJson& json) {
  if (response.prompt_logprobs) {
    json["prompt_logprobs"] = prompt_logprobs_json(*response.tokenizer, answers[index].prompt_logprobs());
  }
  if (response.token_ids) json["prompt_token_ids"] = answers.prompt(index);
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
    if (response().needs_tokens()) {
      for (auto& token : step.tokens) choice.tokens.push_back(std::move(token));
    }
    for (const auto& delta : step.deltas) {
      if (delta.kind == Delta::Kind::reasoning && !response().reasoning) continue;
      out += choice_chunk(index, delta_json(delta, answer), nullptr);
    }
    if (!answer.ended() || answer.error()) return;
    OrderedJson last;
    last["content"] = "";
    out += choice_chunk(index, std::move(last), text::finish_reason_name(answer.message().finish_reason));
  }

  std::string choice_chunk(size_t index, OrderedJson delta, const OrderedJson& finish_reason) {
    OrderedJson choice;
    choice["index"] = index;
    choice["delta"] = std::move(delta);
    const auto tokens = std::exchange(choices_[index].tokens, {});
    choice["logprobs"] = nullptr;
    if (response().logprobs) choice["logprobs"] = logprobs_json(response(), tokens);
    choice["finish_reason"] = finish_reason;
    const auto& stop = answers()[index].message().stop_sequence;
    if (!finish_reason.is_null() && stop) choice["stop_reason"] = *stop;
    if (response().token_ids && !tokens.empty()) choice["token_ids"] = ids_json(tokens);
    OrderedJson more;
    // What is said of the prompt stands in the first chunk.
    if (std::exchange(is_first_, false)) add_prompt_members(response(), answers(), index, more);
    return chunk(choice, more);
  }

  std::vector<Choice> choices_;
  bool is_first_ = true;
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
    json["logprobs"] = nullptr;
    if (response().logprobs) json["logprobs"] = logprobs_json(response(), tokens);
    json["finish_reason"] = text::finish_reason_name(message.finish_reason);
    if (message.stop_sequence) json["stop_reason"] = *message.stop_sequence;
    if (response().token_ids) json["token_ids"] = ids_json(tokens);
    return json;
  }

  void add_members(OrderedJson& json) const override { add_prompt_members(response(), answers(), 0, json); }

  OrderedJson message_json(const Answer& answer) const {
    const auto& message = answer.message();
    const std::string content = answer.content();
    OrderedJson json;
    json["role"] = "assistant";
    json["content"] = content;
    // A call without words has no content, as OpenAI's clients expect; any other answer has at least an empty one.
    if (content.empty() && !message.tool_calls.empty()) json["content"] = nullptr;
    const bool has_reasoning = thinking_ || !message.reasoning.empty();
    if (has_reasoning && response().reasoning) json["reasoning_content"] = message.reasoning;
    if (message.tool_calls.empty()) return json;
    json["tool_calls"] = OrderedJson::array();
    for (size_t index = 0; index < message.tool_calls.size(); ++index) {
      OrderedJson call;
      call["id"] = answer.call_ids()[index];
      call["type"] = "function";
      call["function"]["name"] = message.tool_calls[index].name;
      call["function"]["arguments"] = message.tool_calls[index].arguments;
      json["tool_calls"].push_back(std::move(call));
    }
    return json;
  }

  bool thinking_;  // the answer has a place for its reasoning, also when it is empty
};

OpenAiResponse response_to(const ServedModel& model, const text::ChatRequest& chat) {
  OpenAiResponse response;
  response.id = new_id("chatcmpl-");
  response.object = chat.stream ? "chat.completion.chunk" : "chat.completion";
  response.model = model.names.front();
  response.tokenizer = model.tokenizer;
  response.system_fingerprint = model.system_fingerprint;
  response.logprobs = chat.sampling.logprobs;
  response.prompt_logprobs = chat.sampling.prompt_logprobs.has_value();
  response.token_ids = chat.return_token_ids;
  response.tokens_as_ids = chat.tokens_as_token_ids;
  response.reasoning = chat.include_reasoning;
  response.include_usage = chat.include_usage;
  response.continuous_usage = chat.continuous_usage;
  return response;
}

ApiResult<Reply> answer(const ServedModel& model, const HttpRequest& request) {
  auto chat = text::chat_request(request.body, model.conversion);
  if (!chat) return tl::unexpected(api_error(chat.error()));
  OpenAiResponse response = response_to(model, *chat);
  const bool thinks = text::parse_options(*chat).stage == text::ParseOptions::Stage::reasoning;
  GANNET_TRY(AnswerSet answers, answer_conversation(model, *chat, response.id));
  if (chat->stream) return std::make_unique<ChatStream>(std::move(response), std::move(answers));
  return std::make_unique<ChatWhole>(std::move(response), std::move(answers), thinks);
}

}  // namespace

Reply openai_chat(const ServedModel& model, const HttpRequest& request) {
  auto reply = answer(model, request);
  return reply ? *std::move(reply) : Reply(openai_error(reply.error()));
}

}  // namespace gannet::server

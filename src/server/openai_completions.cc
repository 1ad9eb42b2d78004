#include "server/openai_completions.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "server/answer_set.h"
#include "server/completions_body.h"
#include "server/openai_answers.h"
#include "server/openai_json.h"

namespace gannet::server {
namespace {

size_t code_points(std::string_view text) {
  size_t count = 0;
  for (const char byte : text) count += (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
  return count;
}

// The four lists of OpenAI's legacy logprobs. `offset` is where the first token's text begins in the answer, in
// characters; it moves on by all tokens.
OrderedJson logprobs_json(const text::Tokenizer& tokenizer, const std::vector<Token>& tokens, size_t& offset) {
  OrderedJson json;
  for (const char* name : {"text_offset", "token_logprobs", "tokens", "top_logprobs"}) {
    json[name] = OrderedJson::array();
  }
  for (const auto& token : tokens) {
    if (!token.logprob) continue;
    const std::string text = token_display(tokenizer, token.id);
    json["text_offset"].push_back(offset);
    json["token_logprobs"].push_back(finite_logprob(token.logprob->logprob));
    json["tokens"].push_back(text);
    OrderedJson top = OrderedJson::object();
    for (const auto& other : token.top_logprobs) {
      top[token_display(tokenizer, other.id)] = finite_logprob(other.logprob);
    }
    top[text] = finite_logprob(token.logprob->logprob);
    json["top_logprobs"].push_back(std::move(top));
    if (!tokenizer.is_added(token.id)) offset += code_points(text);
  }
  return json;
}

OrderedJson finish_json(const Answer& answer) {
  if (!answer.ended()) return nullptr;
  return text::finish_reason_name(answer.message().finish_reason);
}

using Echoes = std::vector<std::string>;  // what each answer begins with

class CompletionsStream : public OpenAiStream {
 public:
  CompletionsStream(OpenAiResponse response, AnswerSet answers, Echoes echoes)
      : OpenAiStream(std::move(response), std::move(answers)),
        echoes_(std::move(echoes)),
        choices_(this->answers().size()) {}

 private:
  struct Choice {
    bool begun = false;
    size_t offset = 0;
    std::vector<Token> tokens;  // generated since the last chunk; only kept for their logprobs
  };

  void append(size_t index, Answer::Step step, std::string& out) override {
    const Answer& answer = answers()[index];
    Choice& choice = choices_[index];
    if (response().logprobs) {
      for (auto& token : step.tokens) choice.tokens.push_back(std::move(token));
    }
    std::string text;
    if (answer.started() && !std::exchange(choice.begun, true)) {
      text = echoes_[index];
      choice.offset = code_points(text);
    }
    for (const auto& delta : step.deltas) text += delta.text;
    if (answer.error() || (text.empty() && !answer.ended())) return;
    out += choice_chunk(index, std::move(text));
  }

  std::string choice_chunk(size_t index, std::string text) {
    const Answer& answer = answers()[index];
    Choice& choice = choices_[index];
    OrderedJson json_choice;
    json_choice["index"] = index;
    json_choice["text"] = std::move(text);
    json_choice["logprobs"] = nullptr;
    if (response().logprobs) {
      const auto tokens = std::exchange(choice.tokens, {});
      json_choice["logprobs"] = logprobs_json(*response().tokenizer, tokens, choice.offset);
    }
    json_choice["finish_reason"] = finish_json(answer);
    const auto& stop = answer.message().stop_sequence;
    if (answer.ended() && stop) json_choice["stop_reason"] = *stop;
    return chunk(std::move(json_choice));
  }

  Echoes echoes_;
  std::vector<Choice> choices_;
};

class CompletionsWhole : public OpenAiWhole {
 public:
  CompletionsWhole(OpenAiResponse response, AnswerSet answers, Echoes echoes)
      : OpenAiWhole(std::move(response), std::move(answers)), echoes_(std::move(echoes)) {}

 private:
  OrderedJson choice(size_t index, const std::vector<Token>& tokens) const override {
    const Answer& answer = answers()[index];
    OrderedJson json;
    json["index"] = index;
    json["text"] = echoes_[index] + answer.content();
    json["logprobs"] = nullptr;
    size_t offset = code_points(echoes_[index]);
    if (response().logprobs) json["logprobs"] = logprobs_json(*response().tokenizer, tokens, offset);
    json["finish_reason"] = finish_json(answer);
    if (const auto& stop = answer.message().stop_sequence) json["stop_reason"] = *stop;
    return json;
  }

  Echoes echoes_;
};

std::string echo_of(const text::Tokenizer& tokenizer, const std::vector<int32_t>& prompt) {
  text::Detokenizer detokenizer(tokenizer);
  std::string text;
  for (const int32_t id : prompt) {
    if (!tokenizer.is_added(id)) text += detokenizer.push(id);
  }
  return text + detokenizer.finish();
}

ApiResult<Reply> answer(const ServedModel& model, const HttpRequest& request) {
  GANNET_TRY(CompletionsBody body, completions_body(model, request.body));
  GANNET_TRY_STATUS(check_model(model, body.model));

  OpenAiResponse response;
  response.id = new_id("cmpl-");
  response.object = "text_completion";
  response.model = model.names.front();
  response.tokenizer = model.tokenizer;
  response.logprobs = body.sampling.logprobs;
  response.include_usage = body.include_usage;
  response.continuous_usage = body.continuous_usage;
  Echoes echoes;
  for (const auto& prompt : body.prompts) {
    const std::string echo = body.echo ? echo_of(*model.tokenizer, prompt) : std::string();
    echoes.insert(echoes.end(), static_cast<size_t>(body.sampling.n), echo);
  }

  AnswerSet::Plan plan;
  plan.id = response.id;
  plan.prompts = std::move(body.prompts);
  plan.parse.stop = body.sampling.stop;
  plan.sampling = std::move(body.sampling);
  GANNET_TRY(AnswerSet answers, AnswerSet::start(model, std::move(plan)));
  if (body.stream)
    return std::make_unique<CompletionsStream>(std::move(response), std::move(answers), std::move(echoes));
  return std::make_unique<CompletionsWhole>(std::move(response), std::move(answers), std::move(echoes));
}

}  // namespace

Reply openai_completions(const ServedModel& model, const HttpRequest& request) {
  auto reply = answer(model, request);
  return reply ? *std::move(reply) : Reply(openai_error(reply.error()));
}

}  // namespace gannet::server

#include "server/openai_completions.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "server/answer_conversation.h"
#include "server/completions_body.h"
#include "server/openai_answers.h"
#include "server/openai_json.h"
#include "text/utf8.h"

namespace gannet::server {
namespace {

size_t code_points(std::string_view text) {
  size_t count = 0;
  for (const char byte : text) count += (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
  return count;
}

// OpenAI's way to name a token whose bytes are no text: two of them must not have one name.
std::string token_name(const OpenAiResponse& response, int32_t id) {
  std::string name = response.token_name(id);
  if (text::valid_utf8_length(name) == name.size()) return name;
  std::string bytes = "bytes:";
  for (const char byte : name) bytes += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  return bytes;
}

// The four lists of OpenAI's legacy logprobs. `offset` is where the first token's text begins in the answer, in
// characters; it moves on by all tokens. A prompt's first token has no log-probability.
OrderedJson logprobs_json(const OpenAiResponse& response, const std::vector<Token>& tokens, size_t& offset) {
  OrderedJson json;
  for (const char* name : {"text_offset", "token_logprobs", "tokens", "top_logprobs"}) {
    json[name] = OrderedJson::array();
  }
  for (const auto& token : tokens) {
    const std::string name = token_name(response, token.id);
    json["text_offset"].push_back(offset);
    json["tokens"].push_back(name);
    const auto& tokenizer = *response.tokenizer;
    if (!tokenizer.is_added(token.id)) offset += code_points(tokenizer.token_bytes(token.id));
    json["token_logprobs"].push_back(nullptr);
    json["top_logprobs"].push_back(nullptr);
    if (!token.logprob) continue;
    json["token_logprobs"].back() = finite_logprob(token.logprob->logprob);
    OrderedJson top = OrderedJson::object();
    for (const auto& other : token.top_logprobs) top[token_name(response, other.id)] = finite_logprob(other.logprob);
    top[name] = finite_logprob(token.logprob->logprob);
    json["top_logprobs"].back() = std::move(top);
  }
  return json;
}

OrderedJson finish_json(const Answer& answer) {
  if (!answer.ended()) return nullptr;
  return text::finish_reason_name(answer.message().finish_reason);
}

// What a choice begins with, if the prompt is echoed.
struct Echo {
  bool wanted = false;
  std::vector<std::string> texts;  // of each answer
};

// Adds what the client wants to know of the prompt.
void add_prompt_members(const OpenAiResponse& response, const AnswerSet& answers, size_t index, OrderedJson& choice) {
  if (response.prompt_logprobs) {
    choice["prompt_logprobs"] = prompt_logprobs_json(*response.tokenizer, answers[index].prompt_logprobs());
  }
  if (response.token_ids) choice["prompt_token_ids"] = answers.prompt(index);
}

class CompletionsStream : public OpenAiStream {
 public:
  CompletionsStream(OpenAiResponse response, AnswerSet answers, Echo echo)
      : OpenAiStream(std::move(response), std::move(answers)),
        echo_(std::move(echo)),
        choices_(this->answers().size()) {}

 private:
  struct Choice {
    bool begun = false;
    size_t offset = 0;
    std::vector<Token> tokens;  // since the last chunk; only kept if the response needs them
  };

  void append(size_t index, Answer::Step step, std::string& out) override {
    const Answer& answer = answers()[index];
    Choice& choice = choices_[index];
    if (answer.error()) return;
    std::string text;
    const bool is_first = answer.started() && !std::exchange(choice.begun, true);
    if (is_first && echo_.wanted) {
      text = echo_.texts[index];
      if (response().logprobs) choice.tokens = answer.prompt_logprobs();
    }
    if (response().needs_tokens()) {
      for (auto& token : step.tokens) choice.tokens.push_back(std::move(token));
    }
    for (const auto& delta : step.deltas) text += delta.text;
    if (text.empty() && !answer.ended() && !is_first) return;
    OrderedJson json = choice_json(index, std::move(text));
    if (is_first) add_prompt_members(response(), answers(), index, json);
    out += chunk(json, nullptr);
  }

  OrderedJson choice_json(size_t index, std::string text) {
    const Answer& answer = answers()[index];
    Choice& choice = choices_[index];
    const auto tokens = std::exchange(choice.tokens, {});
    OrderedJson json;
    json["index"] = index;
    json["text"] = std::move(text);
    json["logprobs"] = nullptr;
    if (response().logprobs) json["logprobs"] = logprobs_json(response(), tokens, choice.offset);
    json["finish_reason"] = finish_json(answer);
    const auto& stop = answer.message().stop_sequence;
    if (answer.ended() && stop) json["stop_reason"] = *stop;
    if (response().token_ids) json["token_ids"] = ids_json(tokens);
    return json;
  }

  Echo echo_;
  std::vector<Choice> choices_;
};

class CompletionsWhole : public OpenAiWhole {
 public:
  CompletionsWhole(OpenAiResponse response, AnswerSet answers, Echo echo)
      : OpenAiWhole(std::move(response), std::move(answers)), echo_(std::move(echo)) {}

 private:
  OrderedJson choice(size_t index, const std::vector<Token>& tokens) const override {
    const Answer& answer = answers()[index];
    OrderedJson json;
    json["index"] = index;
    json["text"] = echo_.texts[index] + answer.content();
    json["logprobs"] = nullptr;
    if (response().logprobs) {
      std::vector<Token> all;
      if (echo_.wanted) all = answer.prompt_logprobs();
      all.insert(all.end(), tokens.begin(), tokens.end());
      size_t offset = 0;
      json["logprobs"] = logprobs_json(response(), all, offset);
    }
    json["finish_reason"] = finish_json(answer);
    if (const auto& stop = answer.message().stop_sequence) json["stop_reason"] = *stop;
    add_prompt_members(response(), answers(), index, json);
    if (response().token_ids) json["token_ids"] = ids_json(tokens);
    return json;
  }

  Echo echo_;
};

Echo echo_of(const text::Tokenizer& tokenizer, const CompletionsBody& body) {
  Echo echo;
  echo.wanted = body.echo;
  for (const auto& prompt : body.prompts) {
    text::Detokenizer detokenizer(tokenizer);
    std::string text;
    for (const int32_t id : prompt) {
      if (body.echo && !tokenizer.is_added(id)) text += detokenizer.push(id);
    }
    text += detokenizer.finish();
    echo.texts.insert(echo.texts.end(), static_cast<size_t>(body.request.sampling.n), text);
  }
  return echo;
}

OpenAiResponse response_to(const ServedModel& model, const CompletionsBody& body) {
  OpenAiResponse response;
  response.id = new_id("cmpl-");
  response.object = "text_completion";
  response.model = model.names.front();
  response.tokenizer = model.tokenizer;
  response.system_fingerprint = model.system_fingerprint;
  response.logprobs = body.request.sampling.logprobs;
  response.prompt_logprobs = body.prompt_logprobs;
  response.token_ids = body.request.return_token_ids;
  response.tokens_as_ids = body.request.tokens_as_token_ids;
  response.include_usage = body.request.include_usage;
  response.continuous_usage = body.request.continuous_usage;
  return response;
}

ApiResult<Reply> answer(const ServedModel& model, const HttpRequest& request) {
  GANNET_TRY(CompletionsBody body, completions_body(model, request.body));
  GANNET_TRY_STATUS(check_model(model, body.request.model));
  GANNET_TRY_STATUS(check_form(model, body.request));
  OpenAiResponse response = response_to(model, body);
  Echo echo = echo_of(*model.tokenizer, body);

  AnswerSet::Plan plan;
  plan.id = response.id;
  plan.prompts = std::move(body.prompts);
  plan.parse.stop = body.request.sampling.stop;
  plan.parse.shows_control = !body.request.sampling.skip_special_tokens;
  plan.sampling = body.request.sampling;
  plan.prompt_only = body.prompt_only;
  body.request.thinking = false;
  plan.make_constraint = constraint_maker(model, body.request);
  GANNET_TRY(AnswerSet answers, AnswerSet::start(model, std::move(plan)));
  if (body.request.stream) {
    return std::make_unique<CompletionsStream>(std::move(response), std::move(answers), std::move(echo));
  }
  return std::make_unique<CompletionsWhole>(std::move(response), std::move(answers), std::move(echo));
}

}  // namespace

Reply openai_completions(const ServedModel& model, const HttpRequest& request) {
  auto reply = answer(model, request);
  return reply ? *std::move(reply) : Reply(openai_error(reply.error()));
}

}  // namespace gannet::server

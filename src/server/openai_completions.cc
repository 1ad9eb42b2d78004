#include "server/openai_completions.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "server/answer_set.h"
#include "server/completions_body.h"
#include "server/openai_json.h"

namespace gannet::server {
namespace {

struct CompletionsResponse {
  std::string id = new_id("cmpl-");
  int64_t created = unix_time();
  std::string model;
  const text::Tokenizer* tokenizer = nullptr;
  bool logprobs = false;
  bool include_usage = false;
  bool continuous_usage = false;
  std::vector<std::string> echoes;  // what each answer begins with

  OrderedJson head() const {
    OrderedJson json;
    json["id"] = id;
    json["object"] = "text_completion";
    json["created"] = created;
    json["model"] = model;
    return json;
  }
};

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

class CompletionsStream : public StreamedAnswer {
 public:
  CompletionsStream(CompletionsResponse response, AnswerSet answers)
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
      OrderedJson last = response_.head();
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
    size_t offset = 0;
    std::vector<Token> tokens;  // generated since the last chunk; only kept for their logprobs
  };

  void advance(size_t index, std::string& out) {
    Answer& answer = answers_[index];
    Choice& choice = choices_[index];
    auto step = answer.advance();
    if (response_.logprobs) {
      for (auto& token : step.tokens) choice.tokens.push_back(std::move(token));
    }
    std::string text;
    if (answer.started() && !std::exchange(choice.begun, true)) {
      text = response_.echoes[index];
      choice.offset = code_points(text);
    }
    for (const auto& delta : step.deltas) text += delta.text;
    choice.finished = answer.ended();
    if (answer.error() || (text.empty() && !choice.finished)) return;
    out += chunk(index, std::move(text));
  }

  std::string chunk(size_t index, std::string text) {
    Choice& choice = choices_[index];
    OrderedJson json_choice;
    json_choice["index"] = index;
    json_choice["text"] = std::move(text);
    json_choice["logprobs"] = nullptr;
    if (response_.logprobs) {
      const auto tokens = std::exchange(choice.tokens, {});
      json_choice["logprobs"] = logprobs_json(*response_.tokenizer, tokens, choice.offset);
    }
    json_choice["finish_reason"] = finish_json(answers_[index]);
    const auto& stop = answers_[index].message().stop_sequence;
    if (choice.finished && stop) json_choice["stop_reason"] = *stop;
    OrderedJson json = response_.head();
    json["choices"] = OrderedJson::array({std::move(json_choice)});
    if (response_.continuous_usage) {
      json["usage"] = usage_json(answers_);
    } else if (response_.include_usage) {
      json["usage"] = nullptr;
    }
    return sse_event(json);
  }

  CompletionsResponse response_;
  AnswerSet answers_;
  std::vector<Choice> choices_;
};

class CompletionsWhole : public WholeAnswer {
 public:
  CompletionsWhole(CompletionsResponse response, AnswerSet answers)
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

    OrderedJson json = response_.head();
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
    const Answer& answer = answers_[index];
    OrderedJson json;
    json["index"] = index;
    json["text"] = response_.echoes[index] + answer.content();
    json["logprobs"] = nullptr;
    size_t offset = code_points(response_.echoes[index]);
    if (response_.logprobs) json["logprobs"] = logprobs_json(*response_.tokenizer, tokens_[index], offset);
    json["finish_reason"] = finish_json(answer);
    if (const auto& stop = answer.message().stop_sequence) json["stop_reason"] = *stop;
    return json;
  }

  CompletionsResponse response_;
  AnswerSet answers_;
  std::vector<std::vector<Token>> tokens_;  // of each answer; only kept for their logprobs
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
  auto parsed = completions_body(model, request.body);
  if (!parsed) return tl::unexpected(api_error(parsed.error()));
  CompletionsBody& body = *parsed;
  GANNET_TRY_STATUS(check_model(model, body.model));

  CompletionsResponse response;
  response.model = model.names.front();
  response.tokenizer = model.tokenizer;
  response.logprobs = body.sampling.logprobs;
  response.include_usage = body.include_usage;
  response.continuous_usage = body.continuous_usage;
  for (const auto& prompt : body.prompts) {
    const std::string echo = body.echo ? echo_of(*model.tokenizer, prompt) : std::string();
    response.echoes.insert(response.echoes.end(), static_cast<size_t>(body.sampling.n), echo);
  }

  AnswerSet::Plan plan;
  plan.id = response.id;
  plan.prompts = std::move(body.prompts);
  plan.parse.stop = body.sampling.stop;
  plan.sampling = std::move(body.sampling);
  GANNET_TRY(AnswerSet answers, AnswerSet::start(model, std::move(plan)));
  if (body.stream) return std::make_unique<CompletionsStream>(std::move(response), std::move(answers));
  return std::make_unique<CompletionsWhole>(std::move(response), std::move(answers));
}

}  // namespace

Reply openai_completions(const ServedModel& model, const HttpRequest& request) {
  auto reply = answer(model, request);
  return reply ? *std::move(reply) : Reply(openai_error(reply.error()));
}

}  // namespace gannet::server

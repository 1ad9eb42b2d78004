#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/answer_set.h"
#include "server/http.h"
#include "server/openai_json.h"

// How Chat Completions and Completions answer: what is theirs alone is the JSON of a choice.
namespace gannet::server {

// What every part of a response needs.
struct OpenAiResponse {
  std::string id;
  std::string_view object;  // e.g. "chat.completion"
  int64_t created = unix_time();
  std::string model;
  const text::Tokenizer* tokenizer = nullptr;
  std::string system_fingerprint;
  bool logprobs = false;
  bool prompt_logprobs = false;
  bool token_ids = false;         // of prompt and answer
  bool tokens_as_ids = false;     // how logprobs name tokens
  bool reasoning = true;          // shown
  bool include_usage = false;     // of streams: at the end
  bool continuous_usage = false;  // of streams: in every chunk

  OrderedJson head() const;
  // What logprobs call a token.
  std::string token_name(int32_t token) const;
  // Whether the tokens of an answer must be kept until they are sent.
  bool needs_tokens() const { return logprobs || token_ids; }
};

class OpenAiStream : public StreamedAnswer {
 public:
  OpenAiStream(OpenAiResponse response, AnswerSet answers);

  void start(std::function<void()> wake) override { answers_.notify(wake); }
  std::string content_type() const override { return "text/event-stream"; }
  Headers headers() const override { return stream_headers(); }
  void keep_alive(std::string& out) override { out += kSsePing; }
  int64_t tokens() const override { return answers_.completion_tokens(); }
  bool pull(std::string& out) override;

 protected:
  // Appends the chunks of what `step` added to an answer; an answer that failed gets none for its end.
  virtual void append(size_t index, Answer::Step step, std::string& out) = 0;
  // An event with one choice, and with the members of `more` beside it, if that is an object.
  std::string chunk(const OrderedJson& choice, const OrderedJson& more) const;

  const OpenAiResponse& response() const { return response_; }
  const AnswerSet& answers() const { return answers_; }

 private:
  OpenAiResponse response_;
  AnswerSet answers_;
  std::string head_;  // what all events begin with: made once, not for each token
};

class OpenAiWhole : public WholeAnswer {
 public:
  OpenAiWhole(OpenAiResponse response, AnswerSet answers);

  void start(std::function<void()> wake) override { answers_.notify(wake); }
  std::optional<HttpResponse> poll() override;
  int64_t tokens() const override { return answers_.completion_tokens(); }

 protected:
  // `tokens`: those of the answer, if the response needs them.
  virtual OrderedJson choice(size_t index, const std::vector<Token>& tokens) const = 0;
  // What stands beside the choices.
  virtual void add_members(OrderedJson&) const {}

  const OpenAiResponse& response() const { return response_; }
  const AnswerSet& answers() const { return answers_; }

 private:
  OpenAiResponse response_;
  AnswerSet answers_;
  std::vector<std::vector<Token>> tokens_;  // of each answer; only kept if the response needs them
};

// The ids of `tokens`.
OrderedJson ids_json(const std::vector<Token>& tokens);

}  // namespace gannet::server

#include "server/openai_answers.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "server/errors.h"

namespace gannet::server {

OrderedJson OpenAiResponse::head() const {
  OrderedJson json;
  json["id"] = id;
  json["object"] = object;
  json["created"] = created;
  json["model"] = model;
  json["system_fingerprint"] = system_fingerprint;
  return json;
}

std::string OpenAiResponse::token_name(int32_t token) const {
  return tokens_as_ids ? token_id_name(token) : token_display(*tokenizer, token);
}

OrderedJson ids_json(const std::vector<Token>& tokens) {
  OrderedJson ids = OrderedJson::array();
  for (const auto& token : tokens) ids.push_back(token.id);
  return ids;
}

OpenAiStream::OpenAiStream(OpenAiResponse response, AnswerSet answers)
    : response_(std::move(response)), answers_(std::move(answers)), head_("data: " + to_text(response_.head())) {
  head_.back() = ',';  // the object goes on
  head_ += "\"choices\":[";
}

bool OpenAiStream::pull(std::string& out) {
  for (size_t index = 0; index < answers_.size(); ++index) {
    Answer& answer = answers_[index];
    if (answer.ended()) continue;
    append(index, answer.advance(), out);
    if (const auto& error = answer.error()) {
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

std::string OpenAiStream::chunk(const OrderedJson& choice, const OrderedJson& more) const {
  std::string event = head_;
  event += to_text(choice);
  event += ']';
  if (response_.continuous_usage) {
    event += ",\"usage\":" + to_text(usage_json(answers_));
  } else if (response_.include_usage) {
    event += ",\"usage\":null";
  }
  if (more.is_object()) {
    const std::string members = to_text(more);
    event += ',' + members.substr(1, members.size() - 2);
  }
  return event + "}\n\n";
}

OpenAiWhole::OpenAiWhole(OpenAiResponse response, AnswerSet answers)
    : response_(std::move(response)), answers_(std::move(answers)), tokens_(answers_.size()) {}

std::optional<HttpResponse> OpenAiWhole::poll() {
  for (size_t index = 0; index < answers_.size(); ++index) {
    auto step = answers_[index].advance();
    if (const auto& error = answers_[index].error()) return openai_error(api_error(*error));
    if (!response_.needs_tokens()) continue;
    for (auto& token : step.tokens) tokens_[index].push_back(std::move(token));
  }
  if (!answers_.all_ended()) return std::nullopt;

  OrderedJson json = response_.head();
  json["choices"] = OrderedJson::array();
  for (size_t index = 0; index < answers_.size(); ++index) json["choices"].push_back(choice(index, tokens_[index]));
  json["usage"] = usage_json(answers_);
  add_members(json);
  HttpResponse response;
  response.body = to_text(json);
  return response;
}

}  // namespace gannet::server

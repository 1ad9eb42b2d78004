#include "server/openai_json.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

namespace gannet::server {

std::string to_text(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

std::string sse_event(const OrderedJson& json) {
  return "data: " + to_text(json) + "\n\n";
}

std::string sse_event(std::string_view name, const OrderedJson& json) {
  std::string event("event: ");
  event += name;
  return event + "\ndata: " + to_text(json) + "\n\n";
}

OrderedJson usage_json(const AnswerSet& answers) {
  const int64_t prompt_tokens = answers.prompt_tokens();
  const int64_t cached_tokens = answers.cached_tokens();
  OrderedJson usage;
  usage["prompt_tokens"] = prompt_tokens;
  usage["completion_tokens"] = answers.completion_tokens();
  usage["total_tokens"] = prompt_tokens + answers.completion_tokens();
  usage["prompt_tokens_details"]["cached_tokens"] = cached_tokens;
  usage["completion_tokens_details"]["reasoning_tokens"] = answers.reasoning_tokens();
  usage["prompt_cache_hit_tokens"] = cached_tokens;
  usage["prompt_cache_miss_tokens"] = prompt_tokens - cached_tokens;
  return usage;
}

std::string token_id_name(int32_t id) {
  return "token_id:" + std::to_string(id);
}

OrderedJson prompt_logprobs_json(const text::Tokenizer& tokenizer, const PromptLogprobs& prompt) {
  OrderedJson list = OrderedJson::array();
  for (const auto& token : prompt) {
    OrderedJson entry = nullptr;
    const auto add = [&](const TokenLogprob& candidate, const OrderedJson& rank) {
      OrderedJson& json = entry[std::to_string(candidate.id)];
      json["logprob"] = finite_logprob(candidate.logprob);
      json["rank"] = rank;
      json["decoded_token"] = token_display(tokenizer, candidate.id);
    };
    if (token.logprob) add(*token.logprob, nullptr);
    for (size_t rank = 0; rank < token.top_logprobs.size(); ++rank) add(token.top_logprobs[rank], rank + 1);
    list.push_back(std::move(entry));
  }
  return list;
}

std::string token_display(const text::Tokenizer& tokenizer, int32_t id) {
  return std::string(tokenizer.is_added(id) ? tokenizer.token_text(id) : tokenizer.token_bytes(id));
}

double finite_logprob(float logprob) {
  return std::max(static_cast<double>(logprob), -9999.0);
}

Headers stream_headers() {
  // The last one keeps nginx from collecting the stream before it passes it on.
  return {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
}

std::string sse_error(const Error& error) {
  return "data: " + openai_error_body(api_error(error)) + "\n\n";
}

int64_t unix_time() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace gannet::server

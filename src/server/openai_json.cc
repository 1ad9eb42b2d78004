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

OrderedJson usage_json(int64_t prompt_tokens, int64_t completion_tokens, int64_t reasoning_tokens) {
  constexpr int64_t kCachedTokens = 0;  // the engine has no prefix cache yet
  OrderedJson usage;
  usage["prompt_tokens"] = prompt_tokens;
  usage["completion_tokens"] = completion_tokens;
  usage["total_tokens"] = prompt_tokens + completion_tokens;
  usage["prompt_tokens_details"]["cached_tokens"] = kCachedTokens;
  usage["completion_tokens_details"]["reasoning_tokens"] = reasoning_tokens;
  usage["prompt_cache_hit_tokens"] = kCachedTokens;
  usage["prompt_cache_miss_tokens"] = prompt_tokens - kCachedTokens;
  return usage;
}

OrderedJson usage_json(const AnswerSet& answers) {
  return usage_json(answers.prompt_tokens(), answers.completion_tokens(), answers.reasoning_tokens());
}

std::string token_display(const text::Tokenizer& tokenizer, int32_t id) {
  return std::string(tokenizer.is_added(id) ? tokenizer.token_text(id) : tokenizer.token_bytes(id));
}

double finite_logprob(float logprob) {
  return std::max(static_cast<double>(logprob), -9999.0);
}

Headers answer_headers(const std::string& id) {
  return {{"X-Request-Id", id}};
}

Headers stream_headers(const std::string& id) {
  // The last one keeps nginx from collecting the stream before it passes it on.
  return {{"X-Request-Id", id}, {"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
}

std::string sse_error(const Error& error) {
  return "data: " + openai_error_body(api_error(error)) + "\n\n";
}

int64_t unix_time() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace gannet::server

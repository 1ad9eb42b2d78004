#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "server/answer_set.h"
#include "text/tokenizer.h"

// What Chat Completions and Completions write alike.
namespace gannet::server {

using OrderedJson = nlohmann::ordered_json;

// Compact JSON; bytes that are not UTF-8 become U+FFFD.
std::string to_text(const OrderedJson& json);
// One server-sent event without a name.
std::string sse_event(const OrderedJson& json);
inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";
inline constexpr std::string_view kSsePing = ": waiting\n\n";

OrderedJson usage_json(int64_t prompt_tokens, int64_t completion_tokens, int64_t reasoning_tokens);
OrderedJson usage_json(const AnswerSet& answers);

// The token as text: an ordinary one's bytes, a control token's spelling.
std::string token_display(const text::Tokenizer& tokenizer, int32_t id);
// Infinite values have no JSON; nothing is less likely than this.
double finite_logprob(float logprob);

// Headers of every answer.
Headers answer_headers(const std::string& id);
Headers stream_headers(const std::string& id);

// Error events end a stream that has begun.
std::string sse_error(const Error& error);

int64_t unix_time();

}  // namespace gannet::server

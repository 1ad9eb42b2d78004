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
// One server-sent event without a name, or with one.
std::string sse_event(const OrderedJson& json);
std::string sse_event(std::string_view name, const OrderedJson& json);
inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";
inline constexpr std::string_view kSsePing = ": waiting\n\n";

OrderedJson usage_json(const AnswerSet& answers);

// "token_id:5": how a token is named instead of its text, for clients that want ids.
std::string token_id_name(int32_t id);
// vLLM's prompt_logprobs: null for the first token, then an object {id: {logprob, rank, decoded_token}}. The rank of
// the prompt's own token is null if it is not among the likeliest.
OrderedJson prompt_logprobs_json(const text::Tokenizer& tokenizer, const PromptLogprobs& prompt);

// The token as text: an ordinary one's bytes, a control token's spelling.
std::string token_display(const text::Tokenizer& tokenizer, int32_t id);
// Infinite values have no JSON; nothing is less likely than this.
double finite_logprob(float logprob);

Headers stream_headers();

// Error events end a stream that has begun.
std::string sse_error(const Error& error);

int64_t unix_time();

}  // namespace gannet::server

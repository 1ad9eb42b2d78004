#pragma once

#include <optional>
#include <string_view>

#include "base/error.h"
#include "text/chat_request.h"
#include "text/protocol/fields.h"

namespace gannet::text {

// Fields that all protocols name alike: temperature, top_p, top_k, min_p, seed, penalties, n, ignore_eos,
// stop_token_ids, logit_bias, priority, cache_salt, ...
Status read_sampling(const Fields& body, SamplingRequest& sampling);
// The same without temperature, top_p and top_k.
Status read_more_sampling(const Fields& body, SamplingRequest& sampling);
// Stop strings: absent, one string, or a list of at most 16; none empty or longer than 1,024 bytes.
Status read_stop(const Fields& body, std::string_view key, SamplingRequest& sampling);
// How the answer is to be sent: "stream", what "stream_options" says about usage, "include_reasoning",
// "return_token_ids", "return_tokens_as_token_ids".
Status read_output(const Fields& body, ChatRequest& request);

// Effort of thinking (1..100) by its name: minimal, low 50; medium, high, xhigh 75; ultra, max 100. 0 stands for
// "none". Other names are an error.
Result<int> effort_by_name(std::string_view name, std::string_view path);

// Sets `thinking` and `effort` from what the body says: `enabled` (whether thinking was switched on or off) wins over
// `effort` (0: off), and with neither the operator's defaults hold.
void settle_thinking(ChatRequest& request, const ConversionOptions& options, std::optional<bool> enabled,
                     std::optional<int> effort);

// {"type": "enabled" | "disabled" | "adaptive"} under `thinking`, or a boolean.
Result<std::optional<bool>> read_thinking(const Fields& body);

// 400 if the operator wants reasoning back (ConversionOptions::refuse_missing_reasoning) and the last turn has none.
Status check_reasoning_came_back(const ChatRequest& request, const ConversionOptions& options, std::string_view field);

// 400 for a json_object format if no message mentions JSON: models then tend to write white space for ever.
Status check_json_is_mentioned(const ChatRequest& request);

}  // namespace gannet::text

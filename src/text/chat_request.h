#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/json.h"

// The one form every protocol's request takes before it becomes a prompt. Bodies are converted by the files in
// text/protocol/ (they live here and not in server/ because `gannet text render` and the tests need them without a
// server); chat_encoder.h turns the result into token ids.

namespace gannet::text {

enum class Role { system, user, assistant, tool, latest_reminder };

// A picture inside a message. In the prompt it is one placeholder token.
struct Image {
  size_t offset = 0;   // byte offset into Message::content at which the placeholder stands
  std::string url;     // data: or http(s): URL, or "file:ID" for an uploaded file; as sent
  std::string detail;  // "low", "high", "auto", "original", or empty
  std::string field;   // where it was in the body, e.g. "messages[0].content[1]", for error messages
};

// A call an assistant message made.
struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // as sent: JSON text of an object, or any other text
};

struct ToolDefinition {
  std::string name;  // of a namespaced tool: "namespace::name"
  std::optional<std::string> description;
  Json parameters;  // JSON schema of the arguments object; null renders as null
  bool strict = false;
  bool defer_loading = false;  // declared now, shown to the model only by a later message
};

// What the model generated for an assistant message, as ids: rendering the message anew could give other ones.
struct SampledMessage {
  bool thinking = false;     // it begins inside the reasoning
  bool calls_open = false;   // the prompt had opened the block of calls, so it begins inside that
  std::vector<int32_t> ids;  // without the end of sentence
};

struct Message {
  Role role = Role::user;
  std::string content;
  std::vector<Image> images;                // sorted by offset
  std::optional<std::string> reasoning;     // assistant only
  std::vector<ToolCall> tool_calls;         // assistant only
  std::optional<std::string> tool_call_id;  // tool only
  std::vector<ToolDefinition> tools;        // system only: tools that become known at this point
  bool prefix = false;                      // assistant only: the model continues this message
  std::string task;                         // checkpoint template only: a quick task such as "title" or "action"
  // Assistant only, `api` template only: stands in the prompt in place of reasoning, content and calls. Whoever sets it
  // has checked that they say the same.
  std::shared_ptr<const SampledMessage> sampled;
};

enum class ToolChoice { automatic, none, required };

struct ResponseFormat {
  enum class Kind { text, json_object, json_schema, regex, grammar };
  Kind kind = Kind::text;
  Json schema;          // json_schema only
  std::string regex;    // regex only
  std::string grammar;  // grammar only: EBNF whose first rule is `root`
};

// How a request wants its tokens sampled; absent means the server's default. Values are what the client sent, checked
// against the documented ranges, never silently replaced.
struct SamplingRequest {
  std::optional<double> temperature;         // 0..2
  std::optional<double> top_p;               // 0..1
  std::optional<int64_t> top_k;              // -1 or 0: off
  std::optional<double> min_p;               // 0..1
  std::optional<double> presence_penalty;    // -2..2
  std::optional<double> frequency_penalty;   // -2..2
  std::optional<double> repetition_penalty;  // above 0
  std::optional<int64_t> max_tokens;         // at least 1; absent: up to the end of the context
  std::optional<int64_t> min_tokens;         // at least 0
  std::optional<uint64_t> seed;              // 0..2^63-1
  int64_t n = 1;                             // number of answers, at least 1
  bool logprobs = false;
  int64_t top_logprobs = 0;                // 0..20
  std::optional<int64_t> prompt_logprobs;  // 0..20
  std::vector<std::string> stop;           // none empty, at most 16; matched in content only
  std::vector<int32_t> stop_token_ids;
  bool include_stop = false;  // keep the matched stop string in the answer
  bool ignore_eos = false;
  std::map<int32_t, double> logit_bias;           // token id -> -100..100
  std::vector<int32_t> allowed_token_ids;         // empty: all
  std::vector<std::string> bad_words;             // texts that the answer must not hold; none empty
  std::optional<int64_t> thinking_token_budget;   // at least 0; the reasoning ends after that many tokens
  std::optional<int64_t> truncate_prompt_tokens;  // of the prompt only so many last tokens count; -1: as many as fit
  bool skip_special_tokens = true;                // control tokens do not show in a completion
  int64_t priority = 0;                           // lower ones are served first
  std::string cache_salt;                         // cached prefixes are shared among equal salts only
};

struct ChatRequest {
  // Transport.
  std::string model;  // as sent; empty if absent
  bool stream = false;
  bool include_usage = false;        // stream_options.include_usage
  bool continuous_usage = false;     // stream_options.continuous_usage_stats
  bool include_reasoning = true;     // false: the reasoning is not shown
  bool return_token_ids = false;     // of prompt and answer, beside their text
  bool tokens_as_token_ids = false;  // in logprobs, tokens are named "token_id:5"

  // Conversation.
  std::vector<Message> messages;
  std::vector<ToolDefinition> tools;  // with a named tool_choice only that tool is left
  ToolChoice tool_choice = ToolChoice::automatic;
  // The answer must hold a call although the prompt does not begin one: the model reasons first, or the API says so
  // otherwise than by `required`.
  bool must_call = false;
  bool parallel_tool_calls = true;
  bool thinking = true;
  std::optional<int> effort;  // 1..100; absent: the template's default (75). Only rendered when thinking
  ResponseFormat response_format;
  // The form of the content as structured_outputs or guided_* ask for it: unlike the response format, the model is not
  // told. Kind text: none. Never set together with a response format.
  ResponseFormat structured_output;
  bool add_generation_prompt = true;  // `api` template only: the prompt ends with the head of an answer
  // Checkpoint template only: keep earlier turns' reasoning although no tools are declared.
  bool keep_reasoning = false;

  SamplingRequest sampling;

  // Full tool name -> (namespace, local name), for splitting the name again in the answer (Responses API).
  std::map<std::string, std::pair<std::string, std::string>> namespaces;
  // Name of the tool that Responses declared as {"type": "tool_search"}, or empty.
  std::string tool_search_name;
  // Responses API: the answer that this request goes on from, or empty. Its items are not in `messages`.
  std::string previous_response_id;
  // Names of tools declared as {"type": "custom"} in Responses: their one argument is free text named "input".
  std::vector<std::string> custom_tools;
};

// What the conversion of bodies is told by the operator.
struct ConversionOptions {
  bool default_thinking = true;           // when the body says neither yes nor no
  std::optional<int> default_effort;      // 1..100, when the body names none
  bool refuse_missing_reasoning = false;  // 400 when a thinking history lacks reasoning that should have come back
};

}  // namespace gannet::text

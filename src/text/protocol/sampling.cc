#include "text/protocol/sampling.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <utility>

#include "text/protocol/content.h"

namespace gannet::text {
namespace {

constexpr int64_t kMaxInt = std::numeric_limits<int64_t>::max();
constexpr double kMaxDouble = std::numeric_limits<double>::max();
constexpr size_t kMostStops = 16;
constexpr size_t kLongestStop = 1024;  // bytes
constexpr size_t kMostBiases = 1024;
constexpr size_t kMostStopTokens = 1024;
constexpr size_t kMostBadWords = 256;
constexpr size_t kLongestSalt = 1024;  // bytes
constexpr size_t kMostAllowedTokens = 1 << 20;
constexpr int64_t kMostAnswers = 128;
constexpr int64_t kMostTopLogprobs = 20;

Status read_probabilities(const Fields& body, SamplingRequest& sampling) {
  GANNET_TRY(sampling.temperature, body.number("temperature", 0, 2));
  GANNET_TRY(sampling.top_p, body.number("top_p", 0, 1));
  if (sampling.top_p && *sampling.top_p <= 0) {
    return invalid_input("{}: must be above 0 and at most 1", body.path("top_p"));
  }
  GANNET_TRY(sampling.top_k, body.integer("top_k", -kMaxInt, kMaxInt));
  return {};
}

Status read_penalties(const Fields& body, SamplingRequest& sampling) {
  GANNET_TRY(sampling.min_p, body.number("min_p", 0, 1));
  GANNET_TRY(sampling.presence_penalty, body.number("presence_penalty", -2, 2));
  GANNET_TRY(sampling.frequency_penalty, body.number("frequency_penalty", -2, 2));
  GANNET_TRY(sampling.repetition_penalty, body.number("repetition_penalty", 0, kMaxDouble));
  if (sampling.repetition_penalty && *sampling.repetition_penalty <= 0) {
    return invalid_input("{}: must be above 0", body.path("repetition_penalty"));
  }
  return {};
}

Status read_logprobs(const Fields& body, SamplingRequest& sampling) {
  GANNET_TRY(const auto top, body.integer("top_logprobs", 0, kMostTopLogprobs));
  sampling.top_logprobs = top.value_or(0);
  GANNET_TRY(sampling.prompt_logprobs, body.integer("prompt_logprobs", 0, kMostTopLogprobs));
  return {};
}

Status read_token_ids(const Fields& body, std::string_view key, size_t most, std::vector<int32_t>& out) {
  GANNET_TRY(const auto* ids, body.list(key));
  if (ids == nullptr) return {};
  if (ids->size() > most) {
    return invalid_input("{}: {} token ids; at most {} are supported", body.path(key), ids->size(), most);
  }
  for (size_t index = 0; index < ids->size(); ++index) {
    const auto* id = std::get_if<uint64_t>(&(*ids)[index].value());
    if (id == nullptr || *id > static_cast<uint64_t>(std::numeric_limits<int32_t>::max())) {
      return invalid_input("{}: expected a token id", body.path(key, index));
    }
    out.push_back(static_cast<int32_t>(*id));
  }
  return {};
}

Status read_bad_words(const Fields& body, SamplingRequest& sampling) {
  constexpr std::string_view kKey = "bad_words";
  GANNET_TRY(const auto* words, body.list(kKey));
  if (words == nullptr) return {};
  if (words->size() > kMostBadWords) {
    return invalid_input("{}: {} texts; at most {} are supported", body.path(kKey), words->size(), kMostBadWords);
  }
  for (size_t index = 0; index < words->size(); ++index) {
    const auto* text = (*words)[index].string();
    const std::string path = body.path(kKey, index);
    if (text == nullptr) return wrong_type(path, "a string", (*words)[index]);
    if (text->empty()) return invalid_input("{}: empty; expected at least one character", path);
    if (text->size() > kLongestStop) {
      return invalid_input("{}: {} bytes; a bad word may have at most {}", path, text->size(), kLongestStop);
    }
    sampling.bad_words.push_back(*text);
  }
  return {};
}

Status read_scheduling(const Fields& body, SamplingRequest& sampling) {
  GANNET_TRY(const auto priority, body.integer("priority", -kMaxInt, kMaxInt));
  sampling.priority = priority.value_or(0);
  GANNET_TRY(auto salt, body.text("cache_salt"));
  if (salt && salt->size() > kLongestSalt) {
    return invalid_input("{}: {} bytes; at most {} are supported", body.path("cache_salt"), salt->size(), kLongestSalt);
  }
  sampling.cache_salt = std::move(salt).value_or("");
  return {};
}

Status read_logit_bias(const Fields& body, SamplingRequest& sampling) {
  const Json* biases = body.get("logit_bias");
  if (biases == nullptr) return {};
  const std::string path = body.path("logit_bias");
  const auto* members = biases->object();
  if (members == nullptr) return wrong_type(path, "an object", *biases);
  if (members->size() > kMostBiases) {
    return invalid_input("{}: {} token ids; at most {} are supported", path, members->size(), kMostBiases);
  }
  for (const auto& [name, value] : *members) {
    int32_t id = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), id);
    if (error != std::errc() || end != name.data() + name.size() || id < 0) {
      return invalid_input("{}: the key {} is no token id", path, shown(name));
    }
    if (value.is_null()) continue;
    GANNET_TRY(sampling.logit_bias[id], number_of(value, fmt::format("{}.{}", path, id), -100, 100));
  }
  return {};
}

Status add_stop(const Json& stop, const std::string& path, SamplingRequest& sampling) {
  const auto* text = stop.string();
  if (text == nullptr) return wrong_type(path, "a string", stop);
  if (text->empty()) return invalid_input("{}: empty; a stop string needs at least one character", path);
  if (text->size() > kLongestStop) {
    return invalid_input("{}: {} bytes; a stop string may have at most {}", path, text->size(), kLongestStop);
  }
  sampling.stop.push_back(*text);
  return {};
}

// Ids that this kind of server gives to calls of a turn that thought of nothing: "call_00_ET_...".
bool marks_empty_thinking(std::string id) {
  std::erase(id, '_');
  constexpr std::string_view kCall = "call";
  constexpr size_t kDigits = 2;
  return id.starts_with(kCall) &&
         std::string_view(id).substr(std::min(id.size(), kCall.size() + kDigits)).starts_with("ET");
}

bool lacks_reasoning(const Message& message, bool has_tools) {
  if (message.role != Role::assistant || message.reasoning || message.prefix) return false;
  if (message.tool_calls.empty()) return has_tools;
  return std::none_of(message.tool_calls.begin(), message.tool_calls.end(),
                      [](const ToolCall& call) { return marks_empty_thinking(call.id); });
}

}  // namespace

Status read_sampling(const Fields& body, SamplingRequest& sampling) {
  GANNET_TRY_STATUS(read_probabilities(body, sampling));
  return read_more_sampling(body, sampling);
}

Status read_more_sampling(const Fields& body, SamplingRequest& sampling) {
  GANNET_TRY_STATUS(read_penalties(body, sampling));
  GANNET_TRY_STATUS(read_logprobs(body, sampling));
  GANNET_TRY(const auto seed, body.integer("seed", 0, kMaxInt));
  if (seed) sampling.seed = static_cast<uint64_t>(*seed);
  GANNET_TRY(sampling.min_tokens, body.integer("min_tokens", 0, kMaxInt));
  GANNET_TRY(const auto n, body.integer("n", 1, kMostAnswers));
  sampling.n = n.value_or(1);
  GANNET_TRY(sampling.include_stop, body.flag_or("include_stop_str_in_output", false));
  GANNET_TRY(sampling.ignore_eos, body.flag_or("ignore_eos", false));
  GANNET_TRY_STATUS(read_token_ids(body, "stop_token_ids", kMostStopTokens, sampling.stop_token_ids));
  GANNET_TRY_STATUS(read_token_ids(body, "allowed_token_ids", kMostAllowedTokens, sampling.allowed_token_ids));
  if (body.has("allowed_token_ids") && sampling.allowed_token_ids.empty()) {
    return invalid_input("{}: empty; expected at least one token id", body.path("allowed_token_ids"));
  }
  GANNET_TRY_STATUS(read_bad_words(body, sampling));
  GANNET_TRY(sampling.thinking_token_budget, body.integer("thinking_token_budget", 0, kMaxInt));
  GANNET_TRY(sampling.truncate_prompt_tokens, body.integer("truncate_prompt_tokens", -1, kMaxInt));
  if (sampling.truncate_prompt_tokens == 0) {
    return invalid_input("{}: 0 leaves no prompt; expected at least 1, or -1", body.path("truncate_prompt_tokens"));
  }
  GANNET_TRY(sampling.skip_special_tokens, body.flag_or("skip_special_tokens", true));
  GANNET_TRY_STATUS(read_scheduling(body, sampling));
  return read_logit_bias(body, sampling);
}

Status read_stop(const Fields& body, std::string_view key, SamplingRequest& sampling) {
  const Json* stop = body.get(key);
  if (stop == nullptr) return {};
  if (stop->is_string()) return add_stop(*stop, body.path(key), sampling);
  const auto* several = stop->array();
  if (several == nullptr) return wrong_type(body.path(key), "a string or a list of strings", *stop);
  if (several->size() > kMostStops) {
    return invalid_input("{}: {} stop strings; at most {} are supported", body.path(key), several->size(), kMostStops);
  }
  for (size_t index = 0; index < several->size(); ++index) {
    GANNET_TRY_STATUS(add_stop((*several)[index], body.path(key, index), sampling));
  }
  return {};
}

Status read_output(const Fields& body, ChatRequest& request) {
  GANNET_TRY(request.stream, body.flag_or("stream", false));
  GANNET_TRY(request.include_reasoning, body.flag_or("include_reasoning", true));
  GANNET_TRY(request.return_token_ids, body.flag_or("return_token_ids", false));
  GANNET_TRY(request.tokens_as_token_ids, body.flag_or("return_tokens_as_token_ids", false));
  GANNET_TRY(const auto options, body.object("stream_options"));
  if (!options) return {};
  GANNET_TRY(request.include_usage, options->flag_or("include_usage", false));
  GANNET_TRY(request.continuous_usage, options->flag_or("continuous_usage_stats", false));
  return {};
}

Result<int> effort_by_name(std::string_view name, std::string_view path) {
  struct Named {
    std::string_view name;
    int effort;
  };
  constexpr std::array<Named, 8> kEfforts = {{{"none", 0},
                                              {"minimal", 50},
                                              {"low", 50},
                                              {"medium", 75},
                                              {"high", 75},
                                              {"xhigh", 75},
                                              {"max", 100},
                                              {"ultra", 100}}};
  for (const auto& [known, effort] : kEfforts) {
    if (name == known) return effort;
  }
  return invalid_input("{}: {} is not one of none, minimal, low, medium, high, xhigh, max, ultra", path, shown(name));
}

void settle_thinking(ChatRequest& request, const ConversionOptions& options, std::optional<bool> enabled,
                     std::optional<int> effort) {
  request.thinking = enabled.value_or(effort ? *effort > 0 : options.default_thinking);
  if (!request.thinking) return;
  request.effort = effort && *effort > 0 ? effort : options.default_effort;
}

Result<std::optional<bool>> read_thinking(const Fields& body) {
  const Json* thinking = body.get("thinking");
  if (thinking == nullptr) return std::optional<bool>{};
  if (const auto* flag = thinking->boolean()) return std::optional(*flag);
  GANNET_TRY(const auto fields, Fields::of(*thinking, body.path("thinking")));
  GANNET_TRY(const auto type, fields.required_text("type"));
  if (type == "enabled" || type == "adaptive") return std::optional(true);
  if (type == "disabled") return std::optional(false);
  return invalid_input("{}: {} is not one of enabled, disabled, adaptive", fields.path("type"), shown(type));
}

Status check_reasoning_came_back(const ChatRequest& request, const ConversionOptions& options, std::string_view field) {
  if (!options.refuse_missing_reasoning || !request.thinking) return {};
  const auto& messages = request.messages;
  const auto last_user = std::find_if(messages.rbegin(), messages.rend(),
                                      [](const Message& message) { return message.role == Role::user; });
  for (auto message = messages.rbegin(); message != last_user; ++message) {
    if (lacks_reasoning(*message, !request.tools.empty())) {
      return invalid_input("{}: missing; in thinking mode the reasoning of the current turn must be sent back", field);
    }
  }
  return {};
}

Status check_json_is_mentioned(const ChatRequest& request) {
  if (request.response_format.kind != ResponseFormat::Kind::json_object) return {};
  const bool mentioned = std::any_of(request.messages.begin(), request.messages.end(),
                                     [](const Message& message) { return contains_word(message.content, "json"); });
  if (mentioned) return {};
  return invalid_input("a json_object response format needs the word \"json\" in at least one message");
}

}  // namespace gannet::text

#include "text/protocol/unknown_fields.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <string>
#include <unordered_set>

#include "base/log.h"

namespace gannet::text {
namespace {

// Read by read_sampling() and read_output(), or without meaning for a model served alone.
constexpr std::array<std::string_view, 46> kShared = {"model",
                                                      "stream",
                                                      "stream_options",
                                                      "temperature",
                                                      "top_p",
                                                      "top_k",
                                                      "min_p",
                                                      "presence_penalty",
                                                      "frequency_penalty",
                                                      "repetition_penalty",
                                                      "seed",
                                                      "n",
                                                      "min_tokens",
                                                      "stop_token_ids",
                                                      "include_stop_str_in_output",
                                                      "ignore_eos",
                                                      "logit_bias",
                                                      "allowed_token_ids",
                                                      "bad_words",
                                                      "top_logprobs",
                                                      "prompt_logprobs",
                                                      "thinking_token_budget",
                                                      "truncate_prompt_tokens",
                                                      "skip_special_tokens",
                                                      "spaces_between_special_tokens",
                                                      "priority",
                                                      "cache_salt",
                                                      "request_id",
                                                      "include_reasoning",
                                                      "return_token_ids",
                                                      "return_tokens_as_token_ids",
                                                      "structured_outputs",
                                                      "guided_json",
                                                      "guided_regex",
                                                      "guided_choice",
                                                      "guided_grammar",
                                                      "user",
                                                      "metadata",
                                                      "store",
                                                      "service_tier",
                                                      "prompt_cache_key",
                                                      "prompt_cache_retention",
                                                      "safety_identifier",
                                                      "add_special_tokens",
                                                      "max_tokens",
                                                      "stop"};

// A client that makes names up must not fill the memory.
constexpr size_t kMostNames = 1000;

bool is_first(const std::string& name) {
  static std::mutex mutex;
  static std::unordered_set<std::string> names;
  const std::lock_guard lock(mutex);
  return names.size() < kMostNames && names.insert(name).second;
}

}  // namespace

void note_unknown_fields(std::string_view protocol, const Fields& body, std::span<const std::string_view> known) {
  if (!spdlog::should_log(spdlog::level::debug)) return;
  for (const auto& [name, value] : body.members()) {
    const auto is_name = [&member = name](std::string_view other) { return other == member; };
    if (std::any_of(kShared.begin(), kShared.end(), is_name)) continue;
    if (std::any_of(known.begin(), known.end(), is_name)) continue;
    if (is_first(name)) spdlog::debug("{}: the field {} is ignored", protocol, shown(name));
  }
}

}  // namespace gannet::text

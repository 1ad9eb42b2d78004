#include "server/completions_body.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "server/answer_set.h"
#include "text/protocol/fields.h"
#include "text/protocol/sampling.h"
#include "text/protocol/structured_output.h"
#include "text/protocol/unknown_fields.h"

namespace gannet::server {
namespace {

using text::Fields;
using text::Json;

constexpr int64_t kMaxInt = std::numeric_limits<int64_t>::max();
constexpr int64_t kMaxLogprobs = 20;
constexpr size_t kMaxPrompts = 128;
constexpr const char* kPromptForms = "a string, a list of strings, a list of token ids or a list of such lists";

class PromptReader {
 public:
  PromptReader(const ServedModel& model, bool add_bos) : model_(model), add_bos_(add_bos) {}

  Result<std::vector<std::vector<int32_t>>> read(const Json& prompt) const {
    std::vector<std::vector<int32_t>> prompts;
    const Json::Array* list = prompt.array();
    if (prompt.is_string() || (list != nullptr && !list->empty() && list->front().is_number())) {
      GANNET_TRY(auto ids, read_one("prompt", prompt));
      prompts.push_back(std::move(ids));
      return prompts;
    }
    if (list == nullptr) return text::wrong_type("prompt", kPromptForms, prompt);
    if (list->empty()) return invalid_input("prompt: an empty list; it must have at least one entry");
    if (list->size() > kMaxPrompts) {
      return invalid_input("prompt: {} prompts; at most {} may go into one request", list->size(), kMaxPrompts);
    }
    for (size_t i = 0; i < list->size(); ++i) {
      GANNET_TRY(auto ids, read_one(fmt::format("prompt[{}]", i), (*list)[i]));
      prompts.push_back(std::move(ids));
    }
    return prompts;
  }

 private:
  Result<std::vector<int32_t>> read_one(const std::string& path, const Json& prompt) const {
    if (const auto* text = prompt.string()) {
      auto ids = model_.tokenizer->encode(*text);
      if (!ids) return invalid_input("{}: {}", path, ids.error().message);
      if (add_bos_) ids->insert(ids->begin(), model_.engine->config().bos_token_id);
      if (ids->empty()) return invalid_input("{}: empty; it must have at least one token", path);
      return ids;
    }
    const Json::Array* list = prompt.array();
    if (list == nullptr) return text::wrong_type(path, "a string or a list of token ids", prompt);
    if (list->empty()) return invalid_input("{}: empty; it must have at least one token", path);
    return read_ids(path, *list);
  }

  Result<std::vector<int32_t>> read_ids(const std::string& path, const Json::Array& list) const {
    const auto vocab_size = static_cast<uint64_t>(model_.engine->config().vocab_size);
    std::vector<int32_t> ids;
    ids.reserve(list.size());
    for (size_t i = 0; i < list.size(); ++i) {
      const auto* id = std::get_if<uint64_t>(&list[i].value());
      if (id == nullptr || *id >= vocab_size) {
        const std::string found = list[i].is_number() ? text::python_json(list[i]) : std::string(json_kind(list[i]));
        return invalid_input("{}[{}]: {} is not a token id from 0 to {}", path, i, found, vocab_size - 1);
      }
      ids.push_back(static_cast<int32_t>(*id));
    }
    return ids;
  }

  const ServedModel& model_;
  bool add_bos_;
};

Status refuse_unsupported(const Fields& fields, const CompletionsBody& body) {
  GANNET_TRY(const auto suffix, fields.text("suffix"));
  if (!suffix.value_or("").empty()) {
    return invalid_input("suffix: not supported; put the fill-in-the-middle tokens into the prompt");
  }
  GANNET_TRY(const auto best_of, fields.integer("best_of", 1, kMaxInt));
  if (best_of && *best_of != body.request.sampling.n) {
    return invalid_input("best_of: {} differs from n, which is {}; choosing among more answers is not supported",
                         *best_of, body.request.sampling.n);
  }
  return {};
}

// Looks at texts only: ids are counted once they are read.
ApiResult<void> check_prompt_texts(const ServedModel& model, const Json& body) {
  const Json::Object* members = body.object();
  if (members == nullptr) return {};
  for (const auto& [name, prompt] : *members) {
    if (name != "prompt") continue;
    if (const auto* text = prompt.string()) GANNET_TRY_STATUS(check_prompt_bytes(model, text->size()));
    if (prompt.array() == nullptr) continue;
    for (const Json& element : *prompt.array()) {
      if (const auto* text = element.string()) GANNET_TRY_STATUS(check_prompt_bytes(model, text->size()));
    }
  }
  return {};
}

Status read_limits(const Fields& fields, CompletionsBody& body) {
  text::SamplingRequest& sampling = body.request.sampling;
  GANNET_TRY(sampling.max_tokens, fields.integer("max_tokens", 0, kMaxInt));
  GANNET_TRY(const auto logprobs, fields.integer("logprobs", 0, kMaxLogprobs));
  sampling.logprobs = logprobs.has_value();
  sampling.top_logprobs = logprobs.value_or(0);
  body.prompt_logprobs = sampling.prompt_logprobs.has_value();
  // An echoed prompt has its log-probabilities in front of the answer's.
  if (body.echo && logprobs) sampling.prompt_logprobs = std::max(*logprobs, sampling.prompt_logprobs.value_or(0));
  if (sampling.max_tokens != 0) return {};
  if (!body.echo && !body.prompt_logprobs) {
    return invalid_input("max_tokens: 0 answers nothing unless echo or prompt_logprobs asks for the prompt");
  }
  body.prompt_only = true;
  return {};
}

Result<CompletionsBody> read_body(const ServedModel& model, const Json& json) {
  GANNET_TRY(const Fields fields, Fields::of(json, ""));
  CompletionsBody body;
  GANNET_TRY(const auto name, fields.text("model"));
  body.request.model = name.value_or("");
  GANNET_TRY(body.echo, fields.flag_or("echo", false));
  GANNET_TRY_STATUS(text::read_output(fields, body.request));
  GANNET_TRY_STATUS(text::read_sampling(fields, body.request.sampling));
  GANNET_TRY_STATUS(text::read_stop(fields, "stop", body.request.sampling));
  GANNET_TRY_STATUS(text::read_structured_output(fields, body.request.structured_output));
  GANNET_TRY_STATUS(read_limits(fields, body));
  GANNET_TRY_STATUS(refuse_unsupported(fields, body));

  GANNET_TRY(const bool add_bos, fields.flag_or("add_special_tokens", false));
  const Json* prompt = fields.get("prompt");
  if (prompt == nullptr) return invalid_input("prompt: missing; expected {}", kPromptForms);
  GANNET_TRY(body.prompts, PromptReader(model, add_bos).read(*prompt));
  constexpr std::string_view kKnownFields[] = {"prompt", "echo", "logprobs", "suffix", "best_of"};
  text::note_unknown_fields("completions", fields, kKnownFields);
  return body;
}

}  // namespace

ApiResult<CompletionsBody> completions_body(const ServedModel& model, std::string_view text) {
  const auto json = text::parse_body(text);
  if (!json) return tl::unexpected(api_error(json.error()));
  if (json->find("truncate_prompt_tokens") == nullptr) GANNET_TRY_STATUS(check_prompt_texts(model, *json));
  auto body = read_body(model, *json);
  if (!body) return tl::unexpected(api_error(body.error()));
  return *std::move(body);
}

}  // namespace gannet::server

#include "server/tokenize.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "server/answer_conversation.h"
#include "server/completions_body.h"
#include "server/openai_json.h"
#include "text/protocol/chat_body.h"
#include "text/protocol/fields.h"

namespace gannet::server {
namespace {

using text::Fields;

ApiResult<std::vector<int32_t>> chat_tokens(const ServedModel& model, const std::string& body) {
  auto chat = text::chat_request(body, model.conversion);
  if (!chat) return tl::unexpected(api_error(chat.error()));
  return conversation_prompt(model, *chat);
}

ApiResult<std::vector<int32_t>> prompt_tokens(const ServedModel& model, const std::string& body) {
  GANNET_TRY(CompletionsBody read, completions_body(model, body));
  GANNET_TRY_STATUS(check_model(model, read.request.model));
  if (read.prompts.size() != 1) {
    return tl::unexpected(bad_request(fmt::format("prompt: {} prompts; expected one", read.prompts.size()), "prompt"));
  }
  return std::move(read.prompts.front());
}

ApiResult<HttpResponse> tokenize_body(const ServedModel& model, const std::string& body) {
  const auto parsed = text::parse_body(body);
  if (!parsed) return tl::unexpected(api_error(parsed.error()));
  const auto fields = Fields::of(*parsed, "");
  const auto wants_texts = fields->flag_or("return_token_strs", false);
  if (!wants_texts) return tl::unexpected(api_error(wants_texts.error()));
  GANNET_TRY(const auto ids, fields->has("messages") ? chat_tokens(model, body) : prompt_tokens(model, body));
  OrderedJson json;
  json["count"] = ids.size();
  json["max_model_len"] = model.engine->max_model_len();
  json["tokens"] = ids;
  json["token_strs"] = nullptr;
  if (*wants_texts) {
    json["token_strs"] = OrderedJson::array();
    for (const int32_t id : ids) json["token_strs"].push_back(token_display(*model.tokenizer, id));
  }
  HttpResponse response;
  response.body = to_text(json);
  return response;
}

Result<std::vector<int32_t>> read_tokens(const ServedModel& model, const std::string& body) {
  GANNET_TRY(const auto parsed, text::parse_body(body));
  GANNET_TRY(const auto fields, Fields::of(parsed, ""));
  GANNET_TRY(const auto* tokens, fields.list("tokens"));
  if (tokens == nullptr) return invalid_input("tokens: missing; expected a list of token ids");
  const auto most = static_cast<uint64_t>(model.tokenizer->vocab_size());
  std::vector<int32_t> ids;
  for (size_t index = 0; index < tokens->size(); ++index) {
    const auto* id = std::get_if<uint64_t>(&(*tokens)[index].value());
    if (id == nullptr || *id >= most) {
      return invalid_input("tokens[{}]: expected a token id from 0 to {}", index, most - 1);
    }
    ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

}  // namespace

Reply tokenize(const ServedModel& model, const HttpRequest& request) {
  auto response = tokenize_body(model, request.body);
  return response ? *std::move(response) : openai_error(response.error());
}

Reply detokenize(const ServedModel& model, const HttpRequest& request) {
  const auto ids = read_tokens(model, request.body);
  if (!ids) return openai_error(api_error(ids.error()));
  auto decoded = model.tokenizer->decode(*ids);
  if (!decoded) return openai_error(api_error(decoded.error()));
  OrderedJson json;
  json["prompt"] = *std::move(decoded);
  HttpResponse response;
  response.body = to_text(json);
  return response;
}

Reply tokenizer_info(const ServedModel& model, const HttpRequest&) {
  const Config& config = model.engine->config();
  const auto spelling = [&model](int64_t id) {
    return std::string(model.tokenizer->token_text(static_cast<int32_t>(id)));
  };
  OrderedJson json;
  json["tokenizer_class"] = "PreTrainedTokenizerFast";
  json["bos_token"] = spelling(config.bos_token_id);
  json["eos_token"] = spelling(config.eos_token_id);
  json["pad_token"] = spelling(config.eos_token_id);
  json["add_bos_token"] = false;
  json["model_max_length"] = model.engine->max_model_len();
  json["vocab_size"] = model.tokenizer->vocab_size();
  json["chat_template"] = nullptr;  // the format is no template; /tokenize applies it
  HttpResponse response;
  response.body = to_text(json);
  return response;
}

}  // namespace gannet::server

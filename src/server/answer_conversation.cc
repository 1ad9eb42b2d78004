#include "server/answer_conversation.h"

#include <fmt/format.h>

#include <utility>

#include "text/chat_encoder.h"

namespace gannet::server {
namespace {

ApiResult<void> check_images(const text::ChatRequest& chat) {
  for (const auto& message : chat.messages) {
    if (message.images.empty()) continue;
    const auto& field = message.images.front().field;
    return tl::unexpected(
        bad_request(fmt::format("{}: this server does not take images; send text only", field), field));
  }
  return {};
}

ApiResult<std::vector<int32_t>> encode(const ServedModel& model, const text::ChatRequest& chat) {
  const auto rendered = text::render_prompt(chat);
  size_t bytes = 0;
  for (const auto& segment : rendered.segments) bytes += segment.text.size();
  if (!chat.sampling.truncate_prompt_tokens) GANNET_TRY_STATUS(check_prompt_bytes(model, bytes));
  auto prompt = text::encode_prompt(rendered, *model.tokenizer);
  if (!prompt) return tl::unexpected(api_error(prompt.error()));
  return *std::move(prompt);
}

}  // namespace

ApiResult<void> check_form(const ServedModel& model, const text::ChatRequest& chat) {
  if (model.make_constraint) return {};
  if (chat.must_call) {
    return tl::unexpected(bad_request(
        "tool_choice: this server cannot force a call behind reasoning; use \"auto\", or switch thinking off",
        "tool_choice"));
  }
  if (chat.structured_output.kind != text::ResponseFormat::Kind::text) {
    return tl::unexpected(bad_request(
        "structured_outputs: this server cannot constrain answers; leave it and guided_* out", "structured_outputs"));
  }
  return {};
}

std::function<Result<std::shared_ptr<TokenConstraint>>()> constraint_maker(const ServedModel& model,
                                                                           const text::ChatRequest& chat) {
  if (!model.make_constraint) return {};
  return [&model, &chat] { return model.make_constraint(chat); };
}

ApiResult<std::vector<int32_t>> conversation_prompt(const ServedModel& model, text::ChatRequest& chat) {
  GANNET_TRY_STATUS(check_model(model, chat.model));
  GANNET_TRY_STATUS(check_images(chat));
  model.memory->splice(chat);
  return encode(model, chat);
}

ApiResult<AnswerSet> answer_conversation(const ServedModel& model, text::ChatRequest& chat, const std::string& id) {
  GANNET_TRY_STATUS(check_model(model, chat.model));
  GANNET_TRY_STATUS(check_images(chat));
  GANNET_TRY_STATUS(check_form(model, chat));
  const auto replays = model.memory->splice(chat);
  GANNET_TRY(auto prompt, encode(model, chat));

  AnswerSet::Plan plan;
  plan.id = id;
  plan.prompts.push_back(std::move(prompt));
  plan.sampling = chat.sampling;
  plan.parse = text::parse_options(chat);
  plan.make_constraint = constraint_maker(model, chat);
  // A message that goes on from the client's beginning is not all of the model's making.
  const bool is_whole = chat.add_generation_prompt && !chat.messages.empty() && !chat.messages.back().prefix;
  if (plan.parse.tools && is_whole) plan.memory = model.memory;
  GANNET_TRY(AnswerSet answers, AnswerSet::start(model, std::move(plan)));
  model.memory->count(replays);
  return answers;
}

}  // namespace gannet::server

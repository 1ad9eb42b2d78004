#include "server/answer_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include "base/log.h"

namespace gannet::server {
namespace {

tl::unexpected<ApiError> refuse(std::string message, std::string param) {
  return tl::unexpected(bad_request(std::move(message), std::move(param)));
}

// What the engine cannot do is refused by name rather than left out in silence.
ApiResult<void> check_supported(const text::SamplingRequest& sampling) {
  const auto unsupported = [](const char* field, double value, int neutral) {
    return refuse(
        fmt::format("{} is {}; this server does not apply it yet, so it must be {} or absent", field, value, neutral),
        field);
  };
  if (sampling.presence_penalty.value_or(0) != 0) {
    return unsupported("presence_penalty", *sampling.presence_penalty, 0);
  }
  if (sampling.frequency_penalty.value_or(0) != 0) {
    return unsupported("frequency_penalty", *sampling.frequency_penalty, 0);
  }
  if (sampling.repetition_penalty.value_or(1) != 1) {
    return unsupported("repetition_penalty", *sampling.repetition_penalty, 1);
  }
  if (!sampling.logit_bias.empty()) {
    return refuse("logit_bias is not applied by this server yet, so it must be empty or absent", "logit_bias");
  }
  return {};
}

// Everything but the seed and max_tokens, which depend on the answer and its prompt.
SamplingParams engine_sampling(const text::SamplingRequest& wanted, const Config& config) {
  SamplingParams params;
  params.temperature = wanted.temperature.value_or(1);
  params.top_p = wanted.top_p.value_or(1);
  if (params.top_p == 0) {  // nothing but the likeliest token
    params.temperature = 0;
    params.top_p = 1;
  }
  params.top_k = std::max<int64_t>(wanted.top_k.value_or(0), 0);
  params.min_p = wanted.min_p.value_or(0);
  params.min_tokens = wanted.min_tokens.value_or(0);
  params.stop_ids = wanted.stop_token_ids;
  if (!wanted.ignore_eos) params.stop_ids.push_back(config.eos_token_id);
  params.logprobs = wanted.logprobs ? static_cast<int>(wanted.top_logprobs) : -1;
  return params;
}

ApiResult<void> check_size(const ServedModel& model, const AnswerSet::Plan& plan) {
  const int64_t answers = static_cast<int64_t>(plan.prompts.size()) * plan.sampling.n;
  if (answers > AnswerSet::kMaxAnswers) {
    return refuse(fmt::format("n is {} for {} prompts; together they may ask for at most {} answers", plan.sampling.n,
                              plan.prompts.size(), AnswerSet::kMaxAnswers),
                  "n");
  }
  const int64_t limit = model.engine->max_model_len();
  for (const auto& prompt : plan.prompts) {
    const auto tokens = static_cast<int64_t>(prompt.size());
    if (tokens >= limit) return tl::unexpected(context_too_long(limit, tokens));
  }
  if (model.engine->unfinished() + answers > model.max_unfinished) {
    ApiError busy;
    busy.status = 429;
    busy.code = "overloaded";
    busy.message = fmt::format("the server is busy with {} requests, of at most {}; try again later",
                               model.engine->unfinished(), model.max_unfinished);
    return tl::unexpected(std::move(busy));
  }
  return {};
}

}  // namespace

ApiResult<AnswerSet> AnswerSet::start(const ServedModel& model, Plan plan) {
  GANNET_TRY_STATUS(check_supported(plan.sampling));
  GANNET_TRY_STATUS(check_size(model, plan));
  AnswerSet set;
  SamplingParams params = engine_sampling(plan.sampling, model.engine->config());
  for (const auto& prompt : plan.prompts) {
    const auto tokens = static_cast<int64_t>(prompt.size());
    const int64_t room = model.engine->max_model_len() - tokens;
    params.max_tokens = std::min(plan.sampling.max_tokens.value_or(room), room);
    set.prompt_tokens_ += tokens;
    for (int64_t sample = 0; sample < plan.sampling.n; ++sample) {
      Request request;
      request.prompt = prompt;
      request.sampling = params;
      request.timeout = model.request_timeout;
      if (plan.sampling.seed) request.sampling.seed = *plan.sampling.seed + static_cast<uint64_t>(sample);
      auto generation = Generation::start(*model.engine, std::move(request));
      if (!generation) return tl::unexpected(api_error(generation.error()));
      set.answers_.emplace_back(*std::move(generation), text::TokenMessageParser(*model.tokenizer, plan.parse),
                                plan.sampling.include_stop);
    }
  }
  set.id_ = std::move(plan.id);
  return set;
}

AnswerSet::~AnswerSet() {
  if (answers_.empty() || id_.empty()) return;
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - started_;
  const bool failed =
      std::any_of(answers_.begin(), answers_.end(), [](const Answer& answer) { return !!answer.error(); });
  const char* how = failed ? "failed" : all_ended() ? "complete" : "abandoned by the client";
  spdlog::info("{} {} after {:.2f} s: {} prompt tokens, {} generated", id_, how, time.count(), prompt_tokens_,
               completion_tokens());
}

void AnswerSet::notify(const std::function<void()>& wake) {
  for (auto& answer : answers_) answer.generation().notify(wake);
}

bool AnswerSet::all_ended() const {
  return std::all_of(answers_.begin(), answers_.end(), [](const Answer& answer) { return answer.ended(); });
}

int64_t AnswerSet::completion_tokens() const {
  return std::accumulate(answers_.begin(), answers_.end(), int64_t{0},
                         [](int64_t sum, const Answer& answer) { return sum + answer.completion_tokens(); });
}

int64_t AnswerSet::reasoning_tokens() const {
  return std::accumulate(answers_.begin(), answers_.end(), int64_t{0},
                         [](int64_t sum, const Answer& answer) { return sum + answer.reasoning_tokens(); });
}

ApiResult<void> check_model(const ServedModel& model, const std::string& name) {
  const auto& names = model.names;
  if (name.empty() || std::find(names.begin(), names.end(), name) != names.end()) return {};
  ApiError error;
  error.status = 404;
  error.code = "model_not_found";
  error.param = "model";
  error.message =
      fmt::format("The model `{}` does not exist; this server serves `{}`.", shown(name), fmt::join(names, "`, `"));
  return tl::unexpected(std::move(error));
}

ApiResult<void> check_prompt_bytes(const ServedModel& model, size_t bytes) {
  const int64_t limit = model.engine->max_model_len();
  const size_t longest = model.tokenizer->longest_token();
  const auto least = static_cast<int64_t>((bytes + longest - 1) / longest);
  if (least >= limit) return tl::unexpected(context_too_long(limit, least, true));
  return {};
}

std::string new_id(std::string_view prefix) {
  constexpr std::string_view kAlphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  constexpr int kLength = 24;
  thread_local std::mt19937_64 random{std::random_device{}()};
  std::uniform_int_distribution<size_t> pick(0, kAlphabet.size() - 1);
  std::string id(prefix);
  for (int i = 0; i < kLength; ++i) id += kAlphabet[pick(random)];
  return id;
}

}  // namespace gannet::server

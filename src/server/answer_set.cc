#include "server/answer_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/log.h"
#include "server/thinking_budget.h"

namespace gannet::server {
namespace {

tl::unexpected<ApiError> refuse(std::string message, std::string param) {
  return tl::unexpected(bad_request(std::move(message), std::move(param)));
}

// A word may begin an answer's word or stand inside it, so it is forbidden with and without a space before it.
Result<std::vector<std::vector<int32_t>>> bad_words(const text::SamplingRequest& wanted,
                                                    const text::Tokenizer& tokenizer) {
  std::vector<std::vector<int32_t>> words;
  for (const auto& word : wanted.bad_words) {
    GANNET_TRY(auto plain, tokenizer.encode_plain(word));
    words.push_back(std::move(plain));
    if (word.front() == ' ') continue;
    GANNET_TRY(auto spaced, tokenizer.encode_plain(" " + word));
    words.push_back(std::move(spaced));
  }
  return words;
}

// Every answer looks at all of them for each token.
std::vector<int32_t> distinct(std::vector<int32_t> ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

// Everything but the seed and max_tokens, which depend on the answer and its prompt.
Result<SamplingParams> engine_sampling(const text::SamplingRequest& wanted, const ServedModel& model) {
  SamplingParams params;
  params.temperature = wanted.temperature.value_or(1);
  params.top_p = wanted.top_p.value_or(1);
  params.top_k = std::max<int64_t>(wanted.top_k.value_or(0), 0);
  params.min_p = wanted.min_p.value_or(0);
  params.repetition_penalty = wanted.repetition_penalty.value_or(1);
  params.presence_penalty = wanted.presence_penalty.value_or(0);
  params.frequency_penalty = wanted.frequency_penalty.value_or(0);
  params.min_tokens = wanted.min_tokens.value_or(0);
  std::vector<int32_t> stop_ids = wanted.stop_token_ids;
  if (!wanted.ignore_eos) stop_ids.push_back(model.engine->config().eos_token_id);
  params.stop_ids = std::move(stop_ids);
  std::vector<std::pair<int32_t, float>> biases;
  for (const auto& [id, bias] : wanted.logit_bias) biases.emplace_back(id, static_cast<float>(bias));
  params.logit_bias = std::move(biases);
  params.allowed_ids = distinct(wanted.allowed_token_ids);
  GANNET_TRY(params.bad_words, bad_words(wanted, *model.tokenizer));
  params.logprobs = wanted.logprobs ? static_cast<int>(wanted.top_logprobs) : -1;
  params.prompt_logprobs = static_cast<int>(wanted.prompt_logprobs.value_or(-1));
  return params;
}

// What truncate_prompt_tokens leaves of the prompts.
void truncate(AnswerSet::Plan& plan, int64_t limit) {
  if (!plan.sampling.truncate_prompt_tokens) return;
  const int64_t wanted = *plan.sampling.truncate_prompt_tokens;
  const auto most = static_cast<size_t>(wanted < 0 ? limit - 1 : wanted);
  for (auto& prompt : plan.prompts) {
    if (prompt.size() > most) prompt.erase(prompt.begin(), prompt.end() - static_cast<ptrdiff_t>(most));
  }
}

AnswerOptions answer_options(const AnswerSet::Plan& plan, const Config& config) {
  AnswerOptions options;
  options.include_stop = plan.sampling.include_stop;
  options.prompt_only = plan.prompt_only;
  options.memory = plan.memory;
  options.end_of_sentence = config.eos_token_id;
  options.starts.thinking = plan.parse.stage == text::ParseOptions::Stage::reasoning;
  options.starts.calls_open = plan.parse.starts_in_tool_calls;
  return options;
}

// What the answer's form asks for, and behind that the budget of its reasoning.
Result<std::shared_ptr<TokenConstraint>> constraint_of(const AnswerSet::Plan& plan, const text::Tokenizer& tokenizer) {
  std::shared_ptr<TokenConstraint> constraint;
  if (plan.make_constraint) {
    GANNET_TRY(constraint, plan.make_constraint());
  }
  const auto& budget = plan.sampling.thinking_token_budget;
  if (!budget || plan.parse.stage != text::ParseOptions::Stage::reasoning) return constraint;
  const auto think_end = tokenizer.token_id("</think>");
  if (!think_end) return constraint;
  return std::make_shared<ThinkingBudget>(*budget, *think_end, std::move(constraint));
}

// They become text on the network thread, while everybody else waits.
ApiResult<void> check_prompt_logprobs(const AnswerSet::Plan& plan) {
  if (!plan.sampling.prompt_logprobs) return {};
  int64_t count = 0;
  for (const auto& prompt : plan.prompts) count += static_cast<int64_t>(prompt.size());
  count *= (*plan.sampling.prompt_logprobs + 1) * plan.sampling.n;
  if (count <= AnswerSet::kMaxPromptLogprobs) return {};
  return refuse(
      fmt::format("prompt_logprobs: {} log-probabilities of prompt tokens (tokens * n * (prompt_logprobs + 1)); "
                  "one request may ask for at most {}",
                  count, AnswerSet::kMaxPromptLogprobs),
      "prompt_logprobs");
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
  GANNET_TRY_STATUS(check_prompt_logprobs(plan));
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

// Whoever may choose one can make everybody else wait.
int64_t priority_of(const ServedModel& model, const text::SamplingRequest& wanted) {
  if (model.accepts_priority || wanted.priority == 0) return wanted.priority;
  spdlog::debug("the field priority is ignored; --allow-priority lets clients choose it");
  return 0;
}

ApiResult<Answer> start_answer(const ServedModel& model, const AnswerSet::Plan& plan, const SharedList<int32_t>& prompt,
                               const SamplingParams& params) {
  Request request;
  request.prompt = prompt;
  request.sampling = params;
  request.priority = priority_of(model, plan.sampling);
  request.cache_salt = plan.sampling.cache_salt;
  request.timeout = model.request_timeout;
  auto constraint = constraint_of(plan, *model.tokenizer);
  if (!constraint) return tl::unexpected(api_error(constraint.error()));
  request.constraint = *std::move(constraint);
  auto generation = Generation::start(*model.engine, std::move(request));
  if (!generation) return tl::unexpected(api_error(generation.error()));
  return Answer(*std::move(generation), text::TokenMessageParser(*model.tokenizer, plan.parse),
                answer_options(plan, model.engine->config()));
}

}  // namespace

ApiResult<AnswerSet> AnswerSet::start(const ServedModel& model, Plan plan) {
  truncate(plan, model.engine->max_model_len());
  GANNET_TRY_STATUS(check_size(model, plan));
  AnswerSet set;
  set.per_prompt_ = static_cast<size_t>(plan.sampling.n);
  auto params = engine_sampling(plan.sampling, model);
  if (!params) return tl::unexpected(api_error(params.error()));
  if (plan.prompt_only) params->min_tokens = 0;
  for (auto& prompt : plan.prompts) set.prompts_.emplace_back(std::move(prompt));
  for (const auto& prompt : set.prompts_) {
    const int64_t room = model.engine->max_model_len() - static_cast<int64_t>(prompt.size());
    params->max_tokens = plan.prompt_only ? 1 : std::min(plan.sampling.max_tokens.value_or(room), room);
    for (int64_t sample = 0; sample < plan.sampling.n; ++sample) {
      if (plan.sampling.seed) params->seed = *plan.sampling.seed + static_cast<uint64_t>(sample);
      GANNET_TRY(Answer answer, start_answer(model, plan, prompt, *params));
      set.answers_.push_back(std::move(answer));
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
  spdlog::info("{} {} after {:.2f} s: {} prompt tokens, {} generated", id_, how, time.count(), prompt_tokens(),
               completion_tokens());
}

void AnswerSet::notify(const std::function<void()>& wake) {
  for (auto& answer : answers_) answer.generation().notify(wake);
}

bool AnswerSet::all_ended() const {
  return std::all_of(answers_.begin(), answers_.end(), [](const Answer& answer) { return answer.ended(); });
}

int64_t AnswerSet::prompt_tokens() const {
  return std::accumulate(prompts_.begin(), prompts_.end(), int64_t{0},
                         [](int64_t sum, const auto& prompt) { return sum + static_cast<int64_t>(prompt.size()); });
}

int64_t AnswerSet::cached_tokens() const {
  int64_t sum = 0;
  for (size_t index = 0; index < answers_.size(); index += per_prompt_) sum += answers_[index].cached_tokens();
  return sum;
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

}  // namespace gannet::server

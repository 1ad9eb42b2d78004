#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "engine/sampler_selection.h"
#include "model/batch.h"

namespace gannet {
namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();

// A broken weight must not become a broken index: what is not a number is never chosen, and what is infinite is a
// number that the others can be compared with.
float sane(float logit) {
  return logit >= kImpossible ? (logit < kLargest ? logit : kLargest) : kImpossible;
}

// A bijection that spreads every bit over all others (the finaliser of SplitMix64, Steele et al. 2014).
uint64_t spread(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

// Number `index` of a seed's random numbers, in [0, 1).
double uniform_number(uint64_t seed, int64_t index) {
  constexpr uint64_t kStep = 0x9e3779b97f4a7c15U;
  const uint64_t bits = spread(spread(seed + kStep) + static_cast<uint64_t>(index + 1) * kStep);
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

uint64_t random_seed() {
  std::random_device source;
  return (uint64_t{source()} << 32) | source();
}

std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, double total, int count) {
  std::vector<TokenLogprob> top;
  for (const auto& [logit, id] : selection::likeliest(logits, count)) {
    top.push_back({id, static_cast<float>(static_cast<double>(logit) - total)});
  }
  return top;
}

// Log-probabilities of one id and of the likeliest ones; `logits` are sane.
void add_logprobs(std::span<const float> logits, int logprobs, Token& token) {
  if (logprobs < 0) return;
  const double total = selection::log_sum(logits);
  token.logprob = TokenLogprob{token.id, static_cast<float>(static_cast<double>(logits[token.id]) - total)};
  token.top_logprobs = top_logprobs(logits, total, logprobs);
}

void copy_sane(std::span<const float> logits, std::vector<float>& copy) {
  copy.resize(logits.size());
  std::transform(logits.begin(), logits.end(), copy.begin(), sane);
}

bool penalizes(const SamplingParams& params) {
  return params.repetition_penalty != 1 || params.presence_penalty != 0 || params.frequency_penalty != 0;
}

selection::Filters filters(const SamplingParams& params) {
  return {.temperature = params.temperature, .top_k = params.top_k, .top_p = params.top_p, .min_p = params.min_p};
}

std::vector<int32_t> distinct(std::span<const int32_t> ids) {
  int32_t last = -1;
  for (const int32_t id : ids) last = std::max(last, id);
  std::vector<bool> seen(static_cast<size_t>(last) + 1);
  for (const int32_t id : ids) seen[id] = true;
  std::vector<int32_t> found;
  for (int32_t id = 0; id <= last; ++id) {
    if (seen[id]) found.push_back(id);
  }
  return found;
}

void apply_mask(std::span<float> logits, std::span<const uint32_t> mask) {
  constexpr size_t kBits = 32;
  for (size_t start = 0; start < logits.size(); start += kBits) {
    const uint32_t word = mask[start / kBits];
    if (word == ~uint32_t{0}) continue;
    const size_t end = std::min(start + kBits, logits.size());
    for (size_t i = start; i < end; ++i) logits[i] = (word >> (i - start) & 1) != 0 ? logits[i] : kImpossible;
  }
}

}  // namespace

Sampler::Sampler(const SamplingParams& params, std::span<const int32_t> prompt, std::span<const int32_t> never_sampled)
    : params_(params), never_sampled_(never_sampled), seed_(params.seed ? *params.seed : random_seed()) {
  if (params.repetition_penalty != 1) prompt_ids_ = distinct(prompt);
  for (const auto& word : params.bad_words) longest_tail_ = std::max(longest_tail_, word.size() - 1);
}

Token Sampler::choose(std::span<float> logits, int64_t generated, std::span<const uint32_t> mask) {
  thread_local std::vector<float> original;
  std::transform(logits.begin(), logits.end(), logits.begin(), sane);
  if (params_.logprobs >= 0) original.assign(logits.begin(), logits.end());
  forbid(logits, generated, mask);
  for (const auto& [id, bias] : params_.logit_bias) logits[id] = sane(logits[id] + bias);
  penalize(logits);

  Token token;
  const float top = selection::largest_logit(logits);
  if (top == kImpossible) {
    token.id = fallback(mask);
  } else if (params_.temperature == 0) {
    token.id = static_cast<int32_t>(std::find(logits.begin(), logits.end(), top) - logits.begin());
  } else {
    token.id = selection::draw(logits, filters(params_), uniform_number(seed_, generated));
  }
  add_logprobs(original, params_.logprobs, token);
  remember(token.id);
  return token;
}

bool Sampler::candidates_suffice(int64_t generated) const {
  const SamplingParams& p = params_;
  const bool others = p.logprobs >= 0 || penalizes(p) || !p.logit_bias.empty() || !p.allowed_ids.empty() ||
                      !p.bad_words.empty() || generated < p.min_tokens;
  if (others) return false;
  const auto kept = RowCandidates::kCount - static_cast<int64_t>(never_sampled_.size());
  return p.temperature == 0 ? kept > 0 : p.top_k > 0 && p.top_k <= kept;
}

Token Sampler::choose_among(std::span<const float> logits, std::span<const int32_t> ids, int64_t generated) {
  std::vector<float> possible;
  std::vector<int32_t> their_ids;
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool never = std::find(never_sampled_.begin(), never_sampled_.end(), ids[i]) != never_sampled_.end();
    if (ids[i] < 0 || never || logits[i] == kImpossible) continue;
    possible.push_back(logits[i]);
    their_ids.push_back(ids[i]);
  }
  Token token;
  if (possible.empty()) {
    token.id = fallback({});
  } else if (params_.temperature == 0) {
    token.id = their_ids.front();
  } else {
    token.id = their_ids[selection::draw(possible, filters(params_), uniform_number(seed_, generated))];
  }
  remember(token.id);
  return token;
}

Token Sampler::describe(std::span<const float> logits, int32_t id, int logprobs) {
  thread_local std::vector<float> copy;
  copy_sane(logits, copy);
  Token token;
  token.id = id;
  add_logprobs(copy, logprobs, token);
  return token;
}

void Sampler::forbid(std::span<float> logits, int64_t generated, std::span<const uint32_t> mask) const {
  if (!mask.empty()) apply_mask(logits, mask);
  if (!params_.allowed_ids.empty()) {
    std::vector<std::pair<int32_t, float>> allowed;
    for (const int32_t id : params_.allowed_ids) allowed.emplace_back(id, logits[id]);
    std::fill(logits.begin(), logits.end(), kImpossible);
    for (const auto& [id, logit] : allowed) logits[id] = logit;
  }
  for (const int32_t id : never_sampled_) logits[id] = kImpossible;
  forbid_bad_words(logits);
  if (generated < params_.min_tokens) {
    for (const int32_t id : params_.stop_ids) logits[id] = kImpossible;
  }
}

// The last id of a bad word, if the answer ends in all those before it.
void Sampler::forbid_bad_words(std::span<float> logits) const {
  for (const auto& word : params_.bad_words) {
    const size_t before = word.size() - 1;
    if (tail_.size() < before) continue;
    if (std::equal(word.begin(), word.end() - 1, tail_.end() - static_cast<int64_t>(before))) {
      logits[word.back()] = kImpossible;
    }
  }
}

// vLLM's definitions: repetition divides positive and multiplies negative logits of ids in prompt or answer; frequency
// and presence are taken from ids of the answer.
void Sampler::penalize(std::span<float> logits) const {
  const auto repeat = [&](int32_t id) {
    const double logit = logits[id];
    const double penalized = logit > 0 ? logit / params_.repetition_penalty : logit * params_.repetition_penalty;
    logits[id] = sane(static_cast<float>(std::clamp(penalized, -double{kLargest}, double{kLargest})));
  };
  if (params_.repetition_penalty != 1) {
    const auto repeat_possible = [&](int32_t id) {
      if (logits[id] != kImpossible) repeat(id);
    };
    for (const int32_t id : prompt_ids_) repeat_possible(id);
    for (const auto& [id, count] : counts_) {
      if (!std::binary_search(prompt_ids_.begin(), prompt_ids_.end(), id)) repeat_possible(id);
    }
  }
  for (const auto& [id, count] : counts_) {
    const double taken = params_.frequency_penalty * count + params_.presence_penalty;
    logits[id] = sane(static_cast<float>(static_cast<double>(logits[id]) - taken));
  }
}

// Nothing is possible, because the logits are broken or the request forbids what its grammar wants: the lowest id that
// the grammar, or else the request, allows.
int32_t Sampler::fallback(std::span<const uint32_t> mask) const {
  for (size_t word = 0; word < mask.size(); ++word) {
    if (mask[word] != 0) return static_cast<int32_t>(word * 32) + std::countr_zero(mask[word]);
  }
  const auto& allowed = params_.allowed_ids;
  return allowed.empty() ? 0 : *std::min_element(allowed.begin(), allowed.end());
}

void Sampler::remember(int32_t id) {
  if (penalizes(params_)) ++counts_[id];
  if (longest_tail_ == 0) return;
  if (tail_.size() == longest_tail_) tail_.erase(tail_.begin());
  tail_.push_back(id);
}

namespace {

Status check_ids(const char* field, std::span<const int32_t> ids, int64_t vocab_size) {
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size) {
      return invalid_input("{} holds {}; it must be from 0 to {}", field, id, vocab_size - 1);
    }
  }
  return {};
}

Status check_logprobs(const char* field, int64_t value, int64_t vocab_size) {
  if (value < -1 || value > vocab_size) {
    return invalid_input("{} is {}; it must be from -1 (none) to {}", field, value, vocab_size);
  }
  return {};
}

// Written so that NaN fails too.
Status check_penalties(const SamplingParams& p) {
  if (!(p.repetition_penalty > 0 && p.repetition_penalty <= kLargest)) {
    return invalid_input("repetition_penalty is {}; it must be above 0 and finite", p.repetition_penalty);
  }
  if (!(p.presence_penalty >= -2 && p.presence_penalty <= 2)) {
    return invalid_input("presence_penalty is {}; it must be from -2 to 2", p.presence_penalty);
  }
  if (!(p.frequency_penalty >= -2 && p.frequency_penalty <= 2)) {
    return invalid_input("frequency_penalty is {}; it must be from -2 to 2", p.frequency_penalty);
  }
  return {};
}

Status check_id_lists(const SamplingParams& p, int64_t vocab_size) {
  for (const auto& [id, bias] : p.logit_bias) {
    if (!(bias >= -100 && bias <= 100)) {
      return invalid_input("logit_bias of {} is {}; it must be from -100 to 100", id, bias);
    }
    GANNET_TRY_STATUS(check_ids("logit_bias", {&id, 1}, vocab_size));
  }
  GANNET_TRY_STATUS(check_ids("allowed_token_ids", p.allowed_ids, vocab_size));
  for (const auto& word : p.bad_words) {
    if (word.empty()) return invalid_input("bad_words holds an empty word; each must have at least one token");
    GANNET_TRY_STATUS(check_ids("bad_words", word, vocab_size));
  }
  return check_ids("stop_token_ids", p.stop_ids, vocab_size);
}

}  // namespace

Status check_sampling(const SamplingParams& p, int64_t vocab_size) {
  // Written so that NaN fails too.
  if (!(p.temperature >= 0 && p.temperature <= 100)) {
    return invalid_input("temperature is {}; it must be from 0 to 100", p.temperature);
  }
  if (!(p.top_p > 0 && p.top_p <= 1)) return invalid_input("top_p is {}; it must be above 0 and at most 1", p.top_p);
  if (p.top_k < 0) return invalid_input("top_k is {}; it must be 0 (off) or more", p.top_k);
  if (!(p.min_p >= 0 && p.min_p <= 1)) return invalid_input("min_p is {}; it must be from 0 to 1", p.min_p);
  GANNET_TRY_STATUS(check_penalties(p));
  if (p.max_tokens < 0) return invalid_input("max_tokens is {}; it must be 1 or more", p.max_tokens);
  if (p.min_tokens < 0) return invalid_input("min_tokens is {}; it must be 0 or more", p.min_tokens);
  if (p.max_tokens > 0 && p.min_tokens > p.max_tokens) {
    return invalid_input("min_tokens is {}; it must not be above max_tokens, {}", p.min_tokens, p.max_tokens);
  }
  GANNET_TRY_STATUS(check_logprobs("logprobs", p.logprobs, vocab_size));
  GANNET_TRY_STATUS(check_logprobs("prompt_logprobs", p.prompt_logprobs, vocab_size));
  return check_id_lists(p, vocab_size);
}

}  // namespace gannet

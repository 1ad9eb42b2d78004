#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace gannet {
namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();

// Largest first; of equal ones the lower id.
bool likelier(const std::pair<float, int32_t>& a, const std::pair<float, int32_t>& b) {
  return a.first != b.first ? a.first > b.first : a.second < b.second;
}

int32_t largest(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// log(sum(exp(logits))); 0 when none is possible.
double log_sum(std::span<const float> logits) {
  const float top = *std::max_element(logits.begin(), logits.end());
  if (top == kImpossible) return 0;
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit - top));
  return top + std::log(sum);
}

std::vector<TokenLogprob> likeliest(std::span<const float> logits, double total, int count) {
  std::vector<std::pair<float, int32_t>> order(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) order[i] = {logits[i], static_cast<int32_t>(i)};
  const auto taken = std::min<size_t>(count, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<int64_t>(taken), order.end(), likelier);
  std::vector<TokenLogprob> top;
  for (size_t i = 0; i < taken; ++i) {
    top.push_back({order[i].second, static_cast<float>(static_cast<double>(order[i].first) - total)});
  }
  return top;
}

}  // namespace

Sampler::Sampler(const SamplingParams& params)
    : params_(params), random_(params.seed ? *params.seed : std::random_device{}()) {}

Token Sampler::choose(std::span<float> logits, int64_t generated) {
  // A broken weight must not become a broken index: what is not a number is never chosen, and what is infinite is a
  // number that the others can be compared with.
  for (float& logit : logits) logit = std::isnan(logit) ? kImpossible : std::min(logit, kLargest);
  Token token;
  const double total = params_.logprobs >= 0 ? log_sum(logits) : 0;
  if (params_.logprobs > 0) token.top_logprobs = likeliest(logits, total, params_.logprobs);
  const std::vector<float> original =
      params_.logprobs >= 0 ? std::vector<float>(logits.begin(), logits.end()) : std::vector<float>();
  if (generated < params_.min_tokens) {
    for (const int32_t id : params_.stop_ids) logits[id] = kImpossible;
  }
  token.id = params_.temperature == 0 ? largest(logits) : draw(logits);
  if (params_.logprobs >= 0) {
    token.logprob = TokenLogprob{token.id, static_cast<float>(static_cast<double>(original[token.id]) - total)};
  }
  return token;
}

// Temperature, then top_k, top_p and min_p, then one random number against the running sum of what is left.
int32_t Sampler::draw(std::span<const float> logits) {
  const float top = *std::max_element(logits.begin(), logits.end());
  if (top == kImpossible) return 0;
  candidates_.clear();
  double total = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const auto weight = static_cast<float>(std::exp((static_cast<double>(logits[i]) - top) / params_.temperature));
    if (weight <= 0) continue;
    total += weight;
    candidates_.emplace_back(weight, static_cast<int32_t>(i));
  }
  const auto size = static_cast<int64_t>(candidates_.size());
  int64_t kept = params_.top_k > 0 ? std::min(params_.top_k, size) : size;
  const bool filtered = kept < size || params_.top_p < 1 || params_.min_p > 0;
  if (filtered) std::partial_sort(candidates_.begin(), candidates_.begin() + kept, candidates_.end(), likelier);

  if (kept < size) {
    total = 0;
    for (int64_t i = 0; i < kept; ++i) total += candidates_[i].first;
  }
  double mass = 0;
  for (int64_t i = 0; i < kept; ++i) {
    const bool unlikely = filtered && candidates_[i].first < params_.min_p * candidates_[0].first;
    if (unlikely || (i > 0 && mass >= params_.top_p * total)) {
      kept = i;
      break;
    }
    mass += candidates_[i].first;
  }
  const double target = std::uniform_real_distribution<double>(0, mass)(random_);
  double sum = 0;
  for (int64_t i = 0; i < kept; ++i) {
    sum += candidates_[i].first;
    if (target < sum) return candidates_[i].second;
  }
  return candidates_[kept - 1].second;
}

Status check_sampling(const SamplingParams& p, int64_t vocab_size) {
  // Written so that NaN fails too.
  if (!(p.temperature >= 0 && p.temperature <= 100)) {
    return invalid_input("temperature is {}; it must be from 0 to 100", p.temperature);
  }
  if (!(p.top_p > 0 && p.top_p <= 1)) return invalid_input("top_p is {}; it must be above 0 and at most 1", p.top_p);
  if (p.top_k < 0) return invalid_input("top_k is {}; it must be 0 (off) or more", p.top_k);
  if (!(p.min_p >= 0 && p.min_p <= 1)) return invalid_input("min_p is {}; it must be from 0 to 1", p.min_p);
  if (p.max_tokens < 0) return invalid_input("max_tokens is {}; it must be 1 or more", p.max_tokens);
  if (p.min_tokens < 0) return invalid_input("min_tokens is {}; it must be 0 or more", p.min_tokens);
  if (p.max_tokens > 0 && p.min_tokens > p.max_tokens) {
    return invalid_input("min_tokens is {}; it must not be above max_tokens, {}", p.min_tokens, p.max_tokens);
  }
  if (p.logprobs < -1 || p.logprobs > vocab_size) {
    return invalid_input("logprobs is {}; it must be from -1 (none) to {}", p.logprobs, vocab_size);
  }
  for (const int32_t id : p.stop_ids) {
    if (id < 0 || id >= vocab_size) {
      return invalid_input("stop_token_ids holds {}; it must be from 0 to {}", id, vocab_size - 1);
    }
  }
  return {};
}

}  // namespace gannet

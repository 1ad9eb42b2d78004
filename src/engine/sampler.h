#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"

namespace gannet {

// Chooses one request's tokens. Its random numbers depend on its seed and on how many tokens were chosen before, on
// nothing else, so that the same seed gives the same answer whatever runs beside it and however often it is recomputed.
class Sampler {
 public:
  // `never_sampled` must outlive the sampler. O(prompt) with a repetition penalty.
  Sampler(const SamplingParams& params, std::span<const int32_t> prompt, std::span<const int32_t> never_sampled);

  // Chooses from `logits` [vocab_size], which are overwritten, and remembers the choice for the penalties. `generated`
  // tokens were chosen before this one. `mask` has the layout of TokenConstraint, or is empty. What the mask forbids is
  // never chosen, even if nothing else is possible.
  Token choose(std::span<float> logits, int64_t generated, std::span<const uint32_t> mask);

  // Whether the token after `generated` ones can be chosen from a row's RowCandidates::kCount likeliest ids alone: they
  // hold all that its filters can leave, and nothing but ids that are never sampled is forbidden.
  bool candidates_suffice(int64_t generated) const;
  // The same choice as choose() would make from all logits, where candidates_suffice(); `ids` in falling order of their
  // `logits`, of equal ones the lowest first.
  Token choose_among(std::span<const float> logits, std::span<const int32_t> ids, int64_t generated);

  // Log-probability of a given id, and of the `logprobs` likeliest ones.
  static Token describe(std::span<const float> logits, int32_t id, int logprobs);

 private:
  void forbid(std::span<float> logits, int64_t generated, std::span<const uint32_t> mask) const;
  void forbid_bad_words(std::span<float> logits) const;
  void penalize(std::span<float> logits) const;
  int32_t fallback(std::span<const uint32_t> mask) const;
  void remember(int32_t id);

  SamplingParams params_;
  std::span<const int32_t> never_sampled_;
  uint64_t seed_;
  std::vector<int32_t> prompt_ids_;              // each once, ascending; only with a repetition penalty
  std::unordered_map<int32_t, int32_t> counts_;  // of the answer's ids; only with a penalty
  std::vector<int32_t> tail_;                    // the answer's last ids, as many as a bad word can begin with
  size_t longest_tail_ = 0;
};

// Checks every field against its range; the message names field, value and range.
Status check_sampling(const SamplingParams& params, int64_t vocab_size);

}  // namespace gannet

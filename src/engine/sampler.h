#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "engine/engine.h"

namespace gannet {

// Chooses one request's tokens. Its random numbers depend on its seed and on how many tokens it has chosen, on nothing
// else, so that the same seed gives the same answer whatever runs beside it.
class Sampler {
 public:
  explicit Sampler(const SamplingParams& params);

  // Chooses from `logits` [vocab_size], which are overwritten. `generated` tokens were chosen before this one.
  Token choose(std::span<float> logits, int64_t generated);

 private:
  int32_t draw(std::span<const float> logits);

  SamplingParams params_;
  std::mt19937_64 random_;
  std::vector<std::pair<float, int32_t>> candidates_;  // probability and id, kept for its memory
};

// Checks every field against its range; the message names field, value and range.
Status check_sampling(const SamplingParams& params, int64_t vocab_size);

}  // namespace gannet

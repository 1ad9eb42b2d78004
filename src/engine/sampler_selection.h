#pragma once

#include <cstdint>
#include <span>
#include <vector>

// Choosing among a vocabulary's logits without sorting them. No logit may be NaN or +infinity; -infinity is impossible.
namespace gannet::selection {

struct Candidate {
  float logit = 0;
  int32_t id = 0;
};

float largest_logit(std::span<const float> logits);
// log(sum(exp(logits))); 0 when none is possible.
double log_sum(std::span<const float> logits);
// The `count` likeliest, or all if there are fewer, likeliest first; of equal ones the lower id.
std::vector<Candidate> likeliest(std::span<const float> logits, int64_t count);

struct Filters {
  double temperature = 1;  // above 0
  int64_t top_k = 0;       // 0: off
  double top_p = 1;
  double min_p = 0;
};

// Temperature, then top_k, top_p and min_p, then the id at `uniform` [0, 1) of what is left. At least one logit must be
// possible.
int32_t draw(std::span<const float> logits, const Filters& filters, double uniform);

}  // namespace gannet::selection

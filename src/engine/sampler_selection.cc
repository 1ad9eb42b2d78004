#include "engine/sampler_selection.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace gannet::selection {
namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();
constexpr int64_t kLanes = 16;  // a shape that compilers turn into SIMD without reordering anything
constexpr int64_t kBlock = 64;

bool likelier(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// exp(x) for x <= 0, within 3e-7 of it, and 0 where that is below 2^-126. Unlike std::exp it becomes SIMD, and it is
// the same everywhere.
inline float exp_of(float x) {
  constexpr float kLowest = -100;
  constexpr int32_t kExponentBias = 127;
  const float clamped = x > kLowest ? x : kLowest;
  const auto power = static_cast<int32_t>(clamped * 1.44269504F - 0.5F);
  const auto whole = static_cast<float>(power);
  const float r = (clamped - whole * 0.693359375F) - whole * -2.12194440e-4F;  // the two add up to ln 2
  float series = 1.0F / 720;
  series = series * r + 1.0F / 120;
  series = series * r + 1.0F / 24;
  series = series * r + 1.0F / 6;
  series = series * r + 0.5F;
  series = series * r + 1.0F;
  series = series * r + 1.0F;
  return series * std::bit_cast<float>(std::max(power + kExponentBias, 0) << 23);
}

// Weights of one block of logits, relative to the largest; lanes beyond the end weigh nothing.
struct Scale {
  float top = 0;
  float inverse_temperature = 1;
  float weight(float logit) const { return exp_of((logit - top) * inverse_temperature); }
};

using Block = std::array<float, kBlock>;

inline void weigh(std::span<const float> logits, int64_t start, const Scale& scale, Block& weights) {
  const int64_t size = std::min<int64_t>(kBlock, static_cast<int64_t>(logits.size()) - start);
  if (size == kBlock) {
    for (int64_t i = 0; i < kBlock; ++i) weights[i] = scale.weight(logits[start + i]);
    return;
  }
  weights.fill(0);
  for (int64_t i = 0; i < size; ++i) weights[i] = scale.weight(logits[start + i]);
}

inline double sum_of(const Block& weights) {
  std::array<float, kLanes> sums{};
  for (int64_t i = 0; i < kBlock; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += weights[i + lane];
  }
  double sum = 0;
  for (const float partial : sums) sum += partial;
  return sum;
}

double sum_of_weights(std::span<const float> logits, const Scale& scale) {
  double total = 0;
  Block weights;
  for (int64_t start = 0; start < static_cast<int64_t>(logits.size()); start += kBlock) {
    weigh(logits, start, scale, weights);
    total += sum_of(weights);
  }
  return total;
}

// The largest logit of each block, so that blocks without a likely one need not be looked at again.
std::span<const float> block_maxima(std::span<const float> logits) {
  thread_local std::vector<float> maxima;
  maxima.clear();
  const auto size = static_cast<int64_t>(logits.size());
  for (int64_t start = 0; start < size; start += kBlock) {
    maxima.push_back(largest_logit(logits.subspan(start, std::min(kBlock, size - start))));
  }
  return maxima;
}

// All possible logits of at least `bound`, in the order of their ids.
std::vector<Candidate>& at_least(std::span<const float> logits, std::span<const float> maxima, float bound) {
  thread_local std::vector<Candidate> found;
  found.clear();
  const float least = std::max(bound, -std::numeric_limits<float>::max());
  for (size_t block = 0; block < maxima.size(); ++block) {
    if (maxima[block] < least) continue;
    const size_t end = std::min((block + 1) * kBlock, logits.size());
    for (size_t i = block * kBlock; i < end; ++i) {
      if (logits[i] >= least) found.push_back({logits[i], static_cast<int32_t>(i)});
    }
  }
  return found;
}

// A number that at least `count` logits reach, and not many more if count is small: each of the `count` largest block
// maxima is one of them.
float bound_of_likeliest(std::span<const float> maxima, int64_t count) {
  thread_local std::vector<float> order;
  if (count > static_cast<int64_t>(maxima.size())) return kImpossible;
  order.assign(maxima.begin(), maxima.end());
  std::nth_element(order.begin(), order.begin() + (count - 1), order.end(), std::greater<>());
  return order[count - 1];
}

// The id at share `uniform` of all weights.
int32_t draw_from_all(std::span<const float> logits, const Scale& scale, double uniform) {
  thread_local std::vector<double> sums;
  sums.clear();
  Block weights;
  double total = 0;
  for (int64_t start = 0; start < static_cast<int64_t>(logits.size()); start += kBlock) {
    weigh(logits, start, scale, weights);
    sums.push_back(sum_of(weights));
    total += sums.back();
  }
  double target = uniform * total;
  for (int64_t block = 0; block < static_cast<int64_t>(sums.size()); ++block) {
    if (target >= sums[block]) {
      target -= sums[block];
      continue;
    }
    weigh(logits, block * kBlock, scale, weights);
    for (int64_t i = 0; i < kBlock; ++i) {
      target -= weights[i];
      if (target < 0) return static_cast<int32_t>(block * kBlock + i);
    }
    target = 0;  // the sums were rounded: the first possible one of the following blocks
  }
  return static_cast<int32_t>(std::find(logits.begin(), logits.end(), scale.top) - logits.begin());
}

struct Weighted {
  float logit = 0;
  float weight = 0;
  int32_t id = 0;
};

bool likelier_weighted(const Weighted& a, const Weighted& b) {
  return likelier({a.logit, a.id}, {b.logit, b.id});
}

// Logits of at least `bound` and their weights, in the order of their ids.
std::vector<Weighted>& weighted_at_least(std::span<const float> logits, std::span<const float> maxima,
                                         const Scale& scale, double bound) {
  thread_local std::vector<Weighted> found;
  found.clear();
  for (const auto& [logit, id] : at_least(logits, maxima, static_cast<float>(bound))) {
    found.push_back({logit, scale.weight(logit), id});
  }
  return found;
}

double sum_of(std::span<const Weighted> candidates) {
  double sum = 0;
  for (const Weighted& one : candidates) sum += one.weight;
  return sum;
}

int32_t draw_from(std::span<const Weighted> kept, double uniform) {
  double target = uniform * sum_of(kept);
  for (const Weighted& one : kept) {
    target -= one.weight;
    if (target < 0) return one.id;
  }
  return kept.back().id;
}

// Leaves the smallest set of the likeliest whose weights reach `mass`, at least one. Sorting buckets by their distance
// from the top finds the one in which the set ends, and only that one has to be sorted.
void keep_likeliest(std::vector<Weighted>& candidates, const Scale& scale, double mass) {
  constexpr size_t kBuckets = 1024;
  constexpr float kPerUnit = 32;  // buckets reach down to exp(-32)
  const auto bucket = [&](const Weighted& one) {
    const float distance = (scale.top - one.logit) * scale.inverse_temperature * kPerUnit;
    return distance < static_cast<float>(kBuckets - 1) ? static_cast<size_t>(distance) : kBuckets - 1;
  };
  std::array<double, kBuckets> masses{};
  for (const Weighted& one : candidates) masses[bucket(one)] += one.weight;
  double sum = 0;
  size_t cut = 0;
  while (cut + 1 < kBuckets && sum + masses[cut] < mass) sum += masses[cut++];

  const auto in_cut =
      std::partition(candidates.begin(), candidates.end(), [&](const Weighted& one) { return bucket(one) < cut; });
  const auto beyond = std::partition(in_cut, candidates.end(), [&](const Weighted& one) { return bucket(one) == cut; });
  std::sort(in_cut, beyond, likelier_weighted);
  auto end = in_cut;
  while (end != beyond && (end == candidates.begin() || sum < mass)) sum += (end++)->weight;
  candidates.erase(end, candidates.end());
}

// The candidates that top_p and min_p leave of the top_k.
std::vector<Weighted> filter_top_k(std::span<const float> logits, const Filters& filters, const Scale& scale) {
  std::vector<Weighted> kept;
  for (const auto& [logit, id] : likeliest(logits, filters.top_k)) kept.push_back({logit, scale.weight(logit), id});
  const double total = sum_of(kept);
  double mass = 0;
  for (size_t i = 0; i < kept.size(); ++i) {
    if (i > 0 && (mass >= filters.top_p * total || kept[i].weight <= 0 || kept[i].weight < filters.min_p)) {
      kept.resize(i);
      break;
    }
    mass += kept[i].weight;
  }
  return kept;
}

// The candidates that top_p and min_p leave of all.
std::vector<Weighted>& filter_all(std::span<const float> logits, std::span<const float> maxima, const Filters& filters,
                                  const Scale& scale) {
  // Slack, so that rounding drops nothing here; what is kept is decided by weights.
  constexpr double kSlack = 1e-3;
  const auto logit_of = [&](double weight) {
    return scale.top + (std::log(weight) - kSlack) / static_cast<double>(scale.inverse_temperature);
  };
  std::vector<Weighted>* candidates = nullptr;
  if (filters.top_p < 1) {
    const double total = sum_of_weights(logits, scale);
    // Those that weigh less than an even share of what top_p drops are dropped together, so nothing below is needed;
    // mostly the mass is reached far above.
    const double least = (1 - filters.top_p) * total / static_cast<double>(logits.size());
    for (double weight = std::exp(-4.0);; weight *= std::exp(-3.0)) {
      candidates = &weighted_at_least(logits, maxima, scale, logit_of(std::max(weight, least)));
      if (weight <= least || sum_of(*candidates) >= filters.top_p * total) break;
    }
    keep_likeliest(*candidates, scale, filters.top_p * total);
  } else {
    candidates = &weighted_at_least(logits, maxima, scale, logit_of(filters.min_p));
  }
  std::erase_if(*candidates, [&](const Weighted& one) { return one.weight <= 0 || one.weight < filters.min_p; });
  return *candidates;
}

}  // namespace

float largest_logit(std::span<const float> logits) {
  std::array<float, kLanes> best;
  best.fill(kImpossible);
  const auto size = static_cast<int64_t>(logits.size());
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      best[lane] = logits[i + lane] > best[lane] ? logits[i + lane] : best[lane];
    }
  }
  for (; i < size; ++i) best[0] = std::max(best[0], logits[i]);
  return *std::max_element(best.begin(), best.end());
}

double log_sum(std::span<const float> logits) {
  const float top = largest_logit(logits);
  if (top == kImpossible) return 0;
  return top + std::log(sum_of_weights(logits, {.top = top}));
}

std::vector<Candidate> likeliest(std::span<const float> logits, int64_t count) {
  if (count <= 0) return {};
  const std::span<const float> maxima = block_maxima(logits);
  std::vector<Candidate>& found = at_least(logits, maxima, bound_of_likeliest(maxima, count));
  // Impossible ones fill up the rest, lowest ids first.
  for (size_t i = 0; i < logits.size() && static_cast<int64_t>(found.size()) < count; ++i) {
    if (logits[i] == kImpossible) found.push_back({kImpossible, static_cast<int32_t>(i)});
  }
  const auto taken = std::min(count, static_cast<int64_t>(found.size()));
  std::partial_sort(found.begin(), found.begin() + taken, found.end(), likelier);
  return {found.begin(), found.begin() + taken};
}

int32_t draw(std::span<const float> logits, const Filters& filters, double uniform) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  const std::span<const float> maxima = block_maxima(logits);
  const Scale scale{.top = largest_logit(maxima),
                    .inverse_temperature = static_cast<float>(std::min(1 / filters.temperature, kLargest))};
  if (filters.top_k > 0 && filters.top_k < static_cast<int64_t>(logits.size())) {
    return draw_from(filter_top_k(logits, filters, scale), uniform);
  }
  if (filters.top_p < 1 || filters.min_p > 0) return draw_from(filter_all(logits, maxima, filters, scale), uniform);
  return draw_from_all(logits, scale, uniform);
}

}  // namespace gannet::selection

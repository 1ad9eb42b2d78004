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

// exp(x) for x <= 0, within 2e-7 of it, and 0 below -87. Unlike std::exp it becomes SIMD, and it is the same
// everywhere.
inline float exp_of(float x) {
  constexpr float kLowest = -87;
  const float clamped = x > kLowest ? x : kLowest;
  const auto power = static_cast<int32_t>(clamped * 1.44269504F - 0.5F);
  const auto whole = static_cast<float>(power);
  const float r = (clamped - whole * 0.693359375F) - whole * -2.12194440e-4F;  // the two add up to ln 2
  float series = 1.0F / 5040;
  for (const float factor : {1.0F / 720, 1.0F / 120, 1.0F / 24, 1.0F / 6, 0.5F, 1.0F, 1.0F}) {
    series = series * r + factor;
  }
  return x > kLowest ? series * std::bit_cast<float>((power + 127) << 23) : 0.0F;
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

// All possible logits of at least `bound`, in the order of their ids.
std::vector<Candidate>& at_least(std::span<const float> logits, float bound) {
  thread_local std::vector<Candidate> found;
  found.clear();
  const auto size = static_cast<int64_t>(logits.size());
  for (int64_t start = 0; start < size; start += kBlock) {
    const int64_t end = std::min(start + kBlock, size);
    int32_t hits = 0;
    for (int64_t i = start; i < end; ++i) hits += logits[i] >= bound ? 1 : 0;
    for (int64_t i = start; hits > 0 && i < end; ++i) {
      if (!(logits[i] >= bound)) continue;
      --hits;
      if (logits[i] != kImpossible) found.push_back({logits[i], static_cast<int32_t>(i)});
    }
  }
  return found;
}

// A number that at least `count` logits reach, and not many more if count is small: each of the `count` largest block
// maxima is one of them.
float bound_of_likeliest(std::span<const float> logits, int64_t count) {
  thread_local std::vector<float> maxima;
  maxima.clear();
  const auto size = static_cast<int64_t>(logits.size());
  for (int64_t start = 0; start < size; start += kBlock) {
    maxima.push_back(largest_logit(logits.subspan(start, std::min(kBlock, size - start))));
  }
  if (count > static_cast<int64_t>(maxima.size())) return kImpossible;
  std::nth_element(maxima.begin(), maxima.begin() + (count - 1), maxima.end(), std::greater<>());
  return maxima[count - 1];
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
  float weight = 0;
  int32_t id = 0;
};

int32_t draw_from(std::span<const Weighted> kept, double uniform) {
  double total = 0;
  for (const Weighted& one : kept) total += one.weight;
  double target = uniform * total;
  for (const Weighted& one : kept) {
    target -= one.weight;
    if (target < 0) return one.id;
  }
  return kept.back().id;
}

// Buckets of candidates by their distance from the top: the likeliest ones whose weights reach `mass` are all of some
// buckets and a part of the next one, and only that one must be sorted.
class MassCut {
 public:
  MassCut(std::span<const Candidate> candidates, const Scale& scale) : scale_(scale) {
    for (const Candidate& one : candidates) masses_[bucket(one)] += scale.weight(one.logit);
  }

  std::vector<Weighted>& likeliest_with(double mass, std::span<const Candidate> candidates) {
    thread_local std::vector<Weighted> kept;
    thread_local std::vector<Candidate> last;
    kept.clear();
    last.clear();
    double sum = 0;
    size_t cut = 0;
    while (cut + 1 < kBuckets && sum + masses_[cut] < mass) sum += masses_[cut++];
    for (const Candidate& one : candidates) {
      const size_t at = bucket(one);
      if (at < cut) kept.push_back({scale_.weight(one.logit), one.id});
      if (at == cut) last.push_back(one);
    }
    std::sort(last.begin(), last.end(), likelier);
    for (const Candidate& one : last) {
      if (!kept.empty() && sum >= mass) break;
      kept.push_back({scale_.weight(one.logit), one.id});
      sum += kept.back().weight;
    }
    return kept;
  }

 private:
  static constexpr size_t kBuckets = 1024;
  static constexpr float kPerUnit = 32;  // buckets reach down to exp(-32)

  size_t bucket(const Candidate& one) const {
    const float distance = (scale_.top - one.logit) * scale_.inverse_temperature * kPerUnit;
    return distance < static_cast<float>(kBuckets - 1) ? static_cast<size_t>(distance) : kBuckets - 1;
  }

  Scale scale_;
  std::array<double, kBuckets> masses_{};
};

// The candidates that top_p and min_p leave of the top_k.
std::vector<Weighted>& filter_top_k(std::span<const float> logits, const Filters& filters, const Scale& scale) {
  thread_local std::vector<Weighted> kept;
  kept.clear();
  double total = 0;
  for (const Candidate& one : likeliest(logits, filters.top_k)) {
    kept.push_back({scale.weight(one.logit), one.id});
    total += kept.back().weight;
  }
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

// The candidates that top_p and min_p leave of all. Those that weigh less than an even share of what top_p drops are
// dropped together, and so never looked at.
std::vector<Weighted>& filter_all(std::span<const float> logits, const Filters& filters, const Scale& scale) {
  const double total = filters.top_p < 1 ? sum_of_weights(logits, scale) : 0;
  const double dropped_weight = (1 - filters.top_p) * total / static_cast<double>(logits.size());
  const double least = std::max({filters.min_p, dropped_weight, 1e-37});
  // A little below, so that rounding drops nothing here; what is kept is decided by weights.
  const double bound = scale.top + (std::log(least) - 1e-3) / static_cast<double>(scale.inverse_temperature);
  const std::vector<Candidate>& candidates = at_least(logits, static_cast<float>(bound));
  const double mass = filters.top_p < 1 ? filters.top_p * total : std::numeric_limits<double>::infinity();
  std::vector<Weighted>& kept = MassCut(candidates, scale).likeliest_with(mass, candidates);
  std::erase_if(kept, [&](const Weighted& one) { return one.weight <= 0 || one.weight < filters.min_p; });
  return kept;
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
  std::vector<Candidate>& found = at_least(logits, bound_of_likeliest(logits, count));
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
  const Scale scale{.top = largest_logit(logits),
                    .inverse_temperature = static_cast<float>(std::min(1 / filters.temperature, kLargest))};
  if (filters.top_k > 0 && filters.top_k < static_cast<int64_t>(logits.size())) {
    return draw_from(filter_top_k(logits, filters, scale), uniform);
  }
  if (filters.top_p < 1 || filters.min_p > 0) return draw_from(filter_all(logits, filters, scale), uniform);
  return draw_from_all(logits, scale, uniform);
}

}  // namespace gannet::selection

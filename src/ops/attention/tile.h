#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ops/attention/kernels.h"
#include "ops/simd.h"

// Softmax and the weighted sum of keys, written once for all instruction sets (see ops/simd.h).
namespace gannet::ops {
namespace {

using Vector = Lanes::Vector;
constexpr int64_t kLanes = Lanes::kLanes;

// e^x for x <= 0, to about one unit in the last place; 0 below -87, where it would be subnormal. NaN stays NaN.
// e^x = 2^n e^r, n the whole number nearest to x / ln 2; e^r by its Taylor series, |r| <= ln 2 / 2.
Vector exp_of_negative(Vector x) {
  const Vector lowest = Lanes::all(-87.0F);
  const Vector n = Lanes::nearest(Lanes::mul(Lanes::max(lowest, x), Lanes::all(0x1.715476p0F)));
  // ln 2 in two parts: n times the first is exact.
  const Vector r = Lanes::fma(n, Lanes::all(-0x1.62e4p-1F), x);
  const Vector rest = Lanes::fma(n, Lanes::all(-0x1.7f7d1cp-20F), r);
  Vector series = Lanes::all(1.0F / 5040);
  for (const float coefficient : {1.0F / 720, 1.0F / 120, 1.0F / 24, 1.0F / 6, 0.5F, 1.0F, 1.0F}) {
    series = Lanes::fma(series, rest, Lanes::all(coefficient));
  }
  return Lanes::unless_less(x, lowest, Lanes::mul(series, Lanes::power_of_two(n)));
}

float softmax(float* scores, int64_t n, float scale, float sink) {
  const int64_t padded = (n + kLanes - 1) / kLanes * kLanes;
  for (int64_t j = n; j < padded; ++j) scores[j] = -INFINITY;
  Vector most = Lanes::all(-1e30F);
  for (int64_t j = 0; j < padded; j += kLanes) {
    const Vector score = Lanes::mul(Lanes::load(scores + j), Lanes::all(scale));
    Lanes::store(scores + j, score);
    most = Lanes::max(score, most);
  }
  const float top = Lanes::largest(most);
  Vector total = Lanes::zero();
  for (int64_t j = 0; j < padded; j += kLanes) {
    const Vector weight = exp_of_negative(Lanes::sub(Lanes::load(scores + j), Lanes::all(top)));
    Lanes::store(scores + j, weight);
    total = Lanes::add(total, weight);
  }
  return Lanes::sum(total) + std::exp(sink - top);
}

// Keys that are combined at a time: their part of a block of channels stays in L1 while all heads use it.
constexpr int64_t kKeys = 64;

// Adds keys [0, n) to `vectors` vectors of channels of `heads` heads.
template <int heads, int vectors>
void combine_block(const CombineParams& p, const float* weights, const float* keys, int64_t n, const float* totals,
                   float* out, bool first, bool last) {
  Vector sums[heads][vectors];
  GANNET_UNROLL
  for (int h = 0; h < heads; ++h) {
    GANNET_UNROLL
    for (int v = 0; v < vectors; ++v) sums[h][v] = first ? Lanes::zero() : Lanes::load(out + h * p.dim + v * kLanes);
  }
  for (int64_t j = 0; j < n; ++j) {
    Vector key[vectors];
    GANNET_UNROLL
    for (int v = 0; v < vectors; ++v) key[v] = Lanes::load(keys + j * p.key_stride + v * kLanes);
    GANNET_UNROLL
    for (int h = 0; h < heads; ++h) {
      const Vector weight = Lanes::all(weights[h * p.weight_stride + j]);
      GANNET_UNROLL
      for (int v = 0; v < vectors; ++v) sums[h][v] = Lanes::fma(weight, key[v], sums[h][v]);
    }
  }
  GANNET_UNROLL
  for (int h = 0; h < heads; ++h) {
    GANNET_UNROLL
    for (int v = 0; v < vectors; ++v) {
      const Vector sum = last ? Lanes::div(sums[h][v], Lanes::all(totals[h])) : sums[h][v];
      Lanes::store(out + h * p.dim + v * kLanes, sum);
    }
  }
}

// Keys [0, n), the row's keys from number j on.
void combine_keys(const CombineParams& p, const float* keys, int64_t j, int64_t n) {
  constexpr int kHeads = 4;
  constexpr int kVectors = kLanes == 16 ? 4 : 2;
  const bool first = j == 0;
  const bool last = j + n == p.segments[0].count + p.segments[1].count;
  const auto channels = [&]<int vectors>(int64_t c) {
    const auto block = [&]<int heads>(int64_t h) {
      combine_block<heads, vectors>(p, p.weights + h * p.weight_stride + j, keys + c, n, p.totals + h,
                                    p.out + h * p.dim + c, first, last);
    };
    int64_t h = 0;
    for (; h + kHeads <= p.heads; h += kHeads) block.template operator()<kHeads>(h);
    for (; h < p.heads; ++h) block.template operator()<1>(h);
  };
  int64_t c = 0;
  for (; c + kVectors * kLanes <= p.dim; c += kVectors * kLanes) channels.template operator()<kVectors>(c);
  for (; c < p.dim; c += 2 * kLanes) channels.template operator()<2>(c);
}

void combine(const CombineParams& p) {
  int64_t before = 0;
  for (const KeySegment& segment : p.segments) {
    for (int64_t j = 0; j < segment.count; j += kKeys) {
      combine_keys(p, segment.keys + j * p.key_stride, before + j, std::min(kKeys, segment.count - j));
    }
    before += segment.count;
  }
}

void restore_order(float* values, int64_t n) {
  constexpr int64_t kHalf = 16;
  for (float* group = values; group < values + n; group += 2 * kHalf) {
    alignas(64) float split[2 * kHalf];
    std::copy_n(group, 2 * kHalf, split);
    for (int64_t i = 0; i < kHalf; ++i) {
      group[2 * i] = split[i];
      group[2 * i + 1] = split[kHalf + i];
    }
  }
}

void round_all_to_bf16(float* values, int64_t n) {
  for (int64_t i = 0; i < n; i += kLanes) Lanes::store(values + i, Lanes::round_to_bf16(Lanes::load(values + i)));
}

}  // namespace
}  // namespace gannet::ops

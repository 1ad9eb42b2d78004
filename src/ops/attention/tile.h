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
constexpr int kBlock = 2;  // vectors of channels

// Channels [0, kBlock vectors) of `keys` and `out`, for `heads` heads and keys [0, n).
template <int heads>
void combine_block(const float* weights, int64_t weight_stride, const float* totals, const float* keys, int64_t n,
                   int64_t dim, float* out, bool first, bool last) {
  Vector sums[heads][kBlock];
  GANNET_UNROLL
  for (int h = 0; h < heads; ++h) {
    GANNET_UNROLL
    for (int v = 0; v < kBlock; ++v) sums[h][v] = first ? Lanes::zero() : Lanes::load(out + h * dim + v * kLanes);
  }
  for (int64_t j = 0; j < n; ++j) {
    Vector key[kBlock];
    GANNET_UNROLL
    for (int v = 0; v < kBlock; ++v) key[v] = Lanes::load(keys + j * dim + v * kLanes);
    GANNET_UNROLL
    for (int h = 0; h < heads; ++h) {
      const Vector weight = Lanes::all(weights[h * weight_stride + j]);
      GANNET_UNROLL
      for (int v = 0; v < kBlock; ++v) sums[h][v] = Lanes::fma(weight, key[v], sums[h][v]);
    }
  }
  GANNET_UNROLL
  for (int h = 0; h < heads; ++h) {
    GANNET_UNROLL
    for (int v = 0; v < kBlock; ++v) {
      const Vector sum = last ? Lanes::div(sums[h][v], Lanes::all(totals[h])) : sums[h][v];
      Lanes::store(out + h * dim + v * kLanes, sum);
    }
  }
}

void combine(const float* weights, int64_t weight_stride, const float* totals, int64_t heads, const float* keys,
             int64_t n, int64_t dim, float* out) {
  constexpr int kHeads = kLanes == 16 ? 8 : 4;
  for (int64_t j = 0; j < n; j += kKeys) {
    const int64_t count = std::min(kKeys, n - j);
    const bool first = j == 0;
    const bool last = j + kKeys >= n;
    for (int64_t c = 0; c < dim; c += kBlock * kLanes) {
      const auto block = [&]<int most>(int64_t h) {
        combine_block<most>(weights + h * weight_stride + j, weight_stride, totals + h, keys + j * dim + c, count, dim,
                            out + h * dim + c, first, last);
      };
      int64_t h = 0;
      for (; h + kHeads <= heads; h += kHeads) block.template operator()<kHeads>(h);
      for (; h < heads; ++h) block.template operator()<1>(h);
    }
  }
}

void round_all_to_bf16(float* values, int64_t n) {
  for (int64_t i = 0; i < n; i += kLanes) Lanes::store(values + i, Lanes::round_to_bf16(Lanes::load(values + i)));
}

}  // namespace
}  // namespace gannet::ops

#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "base/number_formats.h"
#include "ops/hyper_apply/kernels.h"
#include "ops/simd.h"

namespace gannet::ops {
namespace {

using Vector = Lanes::Vector;
constexpr int64_t kLanes = Lanes::kLanes;

Vector multiply_add(Vector a, Vector b, Vector c) {
  return Lanes::add(c, Lanes::mul(a, b));
}

// The sum of squares in the order of `dot` in ops/math.h: sixteen sums, then those 8, 4, 2 and 1 apart.
float sum_of_squares(const float* x, int64_t n) {
  constexpr int64_t kSums = 16;
  Vector sums[kSums / kLanes];
  for (Vector& sum : sums) sum = Lanes::zero();
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    GANNET_UNROLL
    for (int64_t v = 0; v < kSums / kLanes; ++v) {
      const Vector value = Lanes::load(x + i + v * kLanes);
      sums[v] = multiply_add(value, value, sums[v]);
    }
  }
  std::array<float, kSums> all;
  for (int64_t v = 0; v < kSums / kLanes; ++v) Lanes::store(&all[v * kLanes], sums[v]);
  for (int64_t lane = 0; i < n; ++i, ++lane) all[lane] += x[i] * x[i];
  for (int64_t step = kSums / 2; step > 0; step /= 2) {
    for (int64_t lane = 0; lane < step; ++lane) all[lane] += all[lane + step];
  }
  return all[0];
}

// Where one row lies.
struct Row {
  float* streams = nullptr;
  const float* y = nullptr;
  const float* post = nullptr;
  const float* mix = nullptr;
  const float* pre = nullptr;
  float* x = nullptr;
};

template <int streams, bool bf16>
int64_t mix_vectors(const Row& row, int64_t hidden) {
  int64_t i = 0;
  for (; i + kLanes <= hidden; i += kLanes) {
    Vector old[streams];
    GANNET_UNROLL
    for (int j = 0; j < streams; ++j) old[j] = Lanes::load(row.streams + j * hidden + i);
    const Vector y = Lanes::load(row.y + i);
    GANNET_UNROLL
    for (int k = 0; k < streams; ++k) {
      Vector sum = Lanes::mul(Lanes::all(row.post[k]), y);
      GANNET_UNROLL
      for (int j = 0; j < streams; ++j) sum = multiply_add(Lanes::all(row.mix[j * streams + k]), old[j], sum);
      Lanes::store(row.streams + k * hidden + i, bf16 ? Lanes::round_to_bf16(sum) : sum);
    }
  }
  return i;
}

template <int streams, bool bf16>
void mix_streams(const Row& row, int64_t hidden) {
  for (int64_t i = mix_vectors<streams, bf16>(row, hidden); i < hidden; ++i) {
    std::array<float, streams> old;
    for (int j = 0; j < streams; ++j) old[j] = row.streams[j * hidden + i];
    for (int k = 0; k < streams; ++k) {
      float sum = row.post[k] * row.y[i];
      for (int j = 0; j < streams; ++j) sum += row.mix[j * streams + k] * old[j];
      row.streams[k * hidden + i] = bf16 ? gannet::round_to_bf16(sum) : sum;
    }
  }
}

template <int streams>
void collapse(const Row& row, int64_t hidden) {
  int64_t i = 0;
  for (; i + kLanes <= hidden; i += kLanes) {
    Vector sum = Lanes::zero();
    GANNET_UNROLL
    for (int j = 0; j < streams; ++j) {
      sum = multiply_add(Lanes::all(row.pre[j]), Lanes::load(row.streams + j * hidden + i), sum);
    }
    Lanes::store(row.x + i, sum);
  }
  for (; i < hidden; ++i) {
    float sum = 0;
    for (int j = 0; j < streams; ++j) sum += row.pre[j] * row.streams[j * hidden + i];
    row.x[i] = sum;
  }
}

void normalise(const HyperApplyParams& p, float* x, float* operand) {
  const float factor = 1.0F / std::sqrt(sum_of_squares(x, p.hidden) / static_cast<float>(p.hidden) + p.norm_eps);
  const bool bf16 = p.activations == Activations::bf16;
  int64_t i = 0;
  for (; i + kLanes <= p.hidden; i += kLanes) {
    const Vector scaled = Lanes::mul(Lanes::load(x + i), Lanes::all(factor));
    const Vector value = Lanes::mul(Lanes::load_bf16(p.norm + i), scaled);
    Lanes::store(x + i, value);
    Lanes::store(operand + i, bf16 ? Lanes::round_to_bf16(value) : value);
  }
  for (; i < p.hidden; ++i) {
    x[i] = bf16_to_float(p.norm[i]) * (x[i] * factor);
    operand[i] = bf16 ? gannet::round_to_bf16(x[i]) : x[i];
  }
}

template <int streams>
void apply_row(const HyperApplyParams& p, int64_t r) {
  Row row{.streams = p.streams + r * streams * p.hidden, .pre = p.pre + r * streams};
  if (p.y != nullptr) {
    row.y = p.y + r * p.hidden;
    row.post = p.post + r * streams;
    row.mix = p.mix + r * streams * streams;
    if (p.activations == Activations::bf16) {
      mix_streams<streams, true>(row, p.hidden);
    } else {
      mix_streams<streams, false>(row, p.hidden);
    }
  }
  if (p.norm == nullptr) return;
  row.x = p.x + r * p.hidden;
  collapse<streams>(row, p.hidden);
  normalise(p, row.x, p.operand + r * p.hidden);
}

// Four streams are the released model's; other numbers go the reference's way.
void apply(const HyperApplyParams& p, int64_t begin, int64_t end) {
  if (p.streams_per_row != 4) return hyper_apply_reference(p, begin, end);
  for (int64_t r = begin; r < end; ++r) apply_row<4>(p, r);
}

}  // namespace
}  // namespace gannet::ops

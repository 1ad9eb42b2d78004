#include <array>

#include "ops/hyper_apply/op.h"
#include "ops/hyper_mix/op.h"
#include "ops/math.h"
#include "ops/rms_norm/op.h"

namespace gannet::ops {
namespace {

void mix_streams(const HyperApplyParams& p, int64_t r) {
  const int64_t s = p.streams_per_row;
  float* streams = p.streams + r * s * p.hidden;
  const float* mix = p.mix + r * s * s;
  for (int64_t i = 0; i < p.hidden; ++i) {
    std::array<float, kMaxStreams> old{};
    for (int64_t j = 0; j < s; ++j) old[j] = streams[j * p.hidden + i];
    for (int64_t k = 0; k < s; ++k) {
      float sum = p.post[r * s + k] * p.y[r * p.hidden + i];
      for (int64_t j = 0; j < s; ++j) sum += mix[j * s + k] * old[j];
      streams[k * p.hidden + i] = rounded(sum, p.activations);
    }
  }
}

}  // namespace

void hyper_apply_reference(const HyperApplyParams& p, int64_t begin, int64_t end) {
  const int64_t s = p.streams_per_row;
  for (int64_t r = begin; r < end; ++r) {
    if (p.y != nullptr) mix_streams(p, r);
    if (p.norm == nullptr) continue;
    const float* streams = p.streams + r * s * p.hidden;
    float* x = p.x + r * p.hidden;
    for (int64_t i = 0; i < p.hidden; ++i) {
      float sum = 0;
      for (int64_t j = 0; j < s; ++j) sum += p.pre[r * s + j] * streams[j * p.hidden + i];
      x[i] = sum;
    }
    rms_norm_row(x, x, p.hidden, p.norm, p.norm_eps, Activations::fp32);
    for (int64_t i = 0; i < p.hidden; ++i) p.operand[r * p.hidden + i] = rounded(x[i], p.activations);
  }
}

}  // namespace gannet::ops

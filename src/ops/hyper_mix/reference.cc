#include <algorithm>
#include <array>
#include <cmath>

#include "ops/hyper_mix/op.h"
#include "ops/math.h"

namespace gannet::ops {
namespace {

// Softmax of each row, plus eps, into c.
void softmax_rows(const float* logits, float* c, int64_t s, float eps) {
  for (int64_t j = 0; j < s; ++j) {
    const float top = *std::max_element(logits + j * s, logits + (j + 1) * s);
    float sum = 0;
    for (int64_t k = 0; k < s; ++k) sum += c[j * s + k] = std::exp(logits[j * s + k] - top);
    for (int64_t k = 0; k < s; ++k) c[j * s + k] = c[j * s + k] / sum + eps;
  }
}

void divide_rows(float* c, int64_t s, float eps) {
  for (int64_t j = 0; j < s; ++j) {
    float sum = 0;
    for (int64_t k = 0; k < s; ++k) sum += c[j * s + k];
    for (int64_t k = 0; k < s; ++k) c[j * s + k] /= sum + eps;
  }
}

void divide_columns(float* c, int64_t s, float eps) {
  for (int64_t k = 0; k < s; ++k) {
    float sum = 0;
    for (int64_t j = 0; j < s; ++j) sum += c[j * s + k];
    for (int64_t j = 0; j < s; ++j) c[j * s + k] /= sum + eps;
  }
}

}  // namespace

void hyper_coefficients(const HyperMixParams& p, const float* m, int64_t row) {
  const int64_t s = p.streams_per_row;
  float* pre = p.pre + row * s;
  float* post = p.post + row * s;
  float* mix = p.mix + row * s * s;
  for (int64_t j = 0; j < s; ++j) {
    pre[j] = sigmoid(m[j] * p.scale[0] + p.base[j]) + p.eps;
    post[j] = 2 * sigmoid(m[s + j] * p.scale[1] + p.base[s + j]);
  }
  std::array<float, kMaxStreams * kMaxStreams> logits{};
  for (int64_t i = 0; i < s * s; ++i) logits[i] = m[2 * s + i] * p.scale[2] + p.base[2 * s + i];
  softmax_rows(logits.data(), mix, s, p.eps);
  for (int64_t i = 0; i < p.sinkhorn_iterations; ++i) {
    if (i > 0) divide_rows(mix, s, p.eps);
    divide_columns(mix, s, p.eps);
  }
}

void hyper_mix_reference(const HyperMixParams& p, int64_t begin, int64_t end) {
  const int64_t s = p.streams_per_row;
  const int64_t width = s * p.hidden;
  std::array<float, (2 + kMaxStreams) * kMaxStreams> m{};
  for (int64_t r = begin; r < end; ++r) {
    const float* u = p.streams + r * width;
    const float factor = inverse_rms(u, width, p.norm_eps);
    for (int64_t i = 0; i < (2 + s) * s; ++i) m[i] = dot(p.fn + i * width, u, width) * factor;
    hyper_coefficients(p, m.data(), r);
  }
}

}  // namespace gannet::ops

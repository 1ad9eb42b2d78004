#include <algorithm>
#include <cmath>
#include <numbers>

#include "ops/math.h"
#include "ops/rope/op.h"

namespace gannet::ops {
namespace {

// The channel whose wave makes `rotations` turns over the original length.
double correction_dim(const RopeParams& p, double rotations) {
  const auto length = static_cast<double>(p.original_length);
  return static_cast<double>(p.dim) * std::log(length / (rotations * 2 * std::numbers::pi)) / (2 * std::log(p.theta));
}

}  // namespace

std::vector<float> rope_frequencies(const RopeParams& p) {
  const int64_t pairs = p.dim / 2;
  std::vector<float> frequencies(pairs);
  for (int64_t i = 0; i < pairs; ++i) {
    const auto exponent = static_cast<float>(2 * i) / static_cast<float>(p.dim);
    frequencies[i] = 1.0F / static_cast<float>(std::pow(p.theta, static_cast<double>(exponent)));
  }
  if (p.original_length == 0) return frequencies;

  const double low = std::max(std::floor(correction_dim(p, p.beta_fast)), 0.0);
  const double high = std::min(std::ceil(correction_dim(p, p.beta_slow)), static_cast<double>(p.dim - 1));
  for (int64_t i = 0; i < pairs; ++i) {
    const double position = (static_cast<double>(i) - low) / std::max(high - low, 1e-3);
    const auto ramp = static_cast<float>(std::clamp(position, 0.0, 1.0));
    frequencies[i] = frequencies[i] / static_cast<float>(p.factor) * ramp + frequencies[i] * (1 - ramp);
  }
  return frequencies;
}

void RopeAngle::set(int64_t position, const std::vector<float>& frequencies) {
  cosine.resize(frequencies.size());
  sine.resize(frequencies.size());
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float angle = static_cast<float>(position) * frequencies[i];
    cosine[i] = std::cos(angle);
    sine[i] = std::sin(angle);
  }
}

void rope_rotate(float* v, const RopeAngle& angle, bool inverse, Activations activations) {
  for (size_t i = 0; i < angle.cosine.size(); ++i) {
    const float c = angle.cosine[i];
    const float s = inverse ? -angle.sine[i] : angle.sine[i];
    const float a = v[2 * i];
    const float b = v[2 * i + 1];
    v[2 * i] = rounded(a * c - b * s, activations);
    v[2 * i + 1] = rounded(a * s + b * c, activations);
  }
}

}  // namespace gannet::ops

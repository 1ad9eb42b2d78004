#pragma once

#include <cstdint>
#include <vector>

#include "base/device.h"

namespace gannet::ops {

// Frequencies of a rotary table, one for each pair of channels (spec: model 3.1, "RoPE"). `original_length` 0 means no
// YaRN interpolation (table L); otherwise table C: frequencies below the correction range are divided by `factor`.
struct RopeParams {
  double theta = 10000;
  int64_t dim = 64;  // rotated channels, even
  double factor = 1;
  double beta_fast = 32;
  double beta_slow = 1;
  int64_t original_length = 0;
};
std::vector<float> rope_frequencies(const RopeParams& params);

// Cosines and sines of one position, fp32(position) * fp32(frequency) taken as the exact angle.
struct RopeAngle {
  std::vector<float> cosine;
  std::vector<float> sine;
  void set(int64_t position, const std::vector<float>& frequencies);
};

// Rotates `v` (2 * pairs channels, adjacent pairs) in place by +angle or, inverse, by -angle.
void rope_rotate(float* v, const RopeAngle& angle, bool inverse, Activations activations);

}  // namespace gannet::ops

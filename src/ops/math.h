#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/device.h"
#include "base/number_formats.h"

// Small pieces that the references of several ops share.
namespace gannet::ops {

// bf16 rounding where the model rounds, unless activations stay in fp32.
inline float rounded(float value, Activations activations) {
  return activations == Activations::bf16 ? round_to_bf16(value) : value;
}

// Sum of a[i] * b[i] in fp32. Sixteen partial sums in a fixed tree: the same bits for the same input everywhere, and a
// shape that compilers turn into SIMD without being allowed to reorder anything.
inline float dot(const float* a, const float* b, int64_t n) {
  constexpr int kLanes = 16;
  std::array<float, kLanes> sum{};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) sum[lane] += a[i + lane] * b[i + lane];
  }
  for (int lane = 0; i < n; ++i, ++lane) sum[lane] += a[i] * b[i];
  for (int step = kLanes / 2; step > 0; step /= 2) {
    for (int lane = 0; lane < step; ++lane) sum[lane] += sum[lane + step];
  }
  return sum[0];
}

inline float sigmoid(float x) {
  return 1.0F / (1.0F + std::exp(-x));
}

// 1 / sqrt(mean(x^2) + eps), the factor of RMSNorm (spec: model 3.1).
inline float inverse_rms(const float* x, int64_t n, float eps) {
  return 1.0F / std::sqrt(dot(x, x, n) / static_cast<float>(n) + eps);
}

// Grow-only memory of one thread, aligned to 64 bytes, so that ops do not allocate once they have run at their largest
// size. `Tag` keeps the buffers of different users apart.
template <class Tag, class T = float>
T* scratch(int64_t size) {
  constexpr int64_t kAlignment = 64;
  static_assert(kAlignment % sizeof(T) == 0);
  thread_local std::vector<T> buffer;
  const int64_t needed = size + kAlignment / int64_t{sizeof(T)};
  if (static_cast<int64_t>(buffer.size()) < needed) buffer.resize(needed);
  return buffer.data() + (-reinterpret_cast<uintptr_t>(buffer.data()) % kAlignment) / sizeof(T);
}

}  // namespace gannet::ops

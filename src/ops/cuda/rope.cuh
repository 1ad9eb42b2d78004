#pragma once

#include <cstdint>

namespace gannet::ops::cuda {

// Rotates the pair (a, b) by the angle of this cosine and sine. Every product is rounded, as in rope_rotate: a fused
// one would give other bits.
__device__ inline void rotate_pair(float& a, float& b, float cosine, float sine) {
  const float first = __fsub_rn(__fmul_rn(a, cosine), __fmul_rn(b, sine));
  b = __fadd_rn(__fmul_rn(a, sine), __fmul_rn(b, cosine));
  a = first;
}

// The angle is the fp32 product, taken as exact.
__device__ inline void rotate_pair_at(float& a, float& b, int64_t position, float frequency) {
  float sine, cosine;
  sincosf(__fmul_rn(static_cast<float>(position), frequency), &sine, &cosine);
  rotate_pair(a, b, cosine, sine);
}

}  // namespace gannet::ops::cuda

#pragma once

#include <cstdint>

namespace gannet::ops::cuda {

// Codes of floats that are in the floats' order, -0 being 0; those of numbers and infinities are above 0 and below
// 0xffffffff.
__device__ inline uint32_t ordered(float value) {
  const uint32_t bits = __float_as_uint(value + 0.0F);
  return bits ^ (static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31) | 0x80000000U);
}
__device__ inline float unordered(uint32_t code) {
  return __uint_as_float((code & 0x80000000U) != 0 ? code ^ 0x80000000U : ~code);
}

}  // namespace gannet::ops::cuda

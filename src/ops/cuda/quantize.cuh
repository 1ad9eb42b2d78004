#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <cstdint>

// The block formats of activations and caches on the device (base/quantize.h, whose bits these give).
namespace gannet::ops::cuda {

// Smallest power of two >= amax / limit, as an E8M0 code.
__device__ inline uint32_t power_of_two_scale(float amax, float inverse_limit) {
  const uint32_t bits = __float_as_uint(__fmul_rn(amax, inverse_limit));
  return min((bits >> 23) + ((bits & 0x7fffffU) != 0 ? 1U : 0U), 254U);
}
__device__ inline uint32_t q8_scale(float amax) {
  return power_of_two_scale(fmaxf(amax, 1e-4F), 1.0F / 448.0F);
}
// 2^(code - 127) and its inverse; q8_scale never gives a code below 1 or above 254.
__device__ inline float scale_value(uint32_t code) {
  return __uint_as_float(code << 23);
}
__device__ inline float inverse_scale_value(uint32_t code) {
  return __uint_as_float((254U - code) << 23);
}

// E4M3 code of x, to nearest even, saturating.
__device__ inline uint32_t e4m3_code(float x) {
  return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
}
__device__ inline float e4m3_value(uint32_t code) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(code), __NV_E4M3)));
}

// x rounded through Q8 in a group with this scale: exact in bf16.
__device__ inline float q8_round(float x, uint32_t scale) {
  return e4m3_value(e4m3_code(x * inverse_scale_value(scale))) * scale_value(scale);
}

// E2M1 code of x, to nearest, ties to even codes; |x| is cut at 6.
__device__ inline uint32_t e2m1_code(float x) {
  const float m = fabsf(x);
  const uint32_t sign = __float_as_uint(x) >> 31 << 3;
  uint32_t code = 0;
  code += m > 0.25F;
  code += m >= 0.75F;
  code += m > 1.25F;
  code += m >= 1.75F;
  code += m > 2.5F;
  code += m >= 3.5F;
  code += m > 5.0F;
  return sign | code;
}
__device__ inline float e2m1_value(uint32_t code) {
  const uint32_t exponent = (code >> 1) & 3, mantissa = code & 1;
  const float m =
      exponent == 0 ? 0.5F * static_cast<float>(mantissa) : static_cast<float>((2 + mantissa) << (exponent - 1)) * 0.5F;
  return (code & 8) != 0 ? -m : m;
}

}  // namespace gannet::ops::cuda

#pragma once

#include <immintrin.h>

#include "base/number_formats.h"

// Only files named *avx512.cc may include this; as in ops/simd.h, everything has internal linkage.
namespace gannet::ops {
namespace {

// Clamps to +-448 and rounds to E4M3: adding and subtracting 2^20 times the power of two below the magnitude (2^-6 in
// the subnormal range) leaves three mantissa bits, rounded to nearest even. NaN stays NaN.
__m512 round_to_e4m3(__m512 x) {
  const __m512 magnitude = _mm512_min_ps(_mm512_set1_ps(kE4m3Max), _mm512_abs_ps(x));  // NaN second: it stays
  const __m512 power = _mm512_and_ps(magnitude, _mm512_castsi512_ps(_mm512_set1_epi32(0x7f800000)));
  const __m512 shift = _mm512_mul_ps(_mm512_max_ps(power, _mm512_set1_ps(0x1p-6F)), _mm512_set1_ps(0x1p20F));
  const __m512 rounded = _mm512_sub_ps(_mm512_add_ps(magnitude, shift), shift);
  return _mm512_or_ps(rounded, _mm512_and_ps(x, _mm512_set1_ps(-0.0F)));
}

}  // namespace
}  // namespace gannet::ops

#include <immintrin.h>

#include <initializer_list>

#include "ops/experts/kernels.h"

namespace gannet::ops {
namespace {

// e^x = 2^n e^r, n the whole number nearest to x / ln 2; e^r by its Taylor series, |r| <= ln 2 / 2. Beyond the range of
// float it is infinity or 0; NaN stays NaN.
__m512 exponential(__m512 x) {
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(0x1.715476p0F)),
                                        _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  // ln 2 in two parts: n times the first is exact.
  const __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-0x1.62e4p-1F), x);
  const __m512 rest = _mm512_fmadd_ps(n, _mm512_set1_ps(-0x1.7f7d1cp-20F), r);
  __m512 series = _mm512_set1_ps(1.0F / 5040);
  for (const float coefficient : {1.0F / 720, 1.0F / 120, 1.0F / 24, 1.0F / 6, 0.5F, 1.0F, 1.0F}) {
    series = _mm512_fmadd_ps(series, rest, _mm512_set1_ps(coefficient));
  }
  return _mm512_scalef_ps(series, n);
}

}  // namespace

void gated_values_avx512(const float* gate, const float* up, float weight, float limit, int64_t n, float* v) {
  constexpr int64_t kLanes = 16;
  // Far beyond the range of float; keeps the remainder finite.
  constexpr float kMostExponent = 200;
  const __m512 most = _mm512_set1_ps(limit);
  for (int64_t i = 0; i < n; i += kLanes) {
    const auto mask = static_cast<__mmask16>(n - i < kLanes ? (1U << (n - i)) - 1 : 0xffff);
    // Of two operands that are not in order, min and max return the second: NaN stays.
    const __m512 a = _mm512_min_ps(most, _mm512_maskz_loadu_ps(mask, gate + i));
    const __m512 b = _mm512_max_ps(_mm512_set1_ps(-limit), _mm512_min_ps(most, _mm512_maskz_loadu_ps(mask, up + i)));
    const __m512 minus_a = _mm512_sub_ps(_mm512_setzero_ps(), a);
    const __m512 e = exponential(_mm512_min_ps(_mm512_set1_ps(kMostExponent), minus_a));
    const __m512 gated = _mm512_div_ps(a, _mm512_add_ps(_mm512_set1_ps(1), e));
    _mm512_mask_storeu_ps(v + i, mask, _mm512_mul_ps(_mm512_mul_ps(gated, b), _mm512_set1_ps(weight)));
  }
}

}  // namespace gannet::ops

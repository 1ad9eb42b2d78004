#include <immintrin.h>

#include "ops/hyper_mix/kernels.h"
#include "ops/simd.h"

namespace gannet::ops {
namespace {

constexpr int64_t kElements = 16;  // of a matrix: a vector

__m512 divide_columns(__m512 c, __m512 eps) {
  const __m512 first = _mm512_shuffle_f32x4(c, c, 0x00);
  const __m512 second = _mm512_add_ps(first, _mm512_shuffle_f32x4(c, c, 0x55));
  const __m512 third = _mm512_add_ps(second, _mm512_shuffle_f32x4(c, c, 0xaa));
  const __m512 sum = _mm512_add_ps(third, _mm512_shuffle_f32x4(c, c, 0xff));
  return _mm512_div_ps(c, _mm512_add_ps(sum, eps));
}

__m512 divide_rows(__m512 c, __m512 eps) {
  const __m512 first = _mm512_permute_ps(c, 0x00);
  const __m512 second = _mm512_add_ps(first, _mm512_permute_ps(c, 0x55));
  const __m512 third = _mm512_add_ps(second, _mm512_permute_ps(c, 0xaa));
  const __m512 sum = _mm512_add_ps(third, _mm512_permute_ps(c, 0xff));
  return _mm512_div_ps(c, _mm512_add_ps(sum, eps));
}

// Some matrices side by side: every division of one waits for the one before.
template <int count>
void sinkhorn(float* mix, int64_t iterations, float eps_value) {
  const __m512 eps = _mm512_set1_ps(eps_value);
  __m512 c[count];
  GANNET_UNROLL
  for (int m = 0; m < count; ++m) c[m] = _mm512_loadu_ps(mix + m * kElements);
  for (int64_t i = 0; i < iterations; ++i) {
    if (i > 0) {
      GANNET_UNROLL
      for (int m = 0; m < count; ++m) c[m] = divide_rows(c[m], eps);
    }
    GANNET_UNROLL
    for (int m = 0; m < count; ++m) c[m] = divide_columns(c[m], eps);
  }
  GANNET_UNROLL
  for (int m = 0; m < count; ++m) _mm512_storeu_ps(mix + m * kElements, c[m]);
}

}  // namespace

void sinkhorn_avx512(float* mix, int64_t rows, int64_t iterations, float eps) {
  constexpr int kSideBySide = 4;
  int64_t r = 0;
  for (; r + kSideBySide <= rows; r += kSideBySide) sinkhorn<kSideBySide>(mix + r * kElements, iterations, eps);
  for (; r < rows; ++r) sinkhorn<1>(mix + r * kElements, iterations, eps);
}

}  // namespace gannet::ops

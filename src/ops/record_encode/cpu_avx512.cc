#include <immintrin.h>

#include <algorithm>

#include "base/number_formats.h"
#include "base/quantize.h"
#include "ops/e4m3_avx512.h"
#include "ops/record_encode/op.h"

namespace gannet::ops {
namespace {

// The largest of the magnitudes, which ignores NaN: it comes first.
float largest_magnitude(__m512 a, __m512 b) {
  const __m512 zero = _mm512_setzero_ps();
  return _mm512_reduce_max_ps(
      _mm512_max_ps(_mm512_max_ps(_mm512_abs_ps(a), zero), _mm512_max_ps(_mm512_abs_ps(b), zero)));
}

// The codes of sixteen values, in the lowest bytes.
__m512i e4m3_codes(__m512 x) {
  const __m512i bits = _mm512_castps_si512(round_to_e4m3(x));
  const __m512i magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
  const __m512i sign = _mm512_and_si512(_mm512_srli_epi32(bits, 24), _mm512_set1_epi32(0x80));
  const __m512 value = _mm512_castsi512_ps(magnitude);
  const __m512i normal = _mm512_sub_epi32(_mm512_srli_epi32(magnitude, 20), _mm512_set1_epi32(120 << 3));
  const __m512i subnormal = _mm512_cvttps_epi32(_mm512_mul_ps(value, _mm512_set1_ps(512)));
  const __mmask16 small = _mm512_cmp_ps_mask(value, _mm512_set1_ps(0x1p-6F), _CMP_LT_OQ);
  const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  const __m512i code = _mm512_mask_mov_epi32(normal, small, subnormal);
  return _mm512_or_si512(sign, _mm512_mask_mov_epi32(code, nan, _mm512_set1_epi32(0x7f)));
}

// As float_to_e2m1: ties go to the even code.
__m512i e2m1_codes(__m512 x) {
  const __m512 magnitude = _mm512_abs_ps(x);
  __m512i code = _mm512_and_si512(_mm512_srli_epi32(_mm512_castps_si512(x), 28), _mm512_set1_epi32(8));
  const __m512i one = _mm512_set1_epi32(1);
  const auto above = [&](float bound) {
    const __mmask16 mask = _mm512_cmp_ps_mask(magnitude, _mm512_set1_ps(bound), _CMP_GT_OQ);
    code = _mm512_mask_add_epi32(code, mask, code, one);
  };
  const auto from = [&](float bound) {
    const __mmask16 mask = _mm512_cmp_ps_mask(magnitude, _mm512_set1_ps(bound), _CMP_GE_OQ);
    code = _mm512_mask_add_epi32(code, mask, code, one);
  };
  above(0.25F);
  from(0.75F);
  above(1.25F);
  from(1.75F);
  above(2.5F);
  from(3.5F);
  above(5.0F);
  return code;
}

// Sixteen codes to eight bytes, the even one in the low nibble.
void store_nibbles(__m512i codes, uint8_t* to) {
  const __m512i pairs = _mm512_or_si512(codes, _mm512_srli_epi64(codes, 28));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm512_cvtepi64_epi8(pairs));
}

void q8(const float* x, int64_t channels, uint8_t* record) {
  for (int64_t i = 0; i < channels; i += kMxGroup) {
    const __m512 low = _mm512_loadu_ps(x + i);
    const __m512 high = _mm512_loadu_ps(x + i + 16);
    const uint8_t scale = q8_scale(largest_magnitude(low, high));
    record[channels + i / kMxGroup] = scale;
    const __m512 inverse = _mm512_set1_ps(e8m0_to_inverse(scale));
    const auto store = [&](uint8_t* to, __m512 values) {
      const __m512i codes = e4m3_codes(_mm512_mul_ps(values, inverse));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(codes));
    };
    store(record + i, low);
    store(record + i + 16, high);
  }
}

void q4nv(const float* x, int64_t channels, uint8_t* record) {
  for (int64_t i = 0; i < channels; i += kNvGroup) {
    const __m512 values = _mm512_loadu_ps(x + i);
    const float amax = largest_magnitude(values, values);
    const uint8_t scale = float_to_e4m3(std::max(amax, 6 * 0x1p-9F) / 6.0F);
    record[channels / 2 + i / kNvGroup] = scale;
    store_nibbles(e2m1_codes(_mm512_div_ps(values, _mm512_set1_ps(e4m3_to_float(scale)))), record + i / 2);
  }
}

struct Q4mxGroup {
  uint8_t scale;
  __m512i low, high;
};

Q4mxGroup q4mx_group(const float* x) {
  const __m512 low = _mm512_loadu_ps(x);
  const __m512 high = _mm512_loadu_ps(x + 16);
  const uint8_t scale = power_of_two_scale(std::max(largest_magnitude(low, high), 6 * 0x1p-126F), kE2m1Max);
  const __m512 value = _mm512_set1_ps(e8m0_to_float(scale));
  return {scale, e2m1_codes(_mm512_div_ps(low, value)), e2m1_codes(_mm512_div_ps(high, value))};
}

void q4mx(const float* x, int64_t channels, uint8_t* record) {
  for (int64_t i = 0; i < channels; i += kMxGroup) {
    const Q4mxGroup group = q4mx_group(x + i);
    record[channels / 2 + i / kMxGroup] = group.scale;
    store_nibbles(group.low, record + i / 2);
    store_nibbles(group.high, record + i / 2 + 8);
  }
}

void round_through_q4mx(float* x, int64_t channels) {
  const __m512 values = _mm512_loadu_ps(kE2m1Values);
  for (int64_t i = 0; i < channels; i += kMxGroup) {
    const Q4mxGroup group = q4mx_group(x + i);
    const __m512 scale = _mm512_set1_ps(e8m0_to_float(group.scale));
    _mm512_storeu_ps(x + i, _mm512_mul_ps(_mm512_permutexvar_ps(group.low, values), scale));
    _mm512_storeu_ps(x + i + 16, _mm512_mul_ps(_mm512_permutexvar_ps(group.high, values), scale));
  }
}

}  // namespace

const RecordEncoders kRecordEncodersAvx512 = {.q8 = q8, .q4nv = q4nv, .q4mx = q4mx, .q4mx_round = round_through_q4mx};

}  // namespace gannet::ops

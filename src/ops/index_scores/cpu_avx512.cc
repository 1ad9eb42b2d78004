#include <immintrin.h>

#include <algorithm>

#include "ops/index_scores/kernels.h"
#include "ops/simd.h"

#define GANNET_VNNI [[gnu::target("avx512vnni")]]

namespace gannet::ops {
namespace {

constexpr int64_t kBlock = 16;  // keys at a time
constexpr char kRaise = 12;     // makes twice an E2M1 value unsigned

// Of each code, `raise` more than twice its value.
__m512i doubled_values(char raise) {
  const __m128i values = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
  return _mm512_broadcast_i32x4(_mm_add_epi8(values, _mm_set1_epi8(raise)));
}

// The channels of a record in even and odd ones.
void look_up(const uint8_t* record, __m512i table, __m512i& even, __m512i& odd) {
  const __m512i codes = _mm512_loadu_si512(record);
  const __m512i nibble = _mm512_set1_epi8(15);
  even = _mm512_shuffle_epi8(table, _mm512_and_si512(codes, nibble));
  odd = _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(codes, 4), nibble));
}

// The scales of a record, each in four lanes.
__m512 scales_of(const uint8_t* record) {
  int32_t codes;
  __builtin_memcpy(&codes, record + kIndexDim / 2, sizeof(codes));
  const __m512i lanes = _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
  const __m512i exponents = _mm512_permutexvar_epi32(lanes, _mm512_cvtepu8_epi32(_mm_cvtsi32_si128(codes)));
  // Codes 0 (2^-127, a subnormal float) and 255 (NaN) both need the highest mantissa bit.
  const __mmask16 special = _mm512_cmpeq_epi32_mask(exponents, _mm512_setzero_si512()) |
                            _mm512_cmpeq_epi32_mask(exponents, _mm512_set1_epi32(255));
  const __m512i bits = _mm512_slli_epi32(exponents, 23);
  return _mm512_castsi512_ps(_mm512_mask_or_epi32(bits, special, bits, _mm512_set1_epi32(1 << 22)));
}

// The sums of the lanes of sixteen vectors, each in the same order as in linear/cpu_avx512.cc.
__m512 fold(__m512 a, __m512 b) {
  return _mm512_add_ps(_mm512_mask_blend_ps(0xff00, a, b), _mm512_shuffle_f32x4(a, b, 0b01001110));
}
__m512 add_neighbours(__m512 a, __m512 b) {
  return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0b10001000), _mm512_shuffle_ps(a, b, 0b11011101));
}
__m512 sum_fours(const __m512* v) {
  return add_neighbours(add_neighbours(fold(v[0], v[4]), fold(v[1], v[5])),
                        add_neighbours(fold(v[2], v[6]), fold(v[3], v[7])));
}
__m512 sums(const __m512 (&v)[kBlock]) {
  const __m512 a = sum_fours(v);
  const __m512 b = sum_fours(v + 8);
  return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0b10001000), _mm512_shuffle_f32x4(a, b, 0b11011101));
}

struct Keys {
  __m512i even[kBlock];
  __m512i odd[kBlock];
  __m512 scale[kBlock];
};

GANNET_VNNI __m512 products(const IndexQuery& query, const Keys& keys) {
  const __m512i even = _mm512_load_si512(query.even);
  const __m512i odd = _mm512_load_si512(query.odd);
  const __m512i start = _mm512_load_si512(query.start);
  const __m512 scale = _mm512_load_ps(query.scale);
  __m512 v[kBlock];
  GANNET_UNROLL
  for (int64_t j = 0; j < kBlock; ++j) {
    const __m512i whole = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(start, keys.even[j], even), keys.odd[j], odd);
    v[j] = _mm512_mul_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(whole), scale), keys.scale[j]);
  }
  return sums(v);
}

}  // namespace

GANNET_VNNI void index_query_avx512(const uint8_t* record, IndexQuery& query) {
  __m512i even, odd;
  look_up(record, doubled_values(0), even, odd);
  _mm512_store_si512(query.even, even);
  _mm512_store_si512(query.odd, odd);
  const __m512i raise = _mm512_set1_epi8(kRaise);
  const __m512i raised = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), raise, even), raise, odd);
  _mm512_store_si512(query.start, _mm512_sub_epi32(_mm512_setzero_si512(), raised));
  _mm512_store_ps(query.scale, _mm512_mul_ps(scales_of(record), _mm512_set1_ps(0.25F)));
}

GANNET_VNNI void index_scores_avx512(const IndexQuery* queries, const float* weights, int64_t heads,
                                     const uint8_t* const* keys, int64_t count, float* scores) {
  const __m512i table = doubled_values(kRaise);
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t some = std::min(kBlock, count - first);
    Keys block;
    for (int64_t j = 0; j < kBlock; ++j) {
      const uint8_t* key = keys[first + std::min(j, some - 1)];
      look_up(key, table, block.even[j], block.odd[j]);
      block.scale[j] = scales_of(key);
    }
    __m512 score = _mm512_setzero_ps();
    for (int64_t h = 0; h < heads; ++h) {
      // Of two operands that are not in order, max returns the second: NaN stays.
      const __m512 positive = _mm512_max_ps(_mm512_setzero_ps(), products(queries[h], block));
      score = _mm512_add_ps(score, _mm512_mul_ps(positive, _mm512_set1_ps(weights[h])));
    }
    _mm512_mask_storeu_ps(scores + first, static_cast<__mmask16>((1U << some) - 1), score);
  }
}

}  // namespace gannet::ops

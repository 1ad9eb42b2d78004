#include <immintrin.h>

#include "base/number_formats.h"
#include "base/quantize.h"
#include "ops/record_decode/op.h"

namespace gannet::ops {
namespace {

// Sixteen E4M3 codes, 2^-8 times their values: see `halves` in linear/cpu_avx512.cc.
__m512 e4m3(const uint8_t* p) {
  const __m256i codes = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m256i t = _mm256_srai_epi16(_mm256_slli_epi16(codes, 8), 1);
  const __m256i next = _mm256_add_epi16(t, _mm256_set1_epi16(0x80));
  return _mm512_cvtph_ps(_mm256_ternarylogic_epi32(t, next, _mm256_set1_epi16(0x4000), 0x78));
}

void q8(const uint8_t* record, int64_t channels, float* out) {
  const uint8_t* scales = record + channels;
  for (int64_t i = 0; i < channels; i += 16) {
    // The factor first: a scale times 2^8 could overflow.
    const __m512 value = _mm512_mul_ps(e4m3(record + i), _mm512_set1_ps(256.0F));
    _mm512_storeu_ps(out + i, _mm512_mul_ps(value, _mm512_set1_ps(e8m0_to_float(scales[i / kMxGroup]))));
  }
}

// Sixteen E2M1 codes in eight bytes, looked up in a table of sixteen values.
__m512 e2m1(const uint8_t* p, __m512 table) {
  // Each byte goes to both halves of a 64-bit lane, the higher nibble lowest in the upper half; the look-up takes the
  // lowest four bits.
  const __m512i byte = _mm512_cvtepu8_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  return _mm512_permutexvar_ps(_mm512_or_si512(byte, _mm512_slli_epi64(byte, 28)), table);
}

void q4nv(const uint8_t* record, int64_t channels, float* out) {
  const __m512 values = _mm512_loadu_ps(kE2m1Values);
  const uint8_t* scales = record + channels / 2;
  for (int64_t i = 0; i < channels; i += kNvGroup) {
    const __m512 scale = _mm512_set1_ps(e4m3_to_float(scales[i / kNvGroup]));
    _mm512_storeu_ps(out + i, e2m1(record + i / 2, _mm512_mul_ps(values, scale)));
  }
}

void q4mx(const uint8_t* record, int64_t channels, float* out) {
  const __m512 values = _mm512_loadu_ps(kE2m1Values);
  const uint8_t* scales = record + channels / 2;
  for (int64_t i = 0; i < channels; i += 16) {
    const __m512 scale = _mm512_set1_ps(e8m0_to_float(scales[i / kMxGroup]));
    _mm512_storeu_ps(out + i, e2m1(record + i / 2, _mm512_mul_ps(values, scale)));
  }
}

}  // namespace

const RecordDecoders kRecordDecodersAvx512 = {.q8 = q8, .q4nv = q4nv, .q4mx = q4mx};

}  // namespace gannet::ops

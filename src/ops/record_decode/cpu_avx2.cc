#include <immintrin.h>

#include <cstring>

#include "base/number_formats.h"
#include "base/quantize.h"
#include "ops/record_decode/op.h"

namespace gannet::ops {
namespace {

// Eight E4M3 codes, 2^-8 times their values: see `halves` in linear/cpu_avx2.cc.
__m256 e4m3(const uint8_t* p) {
  const __m128i codes = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  const __m128i t = _mm_srai_epi16(_mm_slli_epi16(codes, 8), 1);
  const __m128i next = _mm_add_epi16(t, _mm_set1_epi16(0x80));
  return _mm256_cvtph_ps(_mm_xor_si128(t, _mm_and_si128(next, _mm_set1_epi16(0x4000))));
}

void q8(const uint8_t* record, int64_t channels, float* out) {
  const uint8_t* scales = record + channels;
  for (int64_t i = 0; i < channels; i += 8) {
    // The factor first: a scale times 2^8 could overflow.
    const __m256 value = _mm256_mul_ps(e4m3(record + i), _mm256_set1_ps(256.0F));
    _mm256_storeu_ps(out + i, _mm256_mul_ps(value, _mm256_set1_ps(e8m0_to_float(scales[i / kMxGroup]))));
  }
}

// Eight E2M1 codes in four bytes, looked up in a table of the eight magnitudes.
__m256 e2m1(const uint8_t* p, __m256 table) {
  int32_t bytes = 0;
  std::memcpy(&bytes, p, 4);
  // Each byte goes to both halves of a 64-bit lane, the higher nibble lowest in the upper half; the look-up takes the
  // lowest three bits, the sign is the fourth.
  const __m256i byte = _mm256_cvtepu8_epi64(_mm_cvtsi32_si128(bytes));
  const __m256i codes = _mm256_or_si256(byte, _mm256_slli_epi64(byte, 28));
  const __m256i sign = _mm256_and_si256(_mm256_slli_epi32(codes, 28), _mm256_set1_epi32(INT32_MIN));
  return _mm256_xor_ps(_mm256_permutevar8x32_ps(table, codes), _mm256_castsi256_ps(sign));
}

void q4nv(const uint8_t* record, int64_t channels, float* out) {
  const __m256 values = _mm256_loadu_ps(kE2m1Values);
  const uint8_t* scales = record + channels / 2;
  for (int64_t i = 0; i < channels; i += 8) {
    const __m256 scale = _mm256_set1_ps(e4m3_to_float(scales[i / kNvGroup]));
    _mm256_storeu_ps(out + i, e2m1(record + i / 2, _mm256_mul_ps(values, scale)));
  }
}

void q4mx(const uint8_t* record, int64_t channels, float* out) {
  const __m256 values = _mm256_loadu_ps(kE2m1Values);
  const uint8_t* scales = record + channels / 2;
  for (int64_t i = 0; i < channels; i += 8) {
    const __m256 scale = _mm256_set1_ps(e8m0_to_float(scales[i / kMxGroup]));
    _mm256_storeu_ps(out + i, e2m1(record + i / 2, _mm256_mul_ps(values, scale)));
  }
}

}  // namespace

const RecordDecoders kRecordDecodersAvx2 = {.q8 = q8, .q4nv = q4nv, .q4mx = q4mx};

}  // namespace gannet::ops

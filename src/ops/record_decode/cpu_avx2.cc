#include <immintrin.h>

#include <cstring>

#include "base/number_formats.h"
#include "base/quantize.h"
#include "ops/record_decode/op.h"

namespace gannet::ops {
namespace {

// Sixteen E4M3 codes, each in the upper byte of a half: 2^-8 times their values, see `halves` in linear/cpu_avx2.cc.
__m256i halves(__m256i high_bytes) {
  const __m256i t = _mm256_srai_epi16(high_bytes, 1);
  const __m256i next = _mm256_add_epi16(t, _mm256_set1_epi16(0x80));
  return _mm256_xor_si256(t, _mm256_and_si256(next, _mm256_set1_epi16(0x4000)));
}

void q8(const uint8_t* record, int64_t channels, float* out) {
  const uint8_t* scales = record + channels;
  for (int64_t i = 0; i < channels; i += kMxGroup) {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(record + i));
    const __m256i even = halves(_mm256_slli_epi16(bytes, 8));
    const __m256i odd = halves(_mm256_and_si256(bytes, _mm256_set1_epi16(static_cast<short>(0xff00))));
    const __m256 scale = _mm256_set1_ps(e8m0_to_float(scales[i / kMxGroup]));
    const auto store = [&](float* to, __m128i values) {
      // The factor first: a scale times 2^8 could overflow.
      _mm256_storeu_ps(to, _mm256_mul_ps(_mm256_mul_ps(_mm256_cvtph_ps(values), _mm256_set1_ps(256.0F)), scale));
    };
    store(out + i, _mm256_castsi256_si128(even));
    store(out + i + 8, _mm256_extracti128_si256(even, 1));
    store(out + i + 16, _mm256_castsi256_si128(odd));
    store(out + i + 24, _mm256_extracti128_si256(odd, 1));
  }
}

// Stores the E2M1 codes of eight bytes, the even channels at `out`, the odd ones 16 behind, looked up in a table of the
// eight magnitudes.
void e2m1(const uint8_t* codes, __m256 table, float* out) {
  const __m256i bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes)));
  // The look-up takes the lowest three bits, the sign is the fourth.
  const auto value = [&](__m256i code) {
    const __m256i sign = _mm256_and_si256(_mm256_slli_epi32(code, 28), _mm256_set1_epi32(INT32_MIN));
    return _mm256_xor_ps(_mm256_permutevar8x32_ps(table, code), _mm256_castsi256_ps(sign));
  };
  _mm256_storeu_ps(out, value(bytes));
  _mm256_storeu_ps(out + 16, value(_mm256_srli_epi32(bytes, 4)));
}

void q4nv(const uint8_t* record, int64_t channels, float* out) {
  const __m256 values = _mm256_loadu_ps(kE2m1Values);
  const uint8_t* scales = record + channels / 2;
  for (int64_t i = 0; i < channels; i += 2 * kNvGroup) {
    for (int64_t half = 0; half < 2; ++half) {
      const __m256 scale = _mm256_set1_ps(e4m3_to_float(scales[i / kNvGroup + half]));
      e2m1(record + i / 2 + 8 * half, _mm256_mul_ps(values, scale), out + i + 8 * half);
    }
  }
}

void q4mx(const uint8_t* record, int64_t channels, float* out) {
  const __m256 values = _mm256_loadu_ps(kE2m1Values);
  const uint8_t* scales = record + channels / 2;
  for (int64_t i = 0; i < channels; i += kMxGroup) {
    const __m256 table = _mm256_mul_ps(values, _mm256_set1_ps(e8m0_to_float(scales[i / kMxGroup])));
    for (int64_t half = 0; half < 2; ++half) e2m1(record + i / 2 + 8 * half, table, out + i + 8 * half);
  }
}

}  // namespace

const RecordDecoders kRecordDecodersAvx2 = {.q8 = q8, .q4nv = q4nv, .q4mx = q4mx};

}  // namespace gannet::ops

#include <immintrin.h>

#include "base/number_formats.h"
#include "base/quantize.h"
#include "ops/record_decode/op.h"

namespace gannet::ops {
namespace {

// 32 E4M3 codes, each in the upper byte of a half: 2^-8 times their values, see `halves` in linear/cpu_avx512.cc.
__m512i halves(__m512i high_bytes) {
  const __m512i t = _mm512_srai_epi16(high_bytes, 1);
  const __m512i next = _mm512_add_epi16(t, _mm512_set1_epi16(0x80));
  return _mm512_ternarylogic_epi32(t, next, _mm512_set1_epi16(0x4000), 0x78);
}

// Two groups of 32 codes, or one when the mask hides the other.
template <int groups>
void q8_groups(const uint8_t* codes, const uint8_t* scales, float* out) {
  const __m512i bytes = _mm512_maskz_loadu_epi8(groups == 2 ? ~__mmask64{0} : __mmask64{0xffffffff}, codes);
  const __m512i even = halves(_mm512_slli_epi16(bytes, 8));
  const __m512i odd = halves(_mm512_and_si512(bytes, _mm512_set1_epi16(static_cast<short>(0xff00))));
  const auto store = [](float* to, __m256i values, uint8_t scale) {
    // The factor first: a scale times 2^8 could overflow.
    const __m512 exact = _mm512_mul_ps(_mm512_cvtph_ps(values), _mm512_set1_ps(256.0F));
    _mm512_storeu_ps(to, _mm512_mul_ps(exact, _mm512_set1_ps(e8m0_to_float(scale))));
  };
  store(out, _mm512_castsi512_si256(even), scales[0]);
  store(out + 16, _mm512_castsi512_si256(odd), scales[0]);
  if constexpr (groups == 2) {
    store(out + 32, _mm512_extracti64x4_epi64(even, 1), scales[1]);
    store(out + 48, _mm512_extracti64x4_epi64(odd, 1), scales[1]);
  }
}

void q8(const uint8_t* record, int64_t channels, float* out) {
  const uint8_t* scales = record + channels;
  int64_t i = 0;
  for (; i + 2 * kMxGroup <= channels; i += 2 * kMxGroup) q8_groups<2>(record + i, scales + i / kMxGroup, out + i);
  if (i < channels) q8_groups<1>(record + i, scales + i / kMxGroup, out + i);
}

// Sixteen E4M3 codes, exactly.
__m512 e4m3(__m128i codes) {
  const __m256i high = _mm256_slli_epi16(_mm256_cvtepu8_epi16(codes), 8);
  const __m256i t = _mm256_srai_epi16(high, 1);
  const __m256i next = _mm256_add_epi16(t, _mm256_set1_epi16(0x80));
  const __m512 value = _mm512_cvtph_ps(_mm256_ternarylogic_epi32(t, next, _mm256_set1_epi16(0x4000), 0x78));
  return _mm512_mul_ps(value, _mm512_set1_ps(256.0F));
}

// Stores 32 E2M1 codes, looked up in a table of sixteen values and multiplied by what `scaled` multiplies by.
template <class Scaled>
void e2m1_group(const uint8_t* codes, __m512 table, const Scaled& scaled, float* out) {
  const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
  // The look-up takes the lowest four bits.
  _mm512_storeu_ps(out, scaled(_mm512_permutexvar_ps(bytes, table)));
  _mm512_storeu_ps(out + 16, scaled(_mm512_permutexvar_ps(_mm512_srli_epi32(bytes, 4), table)));
}

void q4nv(const uint8_t* record, int64_t channels, float* out) {
  constexpr int64_t kChannels = 16 * kNvGroup;  // whose scales are decoded at a time
  const __m512 values = _mm512_loadu_ps(kE2m1Values);
  // The first eight bytes of a group of 32 channels have one scale, the other eight the next.
  const __m512i first = _mm512_set_epi32(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0);
  for (int64_t block = 0; block < channels; block += kChannels) {
    const int64_t end = block + kChannels < channels ? block + kChannels : channels;
    const auto mask = static_cast<__mmask16>((1U << ((end - block) / kNvGroup)) - 1);
    const __m512 scales = e4m3(_mm_maskz_loadu_epi8(mask, record + channels / 2 + block / kNvGroup));
    __m512i index = first;
    for (int64_t i = block; i < end; i += 2 * kNvGroup) {
      const __m512 scale = _mm512_permutexvar_ps(index, scales);
      const auto scaled = [&](__m512 value) { return _mm512_mul_ps(value, scale); };
      e2m1_group(record + i / 2, values, scaled, out + i);
      index = _mm512_add_epi32(index, _mm512_set1_epi32(2));
    }
  }
}

void q4mx(const uint8_t* record, int64_t channels, float* out) {
  const __m512 values = _mm512_loadu_ps(kE2m1Values);
  const uint8_t* scales = record + channels / 2;
  for (int64_t i = 0; i < channels; i += kMxGroup) {
    const __m512 table = _mm512_mul_ps(values, _mm512_set1_ps(e8m0_to_float(scales[i / kMxGroup])));
    const auto as_it_is = [](__m512 value) { return value; };
    e2m1_group(record + i / 2, table, as_it_is, out + i);
  }
}

}  // namespace

const RecordDecoders kRecordDecodersAvx512 = {.q8 = q8, .q4nv = q4nv, .q4mx = q4mx};

}  // namespace gannet::ops

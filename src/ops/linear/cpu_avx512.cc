#include <immintrin.h>

#include "base/number_formats.h"
#include "base/quantize.h"
#include "ops/e4m3_avx512.h"
#include "ops/linear/tile.h"

namespace gannet::ops {
namespace {

struct Avx512 {
  using Vector = __m512;
  static constexpr int64_t kLanes = 16;
  static constexpr int64_t kChunk = 64;
  static constexpr int kFusedRows = 4;
  static constexpr int kFusedOutputs = 4;
  static constexpr int kPanelOutputs = 8;
  static constexpr int kDotsRows = 4;
  static constexpr int kDotsOutputs = 4;
  static constexpr float kFp8Factor = 256.0F;  // decoded FP8 weights are 2^8 too small, see decode_fp8

  static Vector zero() { return _mm512_setzero_ps(); }
  static Vector load(const float* p) { return _mm512_load_ps(p); }
  static void store(float* p, Vector v) { _mm512_store_ps(p, v); }
  static Vector fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
  // Holds a value in a register that the compiler would load again for every use, which the load ports cannot follow.
  static Vector keep(Vector v) {
    asm("" : "+v"(v));
    return v;
  }
  // The sums of the lanes of `count` vectors: lanes 8 apart, then neighbours, then pairs of neighbours, then the two
  // halves, whichever function adds them.
  template <int count>
  static void reduce(const Vector* v, float* sums) {
    constexpr int kSixteens = count / 16 * 16;
    constexpr int kEights = count / 8 * 8;
    constexpr int kFours = count / 4 * 4;
    GANNET_UNROLL
    for (int i = 0; i < kSixteens; i += 16) {
      _mm512_store_ps(sums + i, add_halves(sum_fours(v + i), sum_fours(v + i + 8)));
    }
    if constexpr (kEights > kSixteens) {
      const Vector fours = sum_fours(v + kSixteens);
      _mm256_storeu_ps(sums + kSixteens, _mm512_castps512_ps256(add_halves(fours, fours)));
    }
    if constexpr (kFours > kEights) {
      const __m256 low = _mm256_hadd_ps(fold(v[kEights]), fold(v[kEights + 1]));
      const __m256 high = _mm256_hadd_ps(fold(v[kEights + 2]), fold(v[kEights + 3]));
      const __m256 fours = _mm256_hadd_ps(low, high);
      _mm_storeu_ps(sums + kEights, _mm_add_ps(_mm256_castps256_ps128(fours), _mm256_extractf128_ps(fours, 1)));
    }
    GANNET_UNROLL
    for (int i = kFours; i < count; ++i) sums[i] = sum(v[i]);
  }
  static float sum(Vector v) {
    const __m256 eight = fold(v);
    const __m256 pairs = _mm256_hadd_ps(eight, eight);
    const __m256 fours = _mm256_hadd_ps(pairs, pairs);
    return _mm_cvtss_f32(_mm_add_ss(_mm256_castps256_ps128(fours), _mm256_extractf128_ps(fours, 1)));
  }
  static __m256 fold(Vector v) { return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1)); }
  // The folded a in the lower half, the folded b in the upper one.
  static Vector fold(Vector a, Vector b) {
    return _mm512_add_ps(_mm512_mask_blend_ps(0xff00, a, b), _mm512_shuffle_f32x4(a, b, 0b01001110));
  }
  // Neighbours of a, then those of b, in every four lanes.
  static Vector add_neighbours(Vector a, Vector b) {
    return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0b10001000), _mm512_shuffle_ps(a, b, 0b11011101));
  }
  // Of eight vectors the sums of both halves, four lanes each: halves of the first four vectors, then of the others.
  static Vector sum_fours(const Vector* v) {
    return add_neighbours(add_neighbours(fold(v[0], v[4]), fold(v[1], v[5])),
                          add_neighbours(fold(v[2], v[6]), fold(v[3], v[7])));
  }
  static Vector add_halves(Vector a, Vector b) {
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0b10001000), _mm512_shuffle_f32x4(a, b, 0b11011101));
  }
  static void prefetch(const uint8_t* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1); }

  static void decode_scales(const uint8_t* codes, int64_t count, float* scales) {
    const auto mask = static_cast<__mmask16>((1U << count) - 1);
    const __m512i exponent = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, codes));
    // Codes 0 (2^-127, a subnormal float) and 255 (NaN) both need the highest mantissa bit.
    const __mmask16 special = _mm512_cmpeq_epi32_mask(exponent, _mm512_setzero_si512()) |
                              _mm512_cmpeq_epi32_mask(exponent, _mm512_set1_epi32(255));
    const __m512i bits = _mm512_slli_epi32(exponent, 23);
    const __m512i value = _mm512_mask_or_epi32(bits, special, bits, _mm512_set1_epi32(1 << 22));
    _mm512_store_si512(scales, _mm512_maskz_mov_epi32(mask, value));
  }

  template <WeightFormat format>
  static void decode(const uint8_t* p, const float* scales, Vector (&w)[4]) {
    if constexpr (format == WeightFormat::fp8) decode_fp8(p, scales, w);
    if constexpr (format == WeightFormat::mxfp4) decode_mxfp4(p, scales, w);
    if constexpr (format == WeightFormat::bf16) decode_bf16(p, w);
    if constexpr (format == WeightFormat::f32) decode_f32(p, w);
  }

  // An E4M3 code whose sign is put at bit 15 and whose other bits at 13..7 is the half 2^-8 times its value, subnormals
  // included. The arithmetic shift leaves a copy of the sign at bit 14; adding 0x80 flips that bit exactly for code
  // 0x7f, so that the exclusive or clears it, except for NaN, which gets a half's NaN exponent.
  static __m512i halves(__m512i high_bytes) {
    const __m512i t = _mm512_srai_epi16(high_bytes, 1);
    const __m512i next = _mm512_add_epi16(t, _mm512_set1_epi16(0x80));
    return _mm512_ternarylogic_epi32(t, next, _mm512_set1_epi16(0x4000), 0x78);  // t ^ (next & 0x4000)
  }

  static void decode_fp8(const uint8_t* p, const float* scales, Vector (&w)[4]) {
    const __m512i codes = _mm512_loadu_si512(p);
    const __m512i even = halves(_mm512_slli_epi16(codes, 8));
    const __m512i odd = halves(_mm512_and_si512(codes, _mm512_set1_epi16(static_cast<short>(0xff00))));
    const Vector first = _mm512_set1_ps(scales[0]);
    const Vector second = _mm512_set1_ps(scales[1]);
    w[0] = _mm512_mul_ps(_mm512_cvtph_ps(_mm512_castsi512_si256(even)), first);
    w[1] = _mm512_mul_ps(_mm512_cvtph_ps(_mm512_castsi512_si256(odd)), first);
    w[2] = _mm512_mul_ps(_mm512_cvtph_ps(_mm512_extracti64x4_epi64(even, 1)), second);
    w[3] = _mm512_mul_ps(_mm512_cvtph_ps(_mm512_extracti64x4_epi64(odd, 1)), second);
  }

  static void decode_mxfp4(const uint8_t* p, const float* scales, Vector (&w)[4]) {
    const Vector values = _mm512_loadu_ps(kE2m1Values);
    for (int group = 0; group < 2; ++group) {
      const Vector table = _mm512_mul_ps(values, _mm512_set1_ps(scales[group]));
      const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16 * group)));
      w[2 * group] = _mm512_permutexvar_ps(bytes, table);  // looks at the low four bits only
      w[2 * group + 1] = _mm512_permutexvar_ps(_mm512_srli_epi32(bytes, 4), table);
    }
  }

  static void decode_bf16(const uint8_t* p, Vector (&w)[4]) {
    for (int group = 0; group < 2; ++group) {
      const __m512i pairs = _mm512_loadu_si512(p + 64 * group);
      w[2 * group] = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
      w[2 * group + 1] = _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000U))));
    }
  }

  static void decode_f32(const uint8_t* p, Vector (&w)[4]) {
    for (int group = 0; group < 2; ++group) {
      split(_mm512_loadu_ps(p + 128 * group), _mm512_loadu_ps(p + 128 * group + 64), w[2 * group], w[2 * group + 1]);
    }
  }

  // 32 consecutive values to their even and their odd ones.
  static void split(Vector low, Vector high, Vector& even, Vector& odd) {
    const __m512i index = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    even = _mm512_permutex2var_ps(low, index, high);
    odd = _mm512_permutex2var_ps(low, _mm512_or_si512(index, _mm512_set1_epi32(1)), high);
  }
};

// Q8 of 32 values, as q8_round in base/quantize.cc.
void q8_round(__m512& low, __m512& high) {
  // With the value first, max ignores NaN like the loop in base/quantize.cc.
  const __m512 zero = _mm512_setzero_ps();
  const float amax = _mm512_reduce_max_ps(
      _mm512_max_ps(_mm512_max_ps(_mm512_abs_ps(low), zero), _mm512_max_ps(_mm512_abs_ps(high), zero)));
  const uint8_t scale = q8_scale(amax);
  const __m512 value = _mm512_set1_ps(e8m0_to_float(scale));
  const __m512 inverse = _mm512_set1_ps(e8m0_to_inverse(scale));
  low = _mm512_mul_ps(round_to_e4m3(_mm512_mul_ps(low, inverse)), value);
  high = _mm512_mul_ps(round_to_e4m3(_mm512_mul_ps(high, inverse)), value);
}

void prepare(const float* x, int64_t cols, bool quantize, float* prepared) {
  for (int64_t col = 0; col < prepared_cols(cols); col += kBlock) {
    const auto left = std::clamp<int64_t>(cols - col, 0, kBlock);
    const auto mask = static_cast<uint32_t>((uint64_t{1} << left) - 1);
    __m512 low = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask & 0xffff), x + col);
    __m512 high = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), x + col + 16);
    if (quantize) q8_round(low, high);
    __m512 even, odd;
    Avx512::split(low, high, even, odd);
    _mm512_store_ps(prepared + col, even);
    _mm512_store_ps(prepared + col + 16, odd);
  }
}

}  // namespace

const LinearKernels kLinearAvx512 = {
    .prepare = prepare, .multiply = multiply_range<Avx512>, .dots = multiply_dots<Avx512>};

}  // namespace gannet::ops

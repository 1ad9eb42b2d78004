#include <immintrin.h>

#include "base/number_formats.h"
#include "base/quantize.h"
#include "ops/linear/tile.h"

namespace gannet::ops {
namespace {

struct Avx2 {
  using Vector = __m256;
  static constexpr int64_t kLanes = 8;
  static constexpr int64_t kChunk = 32;
  static constexpr int kFusedRows = 2;
  static constexpr int kFusedOutputs = 4;
  static constexpr int kPanelOutputs = 4;
  static constexpr int kDotsRows = 2;
  static constexpr int kDotsOutputs = 4;
  static constexpr float kFp8Factor = 256.0F;  // decoded FP8 weights are 2^8 too small, see decode_fp8

  static Vector zero() { return _mm256_setzero_ps(); }
  static Vector load(const float* p) { return _mm256_load_ps(p); }
  static void store(float* p, Vector v) { _mm256_store_ps(p, v); }
  static Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
  // Holds a value in a register that the compiler would load again for every use, which the load ports cannot follow.
  static Vector keep(Vector v) {
    asm("" : "+x"(v));
    return v;
  }
  // The sums of the lanes of `count` vectors: neighbours, then pairs of neighbours, then the two halves, whichever
  // function adds them.
  template <int count>
  static void reduce(const Vector* v, float* sums) {
    constexpr int kFours = count / 4 * 4;
    GANNET_UNROLL
    for (int i = 0; i < kFours; i += 4) {
      const __m256 fours = _mm256_hadd_ps(_mm256_hadd_ps(v[i], v[i + 1]), _mm256_hadd_ps(v[i + 2], v[i + 3]));
      _mm_storeu_ps(sums + i, _mm_add_ps(_mm256_castps256_ps128(fours), _mm256_extractf128_ps(fours, 1)));
    }
    GANNET_UNROLL
    for (int i = kFours; i < count; ++i) sums[i] = sum(v[i]);
  }
  static float sum(Vector v) {
    const __m256 pairs = _mm256_hadd_ps(v, v);
    const __m256 fours = _mm256_hadd_ps(pairs, pairs);
    return _mm_cvtss_f32(_mm_add_ss(_mm256_castps256_ps128(fours), _mm256_extractf128_ps(fours, 1)));
  }
  static void prefetch(const uint8_t* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1); }

  static void decode_scales(const uint8_t* codes, int64_t count, float* scales) {
    alignas(16) uint8_t padded[kTileScales] = {};
    std::memcpy(padded, codes, count);
    for (int64_t i = 0; i < kTileScales; i += kLanes) {
      const __m256i exponent = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(padded + i)));
      // Codes 0 (2^-127, a subnormal float) and 255 (NaN) both need the highest mantissa bit.
      const __m256i special = _mm256_or_si256(_mm256_cmpeq_epi32(exponent, _mm256_setzero_si256()),
                                              _mm256_cmpeq_epi32(exponent, _mm256_set1_epi32(255)));
      const __m256i bit = _mm256_and_si256(special, _mm256_set1_epi32(1 << 22));
      const __m256i value = _mm256_or_si256(_mm256_slli_epi32(exponent, 23), bit);
      _mm256_store_si256(reinterpret_cast<__m256i*>(scales + i), value);
    }
  }

  template <WeightFormat format>
  static void decode(const uint8_t* p, const float* scales, Vector (&w)[4]) {
    if constexpr (format == WeightFormat::fp8) decode_fp8(p, scales, w);
    if constexpr (format == WeightFormat::mxfp4) decode_mxfp4(p, scales, w);
    if constexpr (format == WeightFormat::bf16) decode_bf16(p, w);
    if constexpr (format == WeightFormat::f32) decode_f32(p, w);
  }

  static __m256i load_bytes(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }

  // An E4M3 code whose sign is put at bit 15 and whose other bits at 13..7 is the half 2^-8 times its value, subnormals
  // included. The arithmetic shift leaves a copy of the sign at bit 14; adding 0x80 flips that bit exactly for code
  // 0x7f, so that the exclusive or clears it, except for NaN, which gets a half's NaN exponent.
  static __m256i halves(__m256i high_bytes) {
    const __m256i t = _mm256_srai_epi16(high_bytes, 1);
    const __m256i next = _mm256_add_epi16(t, _mm256_set1_epi16(0x80));
    return _mm256_xor_si256(t, _mm256_and_si256(next, _mm256_set1_epi16(0x4000)));
  }

  static void decode_fp8(const uint8_t* p, const float* scales, Vector (&w)[4]) {
    const __m256i codes = load_bytes(p);
    const __m256i even = halves(_mm256_slli_epi16(codes, 8));
    const __m256i odd = halves(_mm256_and_si256(codes, _mm256_set1_epi16(static_cast<short>(0xff00))));
    const Vector scale = _mm256_set1_ps(scales[0]);
    w[0] = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(even)), scale);
    w[1] = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(even, 1)), scale);
    w[2] = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(odd)), scale);
    w[3] = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(odd, 1)), scale);
  }

  // Two byte tables give the upper half of each value's float. The bytes are first spread so that the unpacking, which
  // works within 128-bit lanes, ends in column order.
  static void decode_mxfp4(const uint8_t* p, const float* scales, Vector (&w)[4]) {
    const __m256i spread = _mm256_setr_epi8(0, 1, 2, 3, 8, 9, 10, 11, 0, 1, 2, 3, 8, 9, 10, 11,  //
                                            4, 5, 6, 7, 12, 13, 14, 15, 4, 5, 6, 7, 12, 13, 14, 15);
    const __m256i bytes = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    const __m256i even_odd = _mm256_srlv_epi64(_mm256_shuffle_epi8(bytes, spread), _mm256_setr_epi64x(0, 4, 0, 4));
    const __m256i code = _mm256_and_si256(even_odd, _mm256_set1_epi8(15));
    const __m256i top = _mm256_shuffle_epi8(repeat(0x00, 0x3f, 0x3f, 0x3f, 0x40, 0x40, 0x40, 0x40), code);
    const __m256i next = _mm256_shuffle_epi8(repeat(0x00, 0x00, 0x80, 0xc0, 0x00, 0x40, 0x80, 0xc0, 0), code);
    const __m256i even = _mm256_unpacklo_epi8(next, top);
    const __m256i odd = _mm256_unpackhi_epi8(next, top);
    const __m256i zeros = _mm256_setzero_si256();
    const Vector scale = _mm256_set1_ps(scales[0]);
    w[0] = _mm256_mul_ps(_mm256_castsi256_ps(_mm256_unpacklo_epi16(zeros, even)), scale);
    w[1] = _mm256_mul_ps(_mm256_castsi256_ps(_mm256_unpackhi_epi16(zeros, even)), scale);
    w[2] = _mm256_mul_ps(_mm256_castsi256_ps(_mm256_unpacklo_epi16(zeros, odd)), scale);
    w[3] = _mm256_mul_ps(_mm256_castsi256_ps(_mm256_unpackhi_epi16(zeros, odd)), scale);
  }

  // A byte table of the eight magnitudes and their negatives, in both lanes.
  static __m256i repeat(int c0, int c1, int c2, int c3, int c4, int c5, int c6, int c7, int sign = 0x80) {
    const auto b = [](int v) { return static_cast<char>(v); };
    return _mm256_broadcastsi128_si256(_mm_setr_epi8(b(c0), b(c1), b(c2), b(c3), b(c4), b(c5), b(c6), b(c7),
                                                     b(c0 | sign), b(c1 | sign), b(c2 | sign), b(c3 | sign),
                                                     b(c4 | sign), b(c5 | sign), b(c6 | sign), b(c7 | sign)));
  }

  static void decode_bf16(const uint8_t* p, Vector (&w)[4]) {
    for (int half = 0; half < 2; ++half) {
      const __m256i pairs = load_bytes(p + 32 * half);
      w[half] = _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
      w[2 + half] = _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000U))));
    }
  }

  static void decode_f32(const uint8_t* p, Vector (&w)[4]) {
    for (int half = 0; half < 2; ++half) {
      split(_mm256_castsi256_ps(load_bytes(p + 64 * half)), _mm256_castsi256_ps(load_bytes(p + 64 * half + 32)),
            w[half], w[2 + half]);
    }
  }

  // 16 consecutive values to their even and their odd ones.
  static void split(Vector low, Vector high, Vector& even, Vector& odd) {
    const auto order = [](Vector v) {
      return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), 0b11011000));
    };
    even = order(_mm256_shuffle_ps(low, high, 0b10001000));
    odd = order(_mm256_shuffle_ps(low, high, 0b11011101));
  }
};

// Clamps to +-448 and rounds to E4M3: adding and subtracting 2^20 times the power of two below the magnitude (2^-6 in
// the subnormal range) leaves three mantissa bits, rounded to nearest even. NaN stays NaN.
__m256 round_to_e4m3(__m256 x) {
  const __m256 sign = _mm256_and_ps(x, _mm256_set1_ps(-0.0F));
  const __m256 magnitude = _mm256_min_ps(_mm256_set1_ps(kE4m3Max), _mm256_xor_ps(x, sign));  // NaN second: it stays
  const __m256 power = _mm256_and_ps(magnitude, _mm256_castsi256_ps(_mm256_set1_epi32(0x7f800000)));
  const __m256 shift = _mm256_mul_ps(_mm256_max_ps(power, _mm256_set1_ps(0x1p-6F)), _mm256_set1_ps(0x1p20F));
  return _mm256_or_ps(_mm256_sub_ps(_mm256_add_ps(magnitude, shift), shift), sign);
}

// Q8 of 32 values, as q8_round in base/quantize.cc.
void q8_round(__m256 (&x)[4]) {
  __m256 most = _mm256_setzero_ps();
  // With the value first, max ignores NaN like the loop in base/quantize.cc.
  for (const __m256 v : x) most = _mm256_max_ps(_mm256_andnot_ps(_mm256_set1_ps(-0.0F), v), most);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(most), _mm256_extractf128_ps(most, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  const uint8_t scale = q8_scale(_mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two))));
  const __m256 value = _mm256_set1_ps(e8m0_to_float(scale));
  const __m256 inverse = _mm256_set1_ps(e8m0_to_inverse(scale));
  for (__m256& v : x) v = _mm256_mul_ps(round_to_e4m3(_mm256_mul_ps(v, inverse)), value);
}

void prepare(const float* x, int64_t cols, bool quantize, float* prepared) {
  for (int64_t col = 0; col < prepared_cols(cols); col += kBlock) {
    alignas(32) float last[kBlock] = {};
    const float* from = x + col;
    if (col + kBlock > cols) {
      std::memcpy(last, x + std::min(col, cols), std::max<int64_t>(cols - col, 0) * sizeof(float));
      from = last;
    }
    __m256 group[4];
    for (int i = 0; i < 4; ++i) group[i] = _mm256_loadu_ps(from + 8 * i);
    if (quantize) q8_round(group);
    __m256 split[4];
    Avx2::split(group[0], group[1], split[0], split[2]);
    Avx2::split(group[2], group[3], split[1], split[3]);
    for (int i = 0; i < 4; ++i) _mm256_store_ps(prepared + col + 8 * i, split[i]);
  }
}

}  // namespace

const LinearKernels kLinearAvx2 = {.prepare = prepare, .multiply = multiply_range<Avx2>, .dots = multiply_dots<Avx2>};

}  // namespace gannet::ops

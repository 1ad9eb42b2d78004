#pragma once

#include <immintrin.h>

#include <cstdint>

// Vectors of floats under one name for AVX2 and AVX-512, for code that is compiled once for each. Only files named
// *avx2.cc and *avx512.cc may include this; everything has internal linkage, so that nothing compiled for one
// instruction set can be linked into another.

// Arrays of vectors become registers only when every loop over them is unrolled.
#if defined(__clang__)
#define GANNET_UNROLL _Pragma("clang loop unroll(full)")
#else
#define GANNET_UNROLL _Pragma("GCC unroll 16")
#endif

namespace gannet::ops {
namespace {

#if defined(__AVX512F__)

struct Lanes {
  using Vector = __m512;
  static constexpr int64_t kLanes = 16;

  static Vector zero() { return _mm512_setzero_ps(); }
  static Vector all(float v) { return _mm512_set1_ps(v); }
  static Vector load(const float* p) { return _mm512_loadu_ps(p); }
  static Vector load_bf16(const uint16_t* p) {
    const __m512i codes = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(codes, 16));
  }
  static void store(float* p, Vector v) { _mm512_storeu_ps(p, v); }
  static Vector add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
  static Vector sub(Vector a, Vector b) { return _mm512_sub_ps(a, b); }
  static Vector mul(Vector a, Vector b) { return _mm512_mul_ps(a, b); }
  static Vector div(Vector a, Vector b) { return _mm512_div_ps(a, b); }
  static Vector fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
  static Vector max(Vector a, Vector b) { return _mm512_max_ps(a, b); }
  static Vector nearest(Vector v) { return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  // v where `a >= b` or one of them is NaN, else zero.
  static Vector unless_less(Vector a, Vector b, Vector v) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ), v);
  }
  // 2^n for whole n between -126 and 127.
  static Vector power_of_two(Vector n) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23));
  }
  static float sum(Vector v) { return _mm512_reduce_add_ps(v); }
  static float largest(Vector v) { return _mm512_reduce_max_ps(v); }
  // As round_to_bf16 in base/number_formats.h.
  static Vector round_to_bf16(Vector v) {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i nearest = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    const __m512i chosen = _mm512_mask_mov_epi32(nearest, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), quiet);
    return _mm512_castsi512_ps(_mm512_and_si512(chosen, _mm512_set1_epi32(static_cast<int>(0xffff0000U))));
  }
};

#else

struct Lanes {
  using Vector = __m256;
  static constexpr int64_t kLanes = 8;

  static Vector zero() { return _mm256_setzero_ps(); }
  static Vector all(float v) { return _mm256_set1_ps(v); }
  static Vector load(const float* p) { return _mm256_loadu_ps(p); }
  static Vector load_bf16(const uint16_t* p) {
    const __m256i codes = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(codes, 16));
  }
  static void store(float* p, Vector v) { _mm256_storeu_ps(p, v); }
  static Vector add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
  static Vector sub(Vector a, Vector b) { return _mm256_sub_ps(a, b); }
  static Vector mul(Vector a, Vector b) { return _mm256_mul_ps(a, b); }
  static Vector div(Vector a, Vector b) { return _mm256_div_ps(a, b); }
  static Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
  static Vector max(Vector a, Vector b) { return _mm256_max_ps(a, b); }
  static Vector nearest(Vector v) { return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  // v where `a >= b` or one of them is NaN, else zero.
  static Vector unless_less(Vector a, Vector b, Vector v) { return _mm256_and_ps(_mm256_cmp_ps(a, b, _CMP_NLT_UQ), v); }
  // 2^n for whole n between -126 and 127.
  static Vector power_of_two(Vector n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
  }
  static float sum(Vector v) {
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  static float largest(Vector v) {
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
  }
  // As round_to_bf16 in base/number_formats.h.
  static Vector round_to_bf16(Vector v) {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i nearest = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m256i chosen = _mm256_blendv_epi8(nearest, quiet, nan);
    return _mm256_castsi256_ps(_mm256_and_si256(chosen, _mm256_set1_epi32(static_cast<int>(0xffff0000U))));
  }
};

#endif

}  // namespace
}  // namespace gannet::ops

#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ops/simd.h"

// What the files for matrix units (AMX) share. Only files named *amx_avx512.cc may include this; as in ops/simd.h,
// everything has internal linkage.

#define GANNET_AMX [[gnu::target("amx-tile,amx-bf16")]]

namespace gannet::ops {
namespace {

// Rows and bytes a row of each tile, as the processor reads them.
struct alignas(64) TileShapes {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileShapes) == 64);

// All tiles of sixteen rows of 64 bytes. To be loaded from memory: the intrinsic does not say that it reads all of it.
constexpr TileShapes kFullTiles = {.row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
                                   .rows = {16, 16, 16, 16, 16, 16, 16, 16}};

// Scales with which weights and keys of FP8 and FP4 are normal bf16 numbers, far from the smallest and the largest.
constexpr uint8_t kLeastScale = 50;
constexpr uint8_t kMostScale = 190;

// Whether some of these scales are others.
inline bool bad_scales(__m128i scales) {
  const __m128i above = _mm_sub_epi8(scales, _mm_set1_epi8(kLeastScale));
  return _mm_cmpgt_epu8_mask(above, _mm_set1_epi8(static_cast<char>(kMostScale - kLeastScale))) != 0;
}

// Seven bits of E4M3 are the exponent and mantissa of a bf16 that is 2^120 too small; this makes up for it.
constexpr short kE4m3Bias = 120 << 7;

// The bf16 of the E4M3 codes in the upper bytes of all words, zero and subnormal ones included. `bias` is kE4m3Bias
// and, on the exponent, the scale of each.
[[gnu::noinline]] inline __m512i e4m3_to_bf16(__m512i words, __m512i bias) {
  // 0 and 1 to 7 times 2^-9.
  alignas(64) static constexpr uint16_t kSubnormal[32] = {0,        118 << 7,        119 << 7,        (119 << 7) + 64,
                                                          120 << 7, (120 << 7) + 32, (120 << 7) + 64, (120 << 7) + 96};
  const __m512i size = _mm512_and_si512(_mm512_srli_epi16(words, 8), _mm512_set1_epi16(0x7f));
  const __m512i normal = _mm512_add_epi16(_mm512_slli_epi16(size, 4), bias);
  const __m512i scale = _mm512_sub_epi16(bias, _mm512_set1_epi16(kE4m3Bias));
  const __m512i subnormal = _mm512_add_epi16(_mm512_permutexvar_epi16(size, _mm512_load_si512(kSubnormal)), scale);
  const __mmask32 small = _mm512_cmplt_epu16_mask(size, _mm512_set1_epi16(8));
  const __m512i value = _mm512_mask_mov_epi16(normal, small, subnormal);
  const __m512i sign = _mm512_and_si512(words, _mm512_set1_epi16(static_cast<short>(0x8000)));
  return _mm512_or_si512(sign, _mm512_maskz_mov_epi16(_mm512_test_epi16_mask(size, size), value));
}

// Four rows of four to four columns, in every 128 bits: v[4 q + c] becomes column c of every four, of rows 4 q to 4 q
// + 3.
template <int rows>
[[gnu::always_inline]] inline void transpose_fours(__m512i (&v)[rows]) {
  __m512i t[rows];
  GANNET_UNROLL
  for (int i = 0; i < rows; i += 2) {
    t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
  GANNET_UNROLL
  for (int i = 0; i < rows; i += 4) {
    v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
}

// Sixteen rows of sixteen to sixteen columns. A call would pass all of them through memory.
[[gnu::always_inline]] inline void transpose(__m512i (&v)[16]) {
  transpose_fours(v);
  __m512i t[16];
  GANNET_UNROLL
  for (int c = 0; c < 4; ++c) {
    const __m512i low_01 = _mm512_shuffle_i32x4(v[c], v[4 + c], 0b10001000);
    const __m512i low_23 = _mm512_shuffle_i32x4(v[8 + c], v[12 + c], 0b10001000);
    const __m512i high_01 = _mm512_shuffle_i32x4(v[c], v[4 + c], 0b11011101);
    const __m512i high_23 = _mm512_shuffle_i32x4(v[8 + c], v[12 + c], 0b11011101);
    t[c] = _mm512_shuffle_i32x4(low_01, low_23, 0b10001000);
    t[8 + c] = _mm512_shuffle_i32x4(low_01, low_23, 0b11011101);
    t[4 + c] = _mm512_shuffle_i32x4(high_01, high_23, 0b10001000);
    t[12 + c] = _mm512_shuffle_i32x4(high_01, high_23, 0b11011101);
  }
  GANNET_UNROLL
  for (int i = 0; i < 16; ++i) v[i] = t[i];
}

// Eight rows of sixteen to sixteen columns, two in each vector: c and c + 4 of the first eight in v[c], those of the
// other eight in v[4 + c].
[[gnu::always_inline]] inline void transpose_eight(__m512i (&v)[8]) {
  transpose_fours(v);
  const __m512i lower = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0);
  const __m512i upper = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
  GANNET_UNROLL
  for (int c = 0; c < 4; ++c) {
    const __m512i first = v[c];
    v[c] = _mm512_permutex2var_epi64(first, lower, v[4 + c]);
    v[4 + c] = _mm512_permutex2var_epi64(first, upper, v[4 + c]);
  }
}

}  // namespace
}  // namespace gannet::ops

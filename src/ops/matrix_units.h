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

// Sixteen rows of sixteen to sixteen columns. A call would pass all of them through memory.
[[gnu::always_inline]] inline void transpose(__m512i (&v)[16]) {
  __m512i t[16];
  GANNET_UNROLL
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
  GANNET_UNROLL
  for (int i = 0; i < 16; i += 4) {
    v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // v[4 q + c] holds column c of every four: rows 4 q to 4 q + 3.
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

}  // namespace
}  // namespace gannet::ops

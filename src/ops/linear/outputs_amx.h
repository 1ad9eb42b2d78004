#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ops/matrix_units.h"

// Where sums wait and how they become outputs. Only files named *amx_avx512.cc may include this; as in ops/simd.h,
// everything has internal linkage.

namespace gannet::ops {
namespace {

// Sums in tiles 0 to 3: of two groups of outputs for one group of rows, or two.
GANNET_AMX inline void zero_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}
GANNET_AMX inline void load_sums(const float (*sums)[2][16][16], bool two) {
  _tile_loadd(0, sums[0][0], 64);
  _tile_loadd(1, sums[0][1], 64);
  if (!two) return;
  _tile_loadd(2, sums[1][0], 64);
  _tile_loadd(3, sums[1][1], 64);
}
GANNET_AMX inline void store_sums(float (*sums)[2][16][16], bool two) {
  _tile_stored(0, sums[0][0], 64);
  _tile_stored(1, sums[0][1], 64);
  if (!two) return;
  _tile_stored(2, sums[1][0], 64);
  _tile_stored(3, sums[1][1], 64);
}

// Sixteen outputs or fewer of up to sixteen rows.
struct OutputBlock {
  float* y;        // of the first row
  int64_t stride;  // from row to row
  int64_t rows;
  __mmask16 mask;  // of the outputs
  bool round;      // to bf16

  // From [outputs][rows].
  void store(const float (&sums)[16][16]) const {
    if (rows == 1) {
      const __m512i index = _mm512_set_epi32(240, 224, 208, 192, 176, 160, 144, 128, 112, 96, 80, 64, 48, 32, 16, 0);
      return store_row(0, _mm512_i32gather_ps(index, sums, 4));
    }
    if (rows <= 8) return store_some(sums);
    __m512i v[16];
    GANNET_UNROLL
    for (int o = 0; o < 16; ++o) v[o] = _mm512_load_si512(sums[o]);
    transpose(v);
    for (int64_t r = 0; r < rows; ++r) store_row(r, _mm512_castsi512_ps(v[r]));
  }

 private:
  // Of at most eight rows: two outputs lie in a vector.
  void store_some(const float (&sums)[16][16]) const {
    __m512i two[8];
    GANNET_UNROLL
    for (int o = 0; o < 8; ++o) {
      const __m256i low = _mm256_load_si256(reinterpret_cast<const __m256i*>(sums[o]));
      const __m256i high = _mm256_load_si256(reinterpret_cast<const __m256i*>(sums[8 + o]));
      two[o] = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    }
    transpose_eight(two);
    __m512i v[8];
    GANNET_UNROLL
    for (int c = 0; c < 4; ++c) {
      v[c] = _mm512_shuffle_i64x2(two[c], two[4 + c], 0x44);
      v[4 + c] = _mm512_shuffle_i64x2(two[c], two[4 + c], 0xee);
    }
    for (int64_t r = 0; r < rows; ++r) store_row(r, _mm512_castsi512_ps(v[r]));
  }

  void store_row(int64_t row, __m512 value) const {
    _mm512_mask_storeu_ps(y + row * stride, mask, round ? Lanes::round_to_bf16(value) : value);
  }
};

}  // namespace
}  // namespace gannet::ops

#include <immintrin.h>

#include <algorithm>

#include "base/number_formats.h"
#include "ops/index_scores/kernels.h"
#include "ops/matrix_units.h"

namespace gannet::ops {
namespace {

// bf16 of all E2M1 codes, twice: only four of the five bits that choose a word belong to the code.
__m512i code_table() {
  const __m512i values = _mm512_castps_si512(_mm512_loadu_ps(kE2m1Values));
  return _mm512_broadcast_i64x4(_mm512_cvtepi32_epi16(_mm512_srli_epi32(values, 16)));
}

// Two channels of each lane: the code in the lowest bits of `even` and the one that begins at bit 16 of `odd`, times
// the scale whose exponent is on both words of `bias`.
__m512i two_channels(__m512i even, __m512i odd, __m512i bias, __m512i table) {
  const __m512i low_half = _mm512_set1_epi32(0xffff);
  const __m512i codes = _mm512_ternarylogic_epi32(low_half, even, odd, 0xca);  // a ? b : c
  const __m512i values = _mm512_permutexvar_epi16(codes, table);
  const __mmask32 not_zero = _mm512_test_epi16_mask(values, _mm512_set1_epi16(0x7fff));
  return _mm512_mask_add_epi16(values, not_zero, values, bias);
}

// Scale codes of up to sixteen records, four in each lane; those of the last one again where there are none.
__m512i scale_codes(const uint8_t* const* records, int64_t count) {
  alignas(64) int32_t codes[kIndexTile];
  for (int64_t i = 0; i < kIndexTile; ++i) {
    __builtin_memcpy(&codes[i], records[std::min(i, count - 1)] + kIndexDim / 2, sizeof(int32_t));
  }
  return _mm512_load_si512(codes);
}

__m512i group_codes(__m512i codes, int64_t group) {
  const __m512i shifted = _mm512_srl_epi32(codes, _mm_cvtsi64_si128(8 * group));
  return _mm512_and_si512(shifted, _mm512_set1_epi32(255));
}

// The exponents of a group's scales, on both words of each lane.
__m512i biases(__m512i codes) {
  const __m512i exponents = _mm512_slli_epi32(_mm512_sub_epi32(codes, _mm512_set1_epi32(127)), 7);
  return _mm512_mask_mov_epi16(_mm512_slli_epi32(exponents, 16), 0x55555555, exponents);
}

IndexScales measured(__m512i codes) {
  __m512i least = group_codes(codes, 0);
  __m512i most = least;
  for (int64_t g = 1; g < kIndexGroups; ++g) {
    least = _mm512_min_epu32(least, group_codes(codes, g));
    most = _mm512_max_epu32(most, group_codes(codes, g));
  }
  return {.least = static_cast<uint8_t>(_mm512_reduce_min_epu32(least)),
          .most = static_cast<uint8_t>(_mm512_reduce_max_epu32(most)),
          .spread = static_cast<uint8_t>(_mm512_reduce_max_epu32(_mm512_sub_epi32(most, least)))};
}

void pack_queries(const uint8_t* const* records, int64_t count, IndexTile& tile) {
  const __m512i codes = scale_codes(records, count);
  tile.scales = measured(codes);
  const __m512i table = code_table();
  for (int64_t g = 0; g < kIndexGroups; ++g) {
    const __m512i of_group = biases(group_codes(codes, g));
    for (int64_t i = 0; i < kIndexTile; ++i) {
      if (i >= count) {
        _mm512_store_si512(tile.values[g][i], _mm512_setzero_si512());
        continue;
      }
      const auto* from = reinterpret_cast<const __m128i*>(records[i] + g * kMxGroup / 2);
      const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(from));
      const __m512i bias = _mm512_permutexvar_epi32(_mm512_set1_epi32(static_cast<int>(i)), of_group);
      _mm512_store_si512(tile.values[g][i], two_channels(bytes, _mm512_slli_epi32(bytes, 12), bias, table));
    }
  }
}

void pack_keys(const uint8_t* const* records, int64_t count, IndexTile& tile) {
  const __m512i codes = scale_codes(records, count);
  tile.scales = measured(codes);
  __m512i v[kIndexTile];
  for (int64_t i = 0; i < kIndexTile; ++i) {
    v[i] = i < count ? _mm512_loadu_si512(records[i]) : _mm512_setzero_si512();
  }
  transpose(v);  // to [four bytes][keys]
  const __m512i table = code_table();
  for (int64_t g = 0; g < kIndexGroups; ++g) {
    const __m512i bias = biases(group_codes(codes, g));
    for (int64_t four = 0; four < 4; ++four) {
      const __m512i bytes = v[4 * g + four];
      auto* to = tile.values[g] + 4 * four;
      _mm512_store_si512(to[0], two_channels(bytes, _mm512_slli_epi32(bytes, 12), bias, table));
      _mm512_store_si512(to[1], two_channels(_mm512_srli_epi32(bytes, 8), _mm512_slli_epi32(bytes, 4), bias, table));
      _mm512_store_si512(to[2], two_channels(_mm512_srli_epi32(bytes, 16), _mm512_srli_epi32(bytes, 4), bias, table));
      _mm512_store_si512(to[3], two_channels(_mm512_srli_epi32(bytes, 24), _mm512_srli_epi32(bytes, 12), bias, table));
    }
  }
}

GANNET_AMX void multiply(const IndexTile* queries, const IndexTile* keys, IndexProducts& products) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t g = 0; g < kIndexGroups; ++g) {
    _tile_loadd(4, queries[0].values[g], 64);
    _tile_loadd(6, keys[0].values[g], 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, keys[1].values[g], 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, queries[1].values[g], 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  constexpr int kStride = kIndexKeys * sizeof(float);
  _tile_stored(0, products.values[0], kStride);
  _tile_stored(1, products.values[0] + kIndexTile, kStride);
  _tile_stored(2, products.values[kIndexTile], kStride);
  _tile_stored(3, products.values[kIndexTile] + kIndexTile, kStride);
}

__mmask16 first_lanes(int64_t count) {
  return static_cast<__mmask16>((1U << std::clamp<int64_t>(count, 0, kIndexTile)) - 1);
}

void add_heads(const IndexProducts& products, const IndexProductRows& p) {
  for (int64_t r = 0; r < p.rows; ++r) {
    const float* weights = p.weights + r * p.heads;
    __m512 low = _mm512_setzero_ps();
    __m512 high = _mm512_setzero_ps();
    for (int64_t h = 0; h < p.heads; ++h) {
      const float* of_head = products.values[r * p.heads + h];
      const __m512 weight = _mm512_set1_ps(weights[h]);
      const __m512 first = _mm512_max_ps(_mm512_setzero_ps(), _mm512_load_ps(of_head));
      const __m512 second = _mm512_max_ps(_mm512_setzero_ps(), _mm512_load_ps(of_head + kIndexTile));
      low = _mm512_add_ps(low, _mm512_mul_ps(first, weight));
      high = _mm512_add_ps(high, _mm512_mul_ps(second, weight));
    }
    float* to = p.scores + r * p.stride;
    _mm512_mask_storeu_ps(to, first_lanes(p.visible[r]), low);
    _mm512_mask_storeu_ps(to + kIndexTile, first_lanes(p.visible[r] - kIndexTile), high);
  }
}

GANNET_AMX void begin() {
  _tile_loadconfig(&kFullTiles);
}

GANNET_AMX void end() {
  _tile_release();
}

}  // namespace

const MatrixIndexKernels kMatrixIndex = {.begin = begin,
                                         .end = end,
                                         .pack_queries = pack_queries,
                                         .pack_keys = pack_keys,
                                         .multiply = multiply,
                                         .add_heads = add_heads};

}  // namespace gannet::ops

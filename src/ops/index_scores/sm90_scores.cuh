#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "ops/cuda/bulk_copy.cuh"
#include "ops/cuda/check.h"
#include "ops/cuda/fragment.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/ordered.cuh"
#include "ops/cuda/quantize.cuh"
#include "ops/cuda/rope.cuh"
#include "ops/cuda/wgmma.cuh"
#include "ops/index_scores/sm90_kernels.h"

// Scores of keys for the heads of one row, or of a tile of a sequence's rows.
//
// A warpgroup takes 64 keys at a time as the left operand: each thread decodes a quarter of two keys into registers.
// The right operand, the heads of all rows of the tile, stays in shared memory. The channels of a head are multiplied
// in the order in which the nibbles of a key's words come out in pairs (channel_place); a score's bits do not depend on
// the number of rows.
//
// Queries are multiplied by 2^64 and keys by 2^-64, both exactly, so that the factor of a key's nibbles, whose raw bits
// are a bf16 that is off by 2^126, is a bf16 for all scales up to 2^65.
namespace gannet::ops::cuda {

inline constexpr int kChannels = 128;
inline constexpr int kRotated = 64;
inline constexpr int kKeyBytes = 68;
inline constexpr int kUnitKeys = 64;  // that a warpgroup takes at a time

// A quarter of a key: words t, t + 4, t + 8 and t + 12 of its nibbles, and its four scales.
struct RawKey {
  uint32_t words[4];
  uint32_t scales;
};

// Loads that stay where they are written, ahead of what hides their latency; the compiler would put them off until
// their values are wanted.
__device__ inline uint32_t load_ahead(const void* global) {
  uint32_t value = 0;
  asm volatile("ld.global.nc.b32 %0, [%1];\n" : "=r"(value) : "l"(global));
  return value;
}
__device__ inline int load_early(const int32_t* global) {
  int value = 0;
  asm volatile("ld.global.b32 %0, [%1];\n" : "=r"(value) : "l"(global));
  return value;
}

struct KeyReader {
  const SelectArguments& a;
  const int32_t* block_table;  // the sequence's
  const int32_t* candidates;   // the row's, or null
  int count;

  __device__ const uint32_t* at(int j) const {
    j = min(j, count - 1);
    const uint32_t entry = candidates != nullptr ? load_ahead(candidates + j) : static_cast<uint32_t>(j);
    const auto per_block = static_cast<uint32_t>(a.p.keys.block_records);
    const uint32_t block = a.block_shift >= 0 ? entry >> a.block_shift : entry / per_block;
    const std::byte* first = a.p.keys.base + load_ahead(block_table + block) * a.p.keys.block_stride;
    return reinterpret_cast<const uint32_t*>(first + static_cast<int64_t>(entry - block * per_block) * kKeyBytes);
  }
};

__device__ inline RawKey load_key(const uint32_t* record, int t) {
  RawKey key;
#pragma unroll
  for (int i = 0; i < 4; ++i) key.words[i] = load_ahead(record + 4 * i + t);
  key.scales = load_ahead(record + 16);
  return key;
}

// Nibbles p and p + 4 of word i become registers 4 i + p, a pair of channels 32 i + 8 t + p and + 4.
__device__ inline void decode_key(const RawKey& key, uint32_t pairs[16]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t w = key.words[i];
    // raw bits * 2^126 * 2^(scale - 127) * 2^-64
    const uint32_t factors = scale_factors(min((key.scales >> (8 * i) & 0xffU) + 62U, 254U));
    pairs[4 * i] = scale_pair((w << 12 & 0x80008000U) | (w << 6 & 0x01c001c0U), factors);
    pairs[4 * i + 1] = scale_pair((w << 8 & 0x80008000U) | (w << 2 & 0x01c001c0U), factors);
    pairs[4 * i + 2] = scale_pair((w << 4 & 0x80008000U) | (w >> 2 & 0x01c001c0U), factors);
    pairs[4 * i + 3] = scale_pair((w & 0x80008000U) | (w >> 6 & 0x01c001c0U), factors);
  }
}

// A warpgroup's units of keys, one after the other; the keys of the next `depth` units are under way meanwhile.
template <int depth>
struct KeyStream {
  KeyReader reader;
  int step;  // units
  int key;   // of this thread in a unit; the other one is 8 behind
  int t;
  RawKey raw[depth][2];
  const uint32_t* next[2];

  __device__ KeyStream(const KeyReader& keys, int unit, int unit_step) : reader(keys), step(unit_step) {
    t = static_cast<int>(threadIdx.x) % 4;
    key = static_cast<int>(threadIdx.x) % 128 / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
    for (int d = 0; d < depth; ++d) {
#pragma unroll
      for (int i = 0; i < 2; ++i) raw[d][i] = load_key(reader.at((unit + d * step) * kUnitKeys + key + 8 * i), t);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) next[i] = reader.at((unit + depth * step) * kUnitKeys + key + 8 * i);
  }
  // The unit's keys as the left operand; units come to the stages 0 .. depth - 1 in turn.
  template <int stage>
  __device__ void take(int unit, uint32_t (&left)[2][16]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) decode_key(raw[stage][i], left[i]);
#pragma unroll
    for (int i = 0; i < 2; ++i) raw[stage][i] = load_key(next[i], t);
#pragma unroll
    for (int i = 0; i < 2; ++i) next[i] = reader.at((unit + (depth + 1) * step) * kUnitKeys + key + 8 * i);
  }
  // The key whose scores sum_quads leaves to this lane.
  __device__ int own() const {
    const int half = t & 1;
    return key + 8 * half;
  }
};

// Entries, or blocks of `size` entries, of a segment: some of a stretch's units, which are dealt out in turn.
struct SegmentNumbers {
  int first_unit, active, stretch, size;
  __device__ int operator()(int i) const {
    const int in_unit = kUnitKeys / size;
    return ((first_unit + i / in_unit) * active + stretch) * in_unit + i % in_unit;
  }
};

// Where decode_key's order puts a channel among the 128 of the product.
__device__ inline int channel_place(int channel) {
  const int i = channel / 32, t = channel % 32 / 8, half = channel % 8 / 4, p = channel % 4;
  return 16 * (2 * i + p / 2) + 8 * (p % 2) + 2 * t + half;
}

// Byte of a column's channel in the right operand: two halves of 64 channels, each of rows of 128 swizzled bytes.
template <int columns>
__device__ inline int query_byte(int column, int place) {
  const int chunk = place % 64 / 8;
  return place / 64 * (columns * 128) + column * 128 + ((chunk ^ (column % 8)) * 16) + place % 8 * 2;
}

// x rounded to an E2M1 value, ties to even codes: these are the even multiples of the values' distance, so that adding
// and subtracting a number whose last place is that distance rounds.
__device__ inline float round_e2m1(float x) {
  const float m = fabsf(x);
  const float large = m < 2 ? 0x1.8p22F : m < 4 ? 0x1.8p23F : 0x1.8p24F;
  return fminf(fmaxf(__fsub_rn(__fadd_rn(x, large), large), -6.0F), 6.0F);
}

// Rotates, rounds to Q4mx and stores four channels of a head: lane l of the warp has channels 4 l .. 4 l + 3.
template <int columns>
__device__ inline void store_query(char* queries, int column, float4 q, const float2* angles, int lane) {
  float x[4] = {q.x, q.y, q.z, q.w};
  if (lane >= 16) {
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const float2 angle = angles[2 * lane - 32 + i / 2];
      rotate_pair(x[i], x[i + 1], angle.x, angle.y);
    }
  }
  float largest = fmaxf(fmaxf(fabsf(x[0]), fabsf(x[1])), fmaxf(fabsf(x[2]), fabsf(x[3])));
#pragma unroll
  for (int step = 1; step < 8; step *= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffU, largest, step));
  const uint32_t scale = power_of_two_scale(fmaxf(largest, 6 * 0x1p-126F), 1.0F / 6.0F);
  const float inverse = inverse_scale_value(scale), factor = scale_value(scale);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float value = round_e2m1(x[i] * inverse) * 0x1p64F * factor;
    const int at = query_byte<columns>(column, channel_place(4 * lane + i));
    *reinterpret_cast<__nv_bfloat16*>(queries + at) = __float2bfloat16(value);
  }
}

// Sums both keys' values of all rows over the four lanes of a quad. Lane t is left with key t % 2 and the rows of half
// t / 2; with one row both halves have it.
template <int rows>
__device__ inline void sum_quads(const float (&sum)[2][rows], float (&total)[(rows + 1) / 2], int t) {
  float half[rows];
#pragma unroll
  for (int r = 0; r < rows; ++r) {
    const float sent = (t & 1) != 0 ? sum[0][r] : sum[1][r];
    const float kept = (t & 1) != 0 ? sum[1][r] : sum[0][r];
    half[r] = kept + __shfl_xor_sync(0xffffffffU, sent, 1);
  }
  if constexpr (rows == 1) {
    total[0] = half[0] + __shfl_xor_sync(0xffffffffU, half[0], 2);
  } else {
#pragma unroll
    for (int r = 0; r < rows / 2; ++r) {
      const float sent = (t & 2) != 0 ? half[r] : half[r + rows / 2];
      const float kept = (t & 2) != 0 ? half[r + rows / 2] : half[r];
      total[r] = kept + __shfl_xor_sync(0xffffffffU, sent, 2);
    }
  }
}

// Cosine and sine of a row's rotation of pair i.
__device__ inline float2 rotation(const SelectArguments& a, int row, int i) {
  const float angle = __fmul_rn(static_cast<float>(a.p.rows.positions[row]), a.p.frequencies[i]);
  double sine = 0, cosine = 0;
  sincos(static_cast<double>(angle), &sine, &cosine);
  return make_float2(static_cast<float>(cosine), static_cast<float>(sine));
}

// The products of 64 keys with `columns` heads from `queries`, 128 columns in an instruction; waits for those of chunk
// c before use(c, d), which gets multiply_add's layout.
template <int columns, class Use>
__device__ inline void multiply(const uint32_t (&key)[2][16], const char* queries, const Use& use) {
  constexpr int kChunk = columns < 128 ? columns : 128;
  constexpr int kChunks = columns / kChunk;
  const auto base = shared_address(queries);
  float d[kChunks][kChunk / 2];
  products_begin();
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
#pragma unroll
    for (int s = 0; s < 8; ++s) {
      const uint32_t left[4] = {key[0][2 * s], key[1][2 * s], key[0][2 * s + 1], key[1][2 * s + 1]};
      const uint32_t right = base + s / 4 * (columns * 128) + c * (kChunk * 128) + s % 4 * 32;
      multiply_add<kChunk>(d[c], left, swizzled_operand(right), s > 0);
    }
    products_commit();
  }
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    if (c + 1 < kChunks) {
      products_wait<1>();
    } else {
      products_wait<0>();
    }
    pin_registers(d[c]);
    use(c, d[c]);
  }
}

// Sums of relu(product) * weight over this thread's part of a row's heads, for both of its keys. The row's columns
// begin at `first` of the chunk.
template <int heads, int n>
__device__ inline void weigh(const float (&d)[n], int first, const float* weights, int t, float& sum0, float& sum1) {
  sum0 = sum1 = 0;
#pragma unroll
  for (int h = 0; h < heads; h += 8) {
    const float2 w = *reinterpret_cast<const float2*>(weights + h + 2 * t);
    const int at = (first + h) / 2;
    sum0 = fmaf(fmaxf(d[at], 0.0F), w.x, sum0);
    sum0 = fmaf(fmaxf(d[at + 1], 0.0F), w.y, sum0);
    sum1 = fmaf(fmaxf(d[at + 2], 0.0F), w.x, sum1);
    sum1 = fmaf(fmaxf(d[at + 3], 0.0F), w.y, sum1);
  }
}

// What is known of a row before its scores.
struct RowInfo {
  const SelectArguments& a;
  int row;

  // Visible entries or candidates.
  __device__ int number() const { return row_number(a, *row_length(a, row)); }
  __device__ bool makes_blocks(int n) const { return a.p.make_candidates && n > a.p.max_blocks * a.p.block_size; }
  __device__ bool needs_scores(int n) const { return n > a.p.k || makes_blocks(n); }
  __device__ int32_t* candidates() const { return a.p.candidates + row * a.p.max_blocks * a.p.block_size; }
  __device__ int32_t* selected() const { return a.p.selected + row * a.p.selected_stride; }

  // What needs no scores, this block being number `stretch` of `stretches` with the row.
  __device__ void take_all(int n, int stretch, int stretches) const {
    const int first = static_cast<int>(threadIdx.x), step = static_cast<int>(blockDim.x);
    if (a.p.make_candidates && !makes_blocks(n)) {
      for (int i = stretch * step + first; i < n; i += stretches * step) candidates()[i] = i;
      if (stretch == 0 && first == 0) a.p.candidate_counts[row] = n;
    }
    if (stretch != 0 || needs_scores(n)) return;
    for (int i = first; i < n; i += step) selected()[i] = a.p.use_candidates ? candidates()[i] : i;
    if (first == 0) {
      a.p.selected_counts[row] = n;
      if (a.active != nullptr) a.active[row] = 0;
    }
  }
};

// 0 for what is never chosen.
__device__ inline uint32_t score_code(float score) {
  return score > -INFINITY ? ordered(score) : 0U;
}

// Rows first .. end - 1 are of one sequence.
__device__ inline bool one_sequence(const Rows& rows, int first, int end) {
  const int sequence = rows.sequence_of[first];
  for (int r = first + 1; r < end; ++r) {
    if (rows.sequence_of[r] != sequence) return false;
  }
  return true;
}

}  // namespace gannet::ops::cuda

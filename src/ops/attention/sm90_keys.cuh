#pragma once

#include <cuda_bf16.h>

#include "ops/attention/sm90.h"
#include "ops/cuda/fragment.cuh"
#include "ops/cuda/record_address.cuh"
#include "ops/cuda/rope.cuh"

// The keys of one row and how they become bf16 operands. A warp decodes a key: lane l its channels 16 l .. 16 l + 15.
//
// Decoded keys differ from the true ones in two ways, both undone by whoever uses them:
//  - They are smaller by 2^16 (kKeyScale), so that the factors of both formats are bf16 numbers: an entry's sub-scale
//    (up to 448) times the 2^126 that takes raw E2M1 bits to their value would not be one. Window values may then reach
//    448 * 2^23.
//  - Channels of each group of 8 lie in the order 0 4 1 5 2 6 3 7: the pairs into which a word of codes falls apart by
//    shifts and masks alone.
namespace gannet::ops::cuda {

inline constexpr int kHeadDim = 512;
inline constexpr int kRotated = 64;
inline constexpr int kWindowBytes = kHeadDim + kHeadDim / 32;
inline constexpr int kEntryBytes = kHeadDim / 2 + kHeadDim / 16;
inline constexpr float kKeyScale = 0x1p16F;
inline constexpr float kLog2E = 1.44269504088896340736F;
// Turns the product of a query and a decoded key into the exponent of 2 in the softmax.
inline constexpr float kScoreScale = kKeyScale * kLog2E * 0.04419417382415922F;  // 512^-1/2
inline constexpr float kLowestScore = -1e30F;

// A row's keys are numbered: the window from the oldest on, then the selected entries.
struct RowKeys {
  int64_t row;
  Sequence sequence;
  int position;
  int window_keys;
  int count;
};

__device__ inline RowKeys row_keys(const AttentionParams& p, int64_t row) {
  RowKeys keys;
  keys.row = row;
  keys.sequence = p.rows.sequences[p.rows.sequence_of[row]];
  keys.position = p.rows.positions[row];
  const int from = max(keys.sequence.window_from, keys.position - static_cast<int>(p.window) + 1);
  keys.window_keys = max(0, keys.position - from + 1);
  keys.count = keys.window_keys + (p.selected != nullptr ? p.selected_counts[row] : 0);
  return keys;
}

// Key j < count.
__device__ inline const std::byte* key_address(const AttentionParams& p, const RowKeys& keys, int j) {
  const Sequence& sequence = keys.sequence;
  if (j >= keys.window_keys) {
    const int32_t entry = p.selected[keys.row * p.selected_stride + j - keys.window_keys];
    return record_address(p.entries, sequence.slot, entry);
  }
  const int position = keys.position - keys.window_keys + 1 + j;
  if (position >= sequence.start) {
    return p.chunk + (int64_t{sequence.first_row} + position - sequence.start) * kWindowBytes;
  }
  return p.rings + sequence.slot * p.ring_stride + position % p.window * kWindowBytes;
}

// A lane's part of a packed key; of an entry the first 8 bytes.
struct PackedKey {
  uint4 codes;
  uint32_t scale;
};

__device__ inline PackedKey load_key(const std::byte* record, bool from_window, int lane) {
  PackedKey key;
  if (from_window) {
    key.codes = __ldg(reinterpret_cast<const uint4*>(record) + lane);
    key.scale = __ldg(reinterpret_cast<const uint8_t*>(record) + kHeadDim + lane / 2);
  } else {
    const uint2 codes = __ldg(reinterpret_cast<const uint2*>(record) + lane);
    key.codes = {codes.x, codes.y, 0, 0};
    key.scale = __ldg(reinterpret_cast<const uint8_t*>(record) + kHeadDim / 2 + lane);
  }
  return key;
}

// 8 channels of E2M1 codes: bits (sign; exponent, mantissa) to 15; 8 7 6 of a bf16, whose exponent is then off by 126.
__device__ inline uint4 decode_entry_word(uint32_t word, uint32_t factors) {
  constexpr uint32_t kSign = 0x80008000U, kRest = 0x01c001c0U;
  return {scale_pair(((word << 12) & kSign) | ((word << 6) & kRest), factors),
          scale_pair(((word << 8) & kSign) | ((word << 2) & kRest), factors),
          scale_pair(((word << 4) & kSign) | ((word >> 2) & kRest), factors),
          scale_pair((word & kSign) | ((word >> 6) & kRest), factors)};
}

// 8 channels of E4M3 codes.
__device__ inline uint4 decode_window_words(uint32_t low, uint32_t high, uint32_t factors) {
  uint4 pairs;
  decode_fp8(__byte_perm(low, high, 0x5410), factors, pairs.x, pairs.y);
  decode_fp8(__byte_perm(low, high, 0x7632), factors, pairs.z, pairs.w);
  return pairs;
}

// The lane's channels 16 l .. + 7 and 16 l + 8 .. + 15.
__device__ inline void decode_key(const PackedKey& key, bool from_window, uint4 chunks[2]) {
  if (from_window) {
    const uint32_t factors = scale_factors(min(key.scale + 120 - 16, 254U));
    chunks[0] = decode_window_words(key.codes.x, key.codes.y, factors);
    chunks[1] = decode_window_words(key.codes.z, key.codes.w, factors);
  } else {
    // The E4M3 scale times 2^110: its bits as those of an fp32 are off by 2^120. Two steps, since 2^230 is no fp32.
    const uint32_t factor = __float_as_uint(__uint_as_float(key.scale << 20) * 0x1p115F * 0x1p115F);
    const uint32_t factors = __byte_perm(factor, factor, 0x3232);
    chunks[0] = decode_entry_word(key.codes.x, factors);
    chunks[1] = decode_entry_word(key.codes.y, factors);
  }
}

// 8 neighbouring channels of a query in the order of decoded keys.
__device__ inline uint4 in_key_order(uint4 chunk) {
  return {__byte_perm(chunk.x, chunk.z, 0x5410), __byte_perm(chunk.x, chunk.z, 0x7632),
          __byte_perm(chunk.y, chunk.w, 0x5410), __byte_perm(chunk.y, chunk.w, 0x7632)};
}

// Rotates a pair of bf16 by the angle of (cosine, sine).
__device__ inline uint32_t rotated_pair(uint32_t pair, float2 angle) {
  float a = __uint_as_float(pair << 16), b = __uint_as_float(pair & 0xffff0000U);
  rotate_pair(a, b, angle.x, angle.y);
  const __nv_bfloat162 rounded = __floats2bfloat162_rn(a, b);
  return *reinterpret_cast<const uint32_t*>(&rounded);
}

// 8 neighbouring channels of a query, chunk c of its 64, rotated and in the order of decoded keys. `angles` holds the
// cosines and sines of the 32 pairs.
__device__ inline uint4 query_chunk(const __nv_bfloat16* head, int c, const float2* angles) {
  uint4 chunk = __ldg(reinterpret_cast<const uint4*>(head) + c);
  const int pair = 4 * (c - (kHeadDim - kRotated) / 8);
  if (pair >= 0) {
    chunk = {rotated_pair(chunk.x, angles[pair]), rotated_pair(chunk.y, angles[pair + 1]),
             rotated_pair(chunk.z, angles[pair + 2]), rotated_pair(chunk.w, angles[pair + 3])};
  }
  return in_key_order(chunk);
}

__device__ inline float2 angle_of_pair(int position, float frequency) {
  float2 angle;
  sincosf(__fmul_rn(static_cast<float>(position), frequency), &angle.y, &angle.x);
  return angle;
}

// exp(sink - M) for the largest score M, given as exponent of 2.
__device__ inline float sink_weight(float sink, float top) {
  return exp2f(sink * kLog2E - top);
}

}  // namespace gannet::ops::cuda

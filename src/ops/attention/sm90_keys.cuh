#pragma once

#include <cuda_bf16.h>

#include "ops/attention/sm90.h"
#include "ops/cuda/fragment.cuh"
#include "ops/cuda/record_address.cuh"
#include "ops/cuda/rope.cuh"
#include "ops/cuda/vectors.cuh"

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

// A row's keys come in tiles of one kind: first those of the selected entries, then those of the window, from the
// oldest position on. The last tile of a kind may hold fewer keys; behind them the last one is repeated, without
// weight.
inline constexpr int kTile = 64;
// Eight warps load and decode a tile, each a row of eight keys.
inline constexpr int kWarpKeys = 8;

struct RowKeys {
  int64_t row;
  Sequence sequence;
  int position;
  int first_position;  // of the window
  int entries, window_keys;
  int entry_tiles, tiles;

  // Number of keys in a tile.
  __device__ int tile_keys(int tile) const {
    return tile < entry_tiles ? entries - tile * kTile : window_keys - (tile - entry_tiles) * kTile;
  }
};

__device__ inline RowKeys row_keys(const AttentionParams& p, int64_t row) {
  RowKeys keys;
  keys.row = row;
  keys.position = p.rows.positions[row];
  keys.entries = p.selected != nullptr ? p.selected_counts[row] : 0;
  keys.sequence = p.rows.sequences[p.rows.sequence_of[row]];
  keys.first_position = max(keys.sequence.window_from, keys.position - static_cast<int>(p.window) + 1);
  keys.window_keys = max(0, keys.position - keys.first_position + 1);
  keys.entry_tiles = (keys.entries + kTile - 1) / kTile;
  keys.tiles = keys.entry_tiles + (keys.window_keys + kTile - 1) / kTile;
  return keys;
}

// Tiles [begin, end) of one part out of `parts`.
struct TileRange {
  int begin, end;
};
__device__ inline TileRange tiles_of_part(const RowKeys& keys, int part, int parts) {
  const int size = (keys.tiles + parts - 1) / parts;
  return {min(part * size, keys.tiles), min((part + 1) * size, keys.tiles)};
}

template <bool from_window>
__device__ inline const std::byte* key_address(const AttentionParams& p, const RowKeys& keys, int tile, int key) {
  const Sequence& sequence = keys.sequence;
  if constexpr (!from_window) {
    const int j = min(tile * kTile + key, keys.entries - 1);
    const int32_t entry = p.selected[keys.row * p.selected_stride + j];
    return record_address(p.entries, sequence.slot, static_cast<uint32_t>(entry));
  }
  const int j = min((tile - keys.entry_tiles) * kTile + key, keys.window_keys - 1);
  const int position = keys.first_position + j;
  if (position >= sequence.start) {
    return p.chunk + (int64_t{sequence.first_row} + position - sequence.start) * kWindowBytes;
  }
  return p.rings + sequence.slot * p.ring_stride + position % static_cast<int>(p.window) * kWindowBytes;
}

// A lane's part of a packed key.
template <bool from_window>
struct PackedKey {
  uint2 codes[from_window ? 2 : 1];
  uint32_t scale;
};

template <bool from_window>
__device__ inline PackedKey<from_window> load_key(const std::byte* record, int lane) {
  PackedKey<from_window> key;
  const auto* bytes = reinterpret_cast<const uint8_t*>(record);
  if constexpr (from_window) {
    const uint4 codes = __ldg(reinterpret_cast<const uint4*>(record) + lane);
    key.codes[0] = {codes.x, codes.y};
    key.codes[1] = {codes.z, codes.w};
    key.scale = __ldg(bytes + kHeadDim + lane / 2);
  } else {
    key.codes[0] = __ldg(reinterpret_cast<const uint2*>(record) + lane);
    key.scale = __ldg(bytes + kHeadDim / 2 + lane);
  }
  return key;
}

// 8 channels of E2M1 codes: bits (sign; exponent, mantissa) to 15; 8 7 6 of a bf16, whose exponent is then off by 126.
// One multiplication does both shifts, in units that are not busy otherwise.
__device__ inline uint4 decode_entry_word(uint32_t word, uint32_t factors) {
  constexpr uint32_t kEven = 0x000f000fU, kOdd = 0x00f000f0U, kBits = 0x81c081c0U;
  constexpr uint32_t kShiftEven = 1 << 12 | 1 << 6, kShiftOdd = 1 << 8 | 1 << 2;
  const uint32_t upper = word >> 8;
  return {scale_pair((word & kEven) * kShiftEven & kBits, factors),
          scale_pair((word & kOdd) * kShiftOdd & kBits, factors),
          scale_pair((upper & kEven) * kShiftEven & kBits, factors),
          scale_pair((upper & kOdd) * kShiftOdd & kBits, factors)};
}

// 8 channels of E4M3 codes.
__device__ inline uint4 decode_window_words(uint32_t low, uint32_t high, uint32_t factors) {
  uint4 pairs;
  decode_fp8(__byte_perm(low, high, 0x5410), factors, pairs.x, pairs.y);
  decode_fp8(__byte_perm(low, high, 0x7632), factors, pairs.z, pairs.w);
  return pairs;
}

// A lane stores its two chunks of 8 channels; half of the lanes begin with the second one, since otherwise lanes would
// meet in the banks of shared memory.
__device__ inline int first_chunk(int lane) {
  return 2 * lane + lane / 4 % 2;
}
// The lane's chunks first_chunk(lane) and first_chunk(lane) ^ 1.
template <bool from_window>
__device__ inline void decode_key(const PackedKey<from_window>& key, int lane, uint4 (&chunks)[2]) {
  const bool swapped = lane / 4 % 2 != 0;
  if constexpr (from_window) {
    const uint32_t factors = scale_factors(min(key.scale + 120 - 16, 254U));
    const uint2 first = swapped ? key.codes[1] : key.codes[0], second = swapped ? key.codes[0] : key.codes[1];
    chunks[0] = decode_window_words(first.x, first.y, factors);
    chunks[1] = decode_window_words(second.x, second.y, factors);
  } else {
    // The E4M3 scale times 2^110: its bits as those of an fp32 are off by 2^120. Two steps, since 2^230 is no fp32.
    const uint32_t factor = __float_as_uint(__uint_as_float(key.scale << 20) * 0x1p115F * 0x1p115F);
    const uint32_t factors = __byte_perm(factor, factor, 0x3232);
    const uint2 codes = key.codes[0];
    chunks[0] = decode_entry_word(swapped ? codes.y : codes.x, factors);
    chunks[1] = decode_entry_word(swapped ? codes.x : codes.y, factors);
  }
}

// Goes over the tiles [begin, end) of a row, of one kind, for one of the eight warps. The packed keys of the next tile
// are on their way while a tile is decoded: a register is loaded again as soon as it has been decoded.
template <bool from_window>
struct TileDecoder {
  static constexpr int kAddressTiles = 32 / kWarpKeys;

  const AttentionParams& p;
  const RowKeys& keys;
  int begin, end, warp, lane;
  const std::byte** addresses;  // in shared memory: of the warp's keys in a group of four tiles
  PackedKey<from_window> packed[kWarpKeys];

  __device__ TileDecoder(const AttentionParams& params, const RowKeys& row, int first, int last, int warp_of_tile,
                         int warp_lane, const std::byte** warp_addresses)
      : p(params), keys(row), begin(first), end(last), warp(warp_of_tile), lane(warp_lane), addresses(warp_addresses) {
    find_addresses(begin);
#pragma unroll
    for (int i = 0; i < kWarpKeys; ++i) load(begin, i);
  }
  __device__ void find_addresses(int tile) {
    tile = min(tile + lane / kWarpKeys, end - 1);
    const std::byte* address = key_address<from_window>(p, keys, tile, warp * kWarpKeys + lane % kWarpKeys);
    __syncwarp();
    addresses[lane] = address;
    __syncwarp();
  }
  __device__ void load(int tile, int i) {
    packed[i] = load_key<from_window>(addresses[(tile - begin) % kAddressTiles * kWarpKeys + i], lane);
  }
  // `store(i, chunks)` gets key i of the warp's eight: the lane's chunks first_chunk(lane) and first_chunk(lane) ^ 1.
  template <class Store>
  __device__ void decode(int tile, const Store& store) {
    const int next = tile + 1;
    if (next < end && (next - begin) % kAddressTiles == 0) find_addresses(next);
#pragma unroll
    for (int i = 0; i < kWarpKeys; ++i) {
      uint4 chunks[2];
      decode_key(packed[i], lane, chunks);
      load(next, i);
      store(i, chunks);
    }
  }
};

// 8 neighbouring channels of a query in the order of decoded keys.
__device__ inline uint4 in_key_order(uint4 chunk) {
  return {__byte_perm(chunk.x, chunk.z, 0x5410), __byte_perm(chunk.x, chunk.z, 0x7632),
          __byte_perm(chunk.y, chunk.w, 0x5410), __byte_perm(chunk.y, chunk.w, 0x7632)};
}

// Rotates a pair of bf16 by the angle of (cosine, sine).
__device__ inline uint32_t rotated_pair(uint32_t pair, float2 angle) {
  float a = low_channel(pair), b = high_channel(pair);
  rotate_pair(a, b, angle.x, angle.y);
  return pack_channels(a, b);
}

// Chunk c of a query's 64, of 8 neighbouring channels: rotated and in the order of decoded keys. `angles` holds the
// cosines and sines of the 32 pairs.
__device__ inline uint4 prepared_query(uint4 chunk, int c, const float2* angles) {
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

// Nobody leaves a cluster while others read its memory. Nothing is passed on, so that this barrier needs no fence.
__device__ inline void wait_for_readers() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;\n" ::: "memory");
}

// 2^x; results below 2^-126 are 0.
__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

// exp(sink - M) for the largest score M, given as exponent of 2.
__device__ inline float sink_weight(float sink, float top) {
  return exp2f(sink * kLog2E - top);
}

}  // namespace gannet::ops::cuda

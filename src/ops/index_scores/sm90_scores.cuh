#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "ops/cuda/check.h"
#include "ops/cuda/fragment.cuh"
#include "ops/cuda/quantize.cuh"
#include "ops/index_scores/sm90_best.cuh"
#include "ops/index_scores/sm90_kernels.h"
#include "ops/index_scores/sm90_wgmma.cuh"

// Scores of a stretch of keys for one row, or for a tile of a sequence's rows, and the best of them.
//
// A warpgroup takes 64 keys at a time as the left operand: each thread decodes a quarter of two keys into registers.
// The right operand, the heads of all rows of the tile, stays in shared memory. The channels of a head are multiplied
// in the order in which the nibbles of a key's words come out in pairs (channel_place), which changes no sum: the order
// of additions inside the matrix unit is its own. Scores go through shared memory to one warp for each row, which keeps
// its list of the best.
//
// Queries are multiplied by 2^64 and keys by 2^-64, both exactly, so that the factor of a key's nibbles, whose raw bits
// are a bf16 that is off by 2^126, is a bf16 for all scales up to 2^65.
namespace gannet::ops::cuda {

inline constexpr int kChannels = 128;
inline constexpr int kRotated = 64;
inline constexpr int kKeyBytes = 68;

template <int heads_, int row_tile_>
struct ScoreShape {
  static constexpr int heads = heads_;  // padded
  static constexpr int rows = row_tile_;
  static constexpr int groups = rows == 1 ? 4 : 2;  // warpgroups
  static constexpr int threads = 128 * groups;
  static constexpr int keys = 64 * groups;  // of a round
  static constexpr int columns = heads * rows;
  static constexpr int chunk = columns < 128 ? columns : 128;  // columns of one instruction
  static constexpr int chunks = columns / chunk;
  static constexpr int chunk_rows = rows / chunks;
  static constexpr int score_stride = keys + 4;

  static constexpr int best_capacity = 1024;   // 512 + slack + a round
  static constexpr int block_capacity = 3072;  // 2048 + slack + a round
  static constexpr int query_bytes = columns * kChannels * 2;
  static constexpr int weight_bytes = columns * 4;
  static constexpr int angle_bytes = rows * kRotated / 2 * 8;
  static constexpr int score_bytes = 2 * rows * score_stride * 4;
  static constexpr int best_bytes = rows * best_capacity * 8;
  static constexpr int block_bytes = rows * block_capacity * 8;
  static constexpr int shared_bytes(bool make_candidates) {
    return 1024 + query_bytes + weight_bytes + angle_bytes + score_bytes + best_bytes +
           (make_candidates ? block_bytes : 0);
  }
};

// A quarter of a key: words t, t + 4, t + 8 and t + 12 of its nibbles, and its four scales.
struct RawKey {
  uint32_t words[4];
  uint32_t scales;
};

struct KeyReader {
  const SelectArguments& a;
  const int32_t* block_table;  // the sequence's
  const int32_t* candidates;   // the row's, or null
  int count;

  __device__ const uint32_t* at(int j) const {
    j = min(j, count - 1);
    const auto entry = static_cast<uint32_t>(candidates != nullptr ? candidates[j] : j);
    const auto per_block = static_cast<uint32_t>(a.p.keys.block_records);
    const uint32_t block = a.block_shift >= 0 ? entry >> a.block_shift : entry / per_block;
    const std::byte* first = a.p.keys.base + __ldg(block_table + block) * a.p.keys.block_stride;
    return reinterpret_cast<const uint32_t*>(first + static_cast<int64_t>(entry - block * per_block) * kKeyBytes);
  }
};

__device__ inline RawKey load_key(const uint32_t* record, int t) {
  RawKey key;
#pragma unroll
  for (int i = 0; i < 4; ++i) key.words[i] = __ldg(record + 4 * i + t);
  key.scales = __ldg(record + 16);
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

// Rotates, rounds to Q4mx and stores four channels of a head: lane l of the warp has channels 4 l .. 4 l + 3.
template <int columns>
__device__ inline void store_query(char* queries, int column, float4 q, const float2* angles, int lane) {
  float x[4] = {q.x, q.y, q.z, q.w};
  if (lane >= 16) {
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const float2 angle = angles[2 * lane - 32 + i / 2];
      const float even = __fsub_rn(__fmul_rn(x[i], angle.x), __fmul_rn(x[i + 1], angle.y));
      x[i + 1] = __fadd_rn(__fmul_rn(x[i], angle.y), __fmul_rn(x[i + 1], angle.x));
      x[i] = even;
    }
  }
  float largest = fmaxf(fmaxf(fabsf(x[0]), fabsf(x[1])), fmaxf(fabsf(x[2]), fabsf(x[3])));
#pragma unroll
  for (int step = 1; step < 8; step *= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffU, largest, step));
  const uint32_t scale = power_of_two_scale(fmaxf(largest, 6 * 0x1p-126F), 1.0F / 6.0F);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float value = e2m1_value(e2m1_code(x[i] * inverse_scale_value(scale))) * 0x1p64F * scale_value(scale);
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

// The best of one stretch as the merge wants them.
__device__ inline void hand_over(BestList& list, const StretchLists& lists, int64_t stretch, int active, int lane) {
  list.cut(kSlack, lane);
  __syncwarp();
  for (int i = lane; i < list.count; i += 32) {
    lists.codes[stretch * lists.capacity + i] = list.codes[i];
    lists.entries[stretch * lists.capacity + i] = list.entries[i];
  }
  const int share = (list.k + active - 1) / active;
  uint32_t bound = 0;
  if (list.count >= share) bound = list.find(share, share / 4, lane).code;
  if (lane == 0) {
    lists.counts[stretch] = list.count;
    lists.bounds[stretch] = bound;
  }
}

template <int heads, int row_tile>
struct ScoreBlock {
  using Shape = ScoreShape<heads, row_tile>;

  const SelectArguments& a;
  int first_row;  // of the tile
  int rows;
  int stretch;  // of `stretches`
  int stretches;

  char* queries;
  float* weights;
  float2* angles;
  float* scores;
  char* lists;

  __device__ int row_of(int r) const { return first_row + min(r, rows - 1); }
  __device__ int number(int r) const {
    const int row = row_of(r);
    if (a.p.use_candidates) return a.p.candidate_counts[row];
    return (a.p.rows.positions[row] + 1) / static_cast<int>(a.p.ratio);
  }
  __device__ bool makes_blocks(int n) const { return a.p.make_candidates && n > a.p.max_blocks * a.p.block_size; }
  __device__ bool needs_scores(int n) const { return n > a.p.k || makes_blocks(n); }
  __device__ const int32_t* candidates(int row) const { return a.p.candidates + row * a.p.max_blocks * a.p.block_size; }

  __device__ void carve(char* shared) {
    const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
    queries = shared + (1024 - address % 1024) % 1024;
    weights = reinterpret_cast<float*>(queries + Shape::query_bytes);
    angles = reinterpret_cast<float2*>(queries + Shape::query_bytes + Shape::weight_bytes);
    scores = reinterpret_cast<float*>(queries + Shape::query_bytes + Shape::weight_bytes + Shape::angle_bytes);
    lists = reinterpret_cast<char*>(scores) + Shape::score_bytes;
  }

  // Everything that needs no scores.
  __device__ void take_all(int r) {
    const int row = row_of(r), n = number(r);
    if (a.p.make_candidates && !makes_blocks(n)) {
      int32_t* out = a.p.candidates + row * a.p.max_blocks * a.p.block_size;
      for (int i = stretch * Shape::threads + threadIdx.x; i < n; i += stretches * Shape::threads) out[i] = i;
      if (stretch == 0 && threadIdx.x == 0) a.p.candidate_counts[row] = n;
    }
    if (stretch != 0 || needs_scores(n)) return;
    int32_t* selected = a.p.selected + row * a.p.selected_stride;
    for (int i = threadIdx.x; i < n; i += Shape::threads) selected[i] = a.p.use_candidates ? candidates(row)[i] : i;
    if (threadIdx.x == 0) {
      a.p.selected_counts[row] = n;
      if (a.active != nullptr) a.active[row] = 0;
    }
  }

  __device__ void prepare_queries() {
    for (int i = threadIdx.x; i < row_tile * kRotated / 2; i += Shape::threads) {
      const float angle =
          static_cast<float>(a.p.rows.positions[row_of(i / (kRotated / 2))]) * a.p.frequencies[i % (kRotated / 2)];
      double sine = 0, cosine = 0;
      sincos(static_cast<double>(angle), &sine, &cosine);
      angles[i] = make_float2(static_cast<float>(cosine), static_cast<float>(sine));
    }
    const int given = static_cast<int>(a.p.heads);
    for (int i = threadIdx.x; i < Shape::columns; i += Shape::threads) {
      const int r = i / heads, h = i % heads;
      weights[i] = r < rows && h < given ? __fmul_rn(a.p.weights[(first_row + r) * given + h], a.weight_scale) : 0.0F;
    }
    __syncthreads();
    const int lane = threadIdx.x % 32;
#pragma unroll 4
    for (int column = threadIdx.x / 32; column < Shape::columns; column += Shape::threads / 32) {
      const int r = column / heads, h = column % heads;
      float4 q = make_float4(0, 0, 0, 0);
      if (r < rows && h < given) {
        q = *reinterpret_cast<const float4*>(a.p.q + (static_cast<int64_t>(first_row + r) * given + h) * kChannels +
                                             4 * lane);
      }
      store_query<Shape::columns>(queries, column, q, angles + r * (kRotated / 2), lane);
    }
    asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
    __syncthreads();
  }

  // Scores of this warpgroup's 64 keys into out [rows, score_stride].
  __device__ void score(const uint32_t (&key)[2][16], float* out) {
    const int lane = threadIdx.x % 32, t = lane % 4, g = lane / 4;
    const auto base = static_cast<uint32_t>(__cvta_generic_to_shared(queries));
    float d[Shape::chunks][Shape::chunk / 2];
    wgmma_fence();
#pragma unroll
    for (int c = 0; c < Shape::chunks; ++c) {
#pragma unroll
      for (int s = 0; s < 8; ++s) {
        const uint32_t left[4] = {key[0][2 * s], key[1][2 * s], key[0][2 * s + 1], key[1][2 * s + 1]};
        const uint32_t right = base + s / 4 * (Shape::columns * 128) + c * (Shape::chunk * 128) + s % 4 * 32;
        wgmma_64(d[c], left, matrix_descriptor(right), s > 0);
      }
      wgmma_commit();
    }
    float sum[2][row_tile];
#pragma unroll
    for (int c = 0; c < Shape::chunks; ++c) {
      if (c + 1 < Shape::chunks) {
        wgmma_wait<1>();
      } else {
        wgmma_wait<0>();
      }
      pin(d[c]);
#pragma unroll
      for (int r = 0; r < Shape::chunk_rows; ++r) {
        const int row = c * Shape::chunk_rows + r;
        sum[0][row] = sum[1][row] = 0;
#pragma unroll
        for (int h = 0; h < heads; h += 8) {
          const float2 w = *reinterpret_cast<const float2*>(weights + row * heads + h + 2 * t);
          const int at = 4 * ((r * heads + h) / 8);
          sum[0][row] = fmaf(fmaxf(d[c][at], 0.0F), w.x, sum[0][row]);
          sum[0][row] = fmaf(fmaxf(d[c][at + 1], 0.0F), w.y, sum[0][row]);
          sum[1][row] = fmaf(fmaxf(d[c][at + 2], 0.0F), w.x, sum[1][row]);
          sum[1][row] = fmaf(fmaxf(d[c][at + 3], 0.0F), w.y, sum[1][row]);
        }
      }
    }
    float total[(row_tile + 1) / 2];
    sum_quads<row_tile>(sum, total, t);
    const int column = threadIdx.x / 32 * 16 + g + 8 * (t & 1);
#pragma unroll
    for (int r = 0; r < (row_tile + 1) / 2; ++r)
      out[((t >> 1) * (row_tile / 2) + r) * Shape::score_stride + column] = total[r];
  }

  __device__ void offer_entries(BestList& list, const float* row_scores, int first, int n, int lane) {
    list.reserve(Shape::keys, lane);
#pragma unroll
    for (int i = 0; i < Shape::keys; i += 32)
      list.offer(row_scores[i + lane], first + i + lane, first + i + lane < n, lane);
  }

  // Blocks of this round's keys, each with its largest score; the newest is better than all.
  __device__ void offer_blocks(BestList& list, const float* row_scores, int first, int n, int lane) {
    const int size = static_cast<int>(a.p.block_size);
    const int in_round = Shape::keys / size;
    list.reserve(in_round, lane);
    for (int base = 0; base < in_round; base += 32) {
      const int begin = (base + lane) * size;
      const int end = base + lane < in_round ? min(begin + size, n - first) : 0;
      float best = -INFINITY;
      for (int i = begin; i < end; ++i) best = fmaxf(best, row_scores[i]);
      if (end == n - first) best = INFINITY;
      list.offer(best, first / size + base + lane, begin < end, lane);
    }
  }

  // The only stretch's lists are the result.
  __device__ void write_entries(BestList& list, int row, int lane) {
    list.cut(0, lane);
    __syncwarp();
    int32_t* selected = a.p.selected + row * a.p.selected_stride;
    for (int i = lane; i < list.count; i += 32) {
      const auto entry = static_cast<int32_t>(list.entries[i]);
      selected[i] = a.p.use_candidates ? candidates(row)[entry] : entry;
    }
    if (lane == 0) a.p.selected_counts[row] = list.count;
  }
  __device__ void write_blocks(BestList& list, int row, int n, int lane) {
    list.cut(0, lane);
    __syncwarp();
    const int size = static_cast<int>(a.p.block_size);
    int32_t* out = a.p.candidates + row * a.p.max_blocks * a.p.block_size;
    // The newest block, the last of the list, is the only one that may be shorter.
    const int total = list.count * size - ((n + size - 1) / size * size - n);
    for (int i = lane; i < total; i += 32) out[i] = static_cast<int32_t>(list.entries[i / size]) * size + i % size;
    if (lane == 0) a.p.candidate_counts[row] = total;
  }

  __device__ void run(char* shared) {
    for (int r = 0; r < rows; ++r) take_all(r);
    int most = 0;
    for (int r = 0; r < rows; ++r) {
      const int n = number(r);
      if (needs_scores(n)) most = max(most, n);
    }
    const int key_tiles = (most + Shape::keys - 1) / Shape::keys;
    if (stretch >= key_tiles) return;
    const int active = min(stretches, key_tiles);

    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, t = lane % 4;
    const int own_key = warp * 16 + lane / 4;
    const int sequence = a.p.rows.sequence_of[first_row];
    const KeyReader reader{
        .a = a,
        .block_table = a.p.keys.block_tables + a.p.rows.sequences[sequence].slot * a.p.keys.table_stride,
        .candidates = a.p.use_candidates ? candidates(first_row) : nullptr,
        .count = most};
    RawKey raw[2];
    const uint32_t* next[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      raw[i] = load_key(reader.at(stretch * Shape::keys + own_key + 8 * i), t);
      next[i] = reader.at((stretch + active) * Shape::keys + own_key + 8 * i);
    }
    carve(shared);
    prepare_queries();

    // One warp keeps a row's best entries, another one its best blocks.
    const bool keeps_blocks = row_tile <= 4 && warp >= 4;
    const int own = warp % (row_tile == 8 ? 8 : 4);
    const int row = row_of(own), n = number(own);
    const bool keeps = own < min(rows, row_tile) && warp < 8 && needs_scores(n) && (!keeps_blocks || makes_blocks(n));
    BestList list;
    list.k = static_cast<int>(keeps_blocks ? a.p.max_blocks : a.p.k);
    list.capacity = keeps_blocks ? Shape::block_capacity : Shape::best_capacity;
    list.codes = reinterpret_cast<uint32_t*>(lists + (keeps_blocks ? Shape::best_bytes : 0)) + 2 * own * list.capacity;
    list.entries = list.codes + list.capacity;

    int parity = 0;
    for (int tile = stretch; tile < key_tiles; tile += active, parity ^= 1) {
      uint32_t key[2][16];
      decode_key(raw[0], key[0]);
      decode_key(raw[1], key[1]);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        raw[i] = load_key(next[i], t);
        next[i] = reader.at((tile + 2 * active) * Shape::keys + own_key + 8 * i);
      }
      float* out = scores + parity * (row_tile * Shape::score_stride);
      score(key, out);
      __syncthreads();
      const int first = tile * Shape::keys;
      const float* row_scores = out + own * Shape::score_stride;
      if (keeps && !keeps_blocks) offer_entries(list, row_scores, first, n, lane);
      if (keeps && keeps_blocks) offer_blocks(list, row_scores, first, n, lane);
      if (a.scores != nullptr && keeps && !keeps_blocks) {
        for (int i = lane; i < min(Shape::keys, n - first); i += 32) {
          a.scores[row * a.scores_stride + first + i] = row_scores[i];
        }
      }
    }
    if (own < min(rows, row_tile) && warp < 8 && (!keeps_blocks || a.p.make_candidates)) {
      finish(list, keeps, keeps_blocks, row, n, active, lane);
    }
  }

  __device__ void finish(BestList& list, bool keeps, bool keeps_blocks, int row, int n, int active, int lane) {
    if (active > 1) {
      if (stretch == 0 && lane == 0 && !keeps_blocks) a.active[row] = keeps ? active : 0;
      if (!keeps) return;
      hand_over(list, keeps_blocks ? a.blocks : a.best, static_cast<int64_t>(row) * a.stretches + stretch, active,
                lane);
      return;
    }
    if (!keeps) return;
    if (keeps_blocks) {
      write_blocks(list, row, n, lane);
    } else {
      write_entries(list, row, lane);
      if (lane == 0 && a.active != nullptr) a.active[row] = 0;
    }
  }
};

// Rows first .. end - 1 are of one sequence.
__device__ inline bool one_sequence(const Rows& rows, int first, int end) {
  const int sequence = rows.sequence_of[first];
  for (int r = first + 1; r < end; ++r) {
    if (rows.sequence_of[r] != sequence) return false;
  }
  return true;
}

// Grid: stretches, tiles of rows. The tiles with most keys, which are the last of a sequence, begin first.
template <int heads, int row_tile>
__global__ void __launch_bounds__(ScoreShape<heads, row_tile>::threads, 1)
    score_tiles(const __grid_constant__ SelectArguments a) {
  extern __shared__ char shared[];
  const int count = *a.p.rows.count;
  const int first = static_cast<int>(gridDim.y - 1 - blockIdx.y) * row_tile;
  if (first >= count || !one_sequence(a.p.rows, first, min(first + row_tile, count))) return;
  ScoreBlock<heads, row_tile> block{.a = a,
                                    .first_row = first,
                                    .rows = min(row_tile, count - first),
                                    .stretch = static_cast<int>(blockIdx.x),
                                    .stretches = static_cast<int>(gridDim.x)};
  block.run(shared);
}

// Grid: stretches, groups of block_rows rows, which the block takes one after the other; without those that are left to
// score_tiles.
template <int heads>
__global__ void __launch_bounds__(ScoreShape<heads, 1>::threads, 1)
    score_rows(const __grid_constant__ SelectArguments a) {
  extern __shared__ char shared[];
  const int count = *a.p.rows.count;
  const int first = static_cast<int>(blockIdx.y) * a.block_rows;
  if (first >= count) return;
  if (a.tile_rows > 0) {
    const int tile = first / a.tile_rows * a.tile_rows;
    if (one_sequence(a.p.rows, tile, min(tile + a.tile_rows, count))) return;
  }
  for (int row = first; row < min(first + a.block_rows, count); ++row) {
    ScoreBlock<heads, 1> block{.a = a,
                               .first_row = row,
                               .rows = 1,
                               .stretch = static_cast<int>(blockIdx.x),
                               .stretches = static_cast<int>(gridDim.x)};
    block.run(shared);
    __syncthreads();
  }
}

template <int heads, int row_tile>
void launch_index_scores(cudaStream_t stream, const SelectArguments& a, int stretches) {
  using Shape = ScoreShape<heads, row_tile>;
  void (*kernel)(SelectArguments) = nullptr;
  if constexpr (row_tile == 1) {
    kernel = score_rows<heads>;
  } else {
    kernel = score_tiles<heads, row_tile>;
  }
  static const cudaError_t prepared =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::shared_bytes(row_tile <= 4));
  GANNET_CUDA_CHECK(prepared);
  const int rows = row_tile == 1 ? a.block_rows : row_tile;
  const dim3 grid(stretches, static_cast<unsigned>((a.p.rows.most + rows - 1) / rows));
  kernel<<<grid, Shape::threads, Shape::shared_bytes(a.p.make_candidates), stream>>>(a);
  GANNET_CUDA_LAUNCHED();
}

}  // namespace gannet::ops::cuda

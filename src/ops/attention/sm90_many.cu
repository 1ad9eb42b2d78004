#include <cooperative_groups.h>

#include <algorithm>

#include "base/check.h"
#include "ops/attention/sm90_keys.cuh"
#include "ops/attention/sm90_variants.h"
#include "ops/attention/sm90_wgmma.cuh"
#include "ops/cuda/launch.cuh"

// A block works for 64 heads of one row after the other, 64 keys at a time. Eight warps load packed keys and decode
// them into one of two tiles, which serves as both operands: keys of the scores and values of the weighted sum. Two
// warpgroups do the products: in the scores each takes half of the tile's keys, in the sum half of the channels.
//
// With two splits the two blocks of a cluster share a row: each takes half of the tiles and, in the end, finishes half
// of the channels, for which the other one hands over its sums.
namespace gannet::ops::cuda {
namespace {

namespace cg = cooperative_groups;

constexpr int kHeads = 64;
constexpr int kBuffers = 2;  // tiles of decoded keys
// Rows whose angles are there at a time: one that is finished, the current one and the next.
constexpr int kAngles = 3;
constexpr int kBlockBytes = 8192;  // 64 rows of 64 channels, the unit of swizzled operands
constexpr int kBlocks = kHeadDim / 64;
constexpr int kGroup = 128;  // threads of a warpgroup
constexpr int kConsumers = 2 * kGroup;
constexpr int kProducers = 2 * kGroup;
constexpr int kProducerWarps = kProducers / 32;
constexpr int kThreads = kConsumers + kProducers;
static_assert(kProducerWarps * kWarpKeys == kTile);
constexpr int kConsumerRegisters = 184, kProducerRegisters = 72;
static_assert(2 * (kConsumerRegisters + kProducerRegisters) <= 65536 / kGroup);

// Named barriers; 0 is the block's.
constexpr int kConsumerBarrier = 1, kProducerBarrier = 2;

struct Shared {
  alignas(1024) std::byte q[kBlocks * kBlockBytes];
  alignas(1024) std::byte keys[kBuffers][kBlocks * kBlockBytes];
  alignas(1024) std::byte weights[kBlockBytes];
  float top[2][kHeads];
  float total[2][kHeads];
  float2 angles[kAngles][kRotated / 2];  // of the block's rows in turn
  const std::byte* addresses[kProducerWarps][32];
  uint64_t q_full, q_empty, key_full[kBuffers], key_empty[kBuffers];
};

// Bytes from the start of an operand of 64 rows.
__device__ int chunk_offset(int row, int chunk) {
  return chunk / 8 * kBlockBytes + row * 128 + (chunk % 8 ^ row % 8) * 16;
}

// Position in the ring of buffers.
struct Ring {
  uint32_t tiles = 0;  // that went through it

  __device__ uint32_t buffer() const { return tiles % kBuffers; }
  __device__ uint32_t parity() const { return tiles / kBuffers % 2; }
};

// --- producers

// A thread's chunks of the queries, for 256 threads: always the same channels, of every fourth head.
template <int kRounds>
struct QueryLoader {
  static constexpr int kChunks = kHeadDim / 8;
  static constexpr int kStep = 2 * kGroup / kChunks;
  static constexpr int kBatch = kHeads / kStep / kRounds;

  const AttentionParams& p;
  int64_t row;
  int first_head, chunk;
  uint4 values[kBatch];

  __device__ QueryLoader(const AttentionParams& params, int64_t r, int thread)
      : p(params), row(r), first_head(thread / kChunks), chunk(thread % kChunks) {}
  __device__ int head(int round, int i) const { return first_head + (round * kBatch + i) * kStep; }
  __device__ void load(int round) {
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int64_t h = min(head(round, i), static_cast<int>(p.heads) - 1);
      values[i] = __ldg(reinterpret_cast<const uint4*>(p.q + (row * p.heads + h) * kHeadDim) + chunk);
    }
  }
  __device__ void store(int round, Shared& shared, const float2* angles) {
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const uint4 prepared = head(round, i) < p.heads ? prepared_query(values[i], chunk, angles) : uint4{};
      *reinterpret_cast<uint4*>(shared.q + chunk_offset(head(round, i), chunk)) = prepared;
    }
  }
};

__device__ void prefetch_queries(const AttentionParams& p, int64_t row, int thread) {
  constexpr int64_t kLine = 128;
  const auto* queries = reinterpret_cast<const std::byte*>(p.q + row * p.heads * kHeadDim);
  for (int64_t at = thread * kLine; at < p.heads * kHeadDim * 2; at += kProducers * kLine) {
    asm volatile("prefetch.global.L2 [%0];\n" ::"l"(queries + at));
  }
}

__device__ void set_angles(const AttentionParams& p, int64_t row, float2* angles, int lane) {
  angles[lane] = angle_of_pair(p.rows.positions[row], p.frequencies[lane]);
}

// Of the block's second row and those behind it.
__device__ void load_next_queries(const AttentionParams& p, int64_t row, Shared& shared, int thread,
                                  uint32_t rows_done) {
  constexpr int kRounds = 4;  // producers have few registers
  QueryLoader<kRounds> queries(p, row, thread);
  queries.load(0);
  sync_threads(kProducerBarrier, kProducers);  // the angles are there
  wait_barrier(&shared.q_empty, (rows_done - 1) % 2);
#pragma unroll 1
  for (int round = 0; round < kRounds; ++round) {
    queries.store(round, shared, shared.angles[rows_done % kAngles]);
    queries.load(min(round + 1, kRounds - 1));
  }
  fence_async_proxy();
  __syncwarp();
  if (thread % 32 == 0) arrive(&shared.q_full);
}

template <bool from_window>
__device__ void produce_tiles(const AttentionParams& p, const RowKeys& keys, int begin, int end, Shared& shared,
                              int warp, int lane, Ring& ring) {
  if (begin >= end) return;
  TileDecoder<from_window> tiles(p, keys, begin, end, warp, lane, shared.addresses[warp]);
  // Where the lane's chunks go in a tile's row 0; in row r of eight they lie r * 128 bytes further, at ^ (r * 16).
  const int first = chunk_offset(0, first_chunk(lane)), second = first ^ 16;
  for (int tile = begin; tile < end; ++tile, ++ring.tiles) {
    const uint32_t buffer = ring.buffer();
    wait_barrier(&shared.key_empty[buffer], ring.parity() ^ 1);
    std::byte* rows = shared.keys[buffer] + warp * kWarpKeys * 128;
    tiles.decode(tile, [&](int i, const uint4(&chunks)[2]) {
      *reinterpret_cast<uint4*>(rows + i * 128 + (first ^ i * 16)) = chunks[0];
      *reinterpret_cast<uint4*>(rows + i * 128 + (second ^ i * 16)) = chunks[1];
    });
    fence_async_proxy();
    __syncwarp();
    if (lane == 0) arrive(&shared.key_full[buffer]);
  }
}

template <int splits>
__device__ void produce(const AttentionParams& p, Shared& shared, int first_row, int row_step, int split) {
  const int thread = static_cast<int>(threadIdx.x) - kConsumers, warp = thread / 32, lane = thread % 32;
  const int count = *p.rows.count;
  uint32_t rows_done = 0;
  Ring ring;
  for (int row = first_row; row < count; row += row_step, ++rows_done) {
    const RowKeys keys = row_keys(p, row);
    const auto [begin, end] = tiles_of_part(keys, split, splits);
    if (rows_done > 0) load_next_queries(p, row, shared, thread, rows_done);
    if (const int next = row + row_step; next < count) {
      prefetch_queries(p, next, thread);
      if (warp == 0) set_angles(p, next, shared.angles[(rows_done + 1) % kAngles], lane);
    }

    produce_tiles<false>(p, keys, begin, min(end, keys.entry_tiles), shared, warp, lane, ring);
    produce_tiles<true>(p, keys, max(begin, keys.entry_tiles), end, shared, warp, lane, ring);
    if constexpr (splits > 1) {
      cg::this_cluster().sync();
      wait_for_readers();
    }
  }
}

// --- consumers

struct Consumer {
  int group, warp, lane;  // warpgroup 0 or 1, warp of the group
  int head;               // the thread's heads are this one and head + 8
};

__device__ float largest_of_quad(float v) {
  v = fmaxf(v, __shfl_xor_sync(~0U, v, 1));
  return fmaxf(v, __shfl_xor_sync(~0U, v, 2));
}
__device__ float sum_of_quad(float v) {
  v += __shfl_xor_sync(~0U, v, 1);
  return v + __shfl_xor_sync(~0U, v, 2);
}

// Running softmax of the thread's two heads; `total` is that of the keys whose scores the thread holds.
struct Softmax {
  float top[2] = {kLowestScore, kLowestScore};
  float total[2] = {};
};

// Sums of the group's 256 channels, in two halves of 128.
using Sums = float[2][64];

// Turns the group's scores into weights in shared memory; returns what the earlier sums are multiplied by. Only the
// first `keys` of the tile's keys count.
__device__ float2 softmax_step(Shared& shared, const Consumer& me, float (&scores)[16], int keys, Softmax& softmax) {
  float top[2] = {softmax.top[0], softmax.top[1]};
  if (keys < kTile) {
    const int first = me.group * 32 + me.lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      if (first + i / 4 * 8 + i % 2 >= keys) scores[i] = -INFINITY;
    }
  }
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    scores[i] *= kScoreScale;
    top[i / 2 % 2] = fmaxf(top[i / 2 % 2], scores[i]);
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    top[h] = largest_of_quad(top[h]);
    if (me.lane % 4 == 0) shared.top[me.group][me.head + 8 * h] = top[h];
  }
  sync_threads(kConsumerBarrier, kConsumers);
  float shrink[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    top[h] = fmaxf(top[h], shared.top[1 - me.group][me.head + 8 * h]);
    shrink[h] = power_of_two(softmax.top[h] - top[h]);
    softmax.top[h] = top[h];
    softmax.total[h] *= shrink[h];
  }
  std::byte* weights = shared.weights + me.head * 128 + me.lane % 4 * 4;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int chunk = (me.group * 4 + j) ^ me.head % 8;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(power_of_two(scores[4 * j + 2 * h] - top[h]),
                                                        power_of_two(scores[4 * j + 2 * h + 1] - top[h]));
      softmax.total[h] += __low2float(pair) + __high2float(pair);
      *reinterpret_cast<__nv_bfloat162*>(weights + h * 8 * 128 + chunk * 16) = pair;
    }
  }
  return {shrink[0], shrink[1]};
}

__device__ void scale_sums(Sums& sums, float2 factors) {
#pragma unroll
  for (int i = 0; i < 128; ++i) sums[i / 64][i % 64] *= i / 2 % 2 == 0 ? factors.x : factors.y;
}

// Scores of the group's 32 keys of a tile.
__device__ void start_scores(const Shared& shared, const Consumer& me, uint32_t buffer, float (&scores)[16]) {
  const uint32_t q = shared_address(shared.q), keys = shared_address(shared.keys[buffer]) + me.group * 32 * 128;
  const uint64_t a = swizzled_operand(q), b = swizzled_operand(keys);
  pin_registers(scores);
  products_begin();
#pragma unroll
  for (int step = 0; step < kHeadDim / 16; ++step) {
    const uint64_t offset = (step / 4 * kBlockBytes + step % 4 * 32) >> 4;
    wgmma_64x32<false>(scores, a + offset, b + offset, step > 0);
  }
  products_commit();
}

// Adds the tile's weighted keys in the group's 256 channels.
__device__ void start_sums(const Shared& shared, const Consumer& me, uint32_t buffer, Sums& sums) {
  const uint32_t values = shared_address(shared.keys[buffer]) + me.group * 4 * kBlockBytes;
  const uint64_t a = swizzled_operand(shared_address(shared.weights));
  const uint64_t b = swizzled_operand(values, kBlockBytes);
  pin_registers(sums[0]);
  pin_registers(sums[1]);
  products_begin();
#pragma unroll
  for (int step = 0; step < kTile / 16; ++step) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      wgmma_64x128<true>(sums[half], a + (step * 32 >> 4), b + ((step * 16 * 128 + half * 2 * kBlockBytes) >> 4), true);
    }
  }
  products_commit();
}

// Rotates back 4 blocks of 8 channels from `pair` on. A lane holds channels t and t + 4 of each, its neighbour t ^ 1
// the other half of both pairs.
template <int first>
__device__ void rotate_back(Sums& sums, const float2* angles, int lane) {
  const int t = lane % 4;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float& mine = sums[(first + j) / 16][4 * ((first + j) % 16) + i];
      const float other = __shfl_xor_sync(~0U, mine, 1);
      const float2 angle = angles[4 * j + t / 2 + i % 2 * 2];
      float a = t % 2 == 0 ? mine : other, b = t % 2 == 0 ? other : mine;
      rotate_pair(a, b, angle.x, -angle.y);
      mine = t % 2 == 0 ? a : b;
    }
  }
}

// Four lanes exchange four words each: lane t gets word t of all, in the order of lanes.
__device__ void transpose_quad(uint32_t (&w)[4], int t) {
  uint32_t low = t % 2 == 0 ? w[1] : w[0], high = t % 2 == 0 ? w[3] : w[2];
  low = __shfl_xor_sync(~0U, low, 1);
  high = __shfl_xor_sync(~0U, high, 1);
  if (t % 2 == 0) {
    w[1] = low;
    w[3] = high;
  } else {
    w[0] = low;
    w[2] = high;
  }
  low = t < 2 ? w[2] : w[0];
  high = t < 2 ? w[3] : w[1];
  low = __shfl_xor_sync(~0U, low, 2);
  high = __shfl_xor_sync(~0U, high, 2);
  if (t < 2) {
    w[2] = low;
    w[3] = high;
  } else {
    w[0] = low;
    w[1] = high;
  }
}

// Writes half of the group's channels; 16-byte stores of 8 channels in their usual order.
__device__ void store_heads(const AttentionParams& p, int64_t row, const Consumer& me, int half,
                            const float (&sums)[64]) {
  const int t = me.lane % 4;
#pragma unroll
  for (int j = 0; j < 16; j += 4) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      uint32_t pairs[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        pairs[k] = pack_channels(sums[4 * (j + k) + 2 * h], sums[4 * (j + k) + 2 * h + 1]);
      }
      transpose_quad(pairs, t);
      const int head = me.head + 8 * h;
      if (head >= p.heads) continue;
      const uint4 chunk = {__byte_perm(pairs[0], pairs[1], 0x5410), __byte_perm(pairs[2], pairs[3], 0x5410),
                           __byte_perm(pairs[0], pairs[1], 0x7632), __byte_perm(pairs[2], pairs[3], 0x7632)};
      __nv_bfloat16* out = p.out + (row * p.heads + head) * kHeadDim + (me.group * 2 + half) * (kHeadDim / 4);
      reinterpret_cast<uint4*>(out)[j + t] = chunk;
    }
  }
}

// The sums of a group's channels, passed from block to block in the threads' order.
template <bool write>
__device__ void pass_sums(std::byte* memory, const Consumer& me, Sums& sums, float2 mine, float2 other) {
  auto* parts = reinterpret_cast<float4*>(memory) + me.warp * 32 + me.lane;
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    float* d = &sums[i / 16][4 * (i % 16)];
    if constexpr (write) {
      parts[i * kGroup] = {d[0], d[1], d[2], d[3]};
    } else {
      const float4 part = parts[i * kGroup];
      d[0] = d[0] * mine.x + part.x * other.x;
      d[1] = d[1] * mine.x + part.y * other.x;
      d[2] = d[2] * mine.y + part.z * other.y;
      d[3] = d[3] * mine.y + part.w * other.y;
    }
  }
}

// Each of two blocks finishes the channels of one group; the other group hands its sums over.
__device__ void merge_parts(Shared& shared, const Consumer& me, int split, float (&total)[2], Softmax& softmax,
                            Sums& sums) {
  const cg::cluster_group cluster = cg::this_cluster();
  if (me.group != split) {
    pass_sums<true>(shared.keys[0], me, sums, {}, {});
#pragma unroll
    for (int h = 0; h < 2; ++h) {  // both groups have the same one
      if (me.lane % 4 == 0) shared.top[0][me.head + 8 * h] = softmax.top[h];
    }
  }
  cluster.sync();
  if (me.group == split) {
    Shared& peer = *cluster.map_shared_rank(&shared, 1 - split);
    float mine[2], other[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int head = me.head + 8 * h;
      const float peer_top = peer.top[0][head], top = fmaxf(softmax.top[h], peer_top);
      mine[h] = power_of_two(softmax.top[h] - top);
      other[h] = power_of_two(peer_top - top);
      total[h] = total[h] * mine[h] + (peer.total[0][head] + peer.total[1][head]) * other[h];
      softmax.top[h] = top;
    }
    pass_sums<false>(peer.keys[0], me, sums, {mine[0], mine[1]}, {other[0], other[1]});
  }
  wait_for_readers();
}

template <int splits>
__device__ void finish_row(const AttentionParams& p, int64_t row, Shared& shared, const float2* angles,
                           const Consumer& me, Softmax& softmax, Sums& sums, int split) {
  float total[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    total[h] = sum_of_quad(softmax.total[h]);
    if (me.lane % 4 == 0) shared.total[me.group][me.head + 8 * h] = total[h];
  }
  sync_threads(kConsumerBarrier, kConsumers);
#pragma unroll
  for (int h = 0; h < 2; ++h) total[h] = shared.total[0][me.head + 8 * h] + shared.total[1][me.head + 8 * h];
  if constexpr (splits > 1) {
    merge_parts(shared, me, split, total, softmax, sums);
    if (me.group != split) return;
  }
  float factor[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int head = me.head + 8 * h;
    const float sink = head < p.heads ? sink_weight(p.sink[head], softmax.top[h]) : 1.0F;
    total[h] += sink;
    factor[h] = total[h] != 0 ? __fdividef(kKeyScale, total[h]) : 0.0F;  // 0: no key, and a sink of -inf
  }
  scale_sums(sums, {factor[0], factor[1]});
  if (me.group == 1) rotate_back<24>(sums, angles, me.lane);
#pragma unroll
  for (int half = 0; half < 2; ++half) store_heads(p, row, me, half, sums[half]);
}

// The consumers have nothing else to do before the first keys are there.
__device__ void load_first_queries(const AttentionParams& p, int64_t row, Shared& shared, int thread) {
  QueryLoader<1> queries(p, row, thread);
  queries.load(0);
  if (thread < 32) set_angles(p, row, shared.angles[0], thread);
  sync_threads(kConsumerBarrier, kConsumers);
  queries.store(0, shared, shared.angles[0]);
  fence_async_proxy();
  sync_threads(kConsumerBarrier, kConsumers);
}

template <int splits>
__device__ void consume(const AttentionParams& p, Shared& shared, int first_row, int row_step, int split) {
  const int thread = static_cast<int>(threadIdx.x);
  // The same for all lanes, which the compiler cannot see.
  Consumer me{__shfl_sync(~0U, thread / kGroup, 0), thread % kGroup / 32, thread % 32, 0};
  me.head = me.warp * 16 + me.lane / 4;
  const int count = *p.rows.count;
  load_first_queries(p, first_row, shared, thread);
  uint32_t rows_done = 0;
  Ring ring;
  for (int row = first_row; row < count; row += row_step, ++rows_done) {
    const RowKeys keys = row_keys(p, row);
    const auto [begin, end] = tiles_of_part(keys, split, splits);
    Softmax softmax;
    Sums sums;
#pragma unroll
    for (int i = 0; i < 128; ++i) sums[i / 64][i % 64] = 0;
    if (rows_done > 0) wait_barrier(&shared.q_full, (rows_done - 1) % 2);
    if (begin >= end && me.lane == 0) arrive(&shared.q_empty);
    for (int tile = begin; tile < end; ++tile, ++ring.tiles) {
      const uint32_t buffer = ring.buffer();
      wait_barrier(&shared.key_full[buffer], ring.parity());
      float scores[16] = {};
      start_scores(shared, me, buffer, scores);
      products_wait<0>();
      pin_registers(scores);
      if (tile + 1 == end && me.lane == 0) arrive(&shared.q_empty);
      const float2 shrink = softmax_step(shared, me, scores, keys.tile_keys(tile), softmax);
      if (__any_sync(~0U, shrink.x != 1 || shrink.y != 1)) scale_sums(sums, shrink);
      fence_async_proxy();
      sync_threads(kConsumerBarrier, kConsumers);
      start_sums(shared, me, buffer, sums);
      products_wait<0>();
      pin_registers(sums[0]);
      pin_registers(sums[1]);
      if (me.lane == 0) arrive(&shared.key_empty[buffer]);
    }
    finish_row<splits>(p, row, shared, shared.angles[rows_done % kAngles], me, softmax, sums, split);
  }
}

template <int splits>
__global__ void __launch_bounds__(kThreads, 1) attention_many_kernel(const __grid_constant__ AttentionParams p) {
  extern __shared__ __align__(1024) std::byte memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int first_row = static_cast<int>(blockIdx.x) / splits, row_step = static_cast<int>(gridDim.x) / splits;
  const int split = static_cast<int>(blockIdx.x) % splits;
  if (first_row >= *p.rows.count) return;
  if (threadIdx.x == 0) {
    init_barrier(&shared.q_full, kProducerWarps);
    init_barrier(&shared.q_empty, kConsumers / 32);
    for (int i = 0; i < kBuffers; ++i) {
      init_barrier(&shared.key_full[i], kProducerWarps);
      init_barrier(&shared.key_empty[i], kConsumers / 32);
    }
    fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x >= kConsumers) {
    give_registers<kProducerRegisters>();
    produce<splits>(p, shared, first_row, row_step, split);
  } else {
    take_registers<kConsumerRegisters>();
    consume<splits>(p, shared, first_row, row_step, split);
  }
}

template <int splits>
void launch(cudaStream_t stream, const AttentionParams& p, int64_t blocks) {
  static const bool prepared = [] {
    GANNET_CUDA_CHECK(cudaFuncSetAttribute(attention_many_kernel<splits>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           sizeof(Shared)));
    return true;
  }();
  GANNET_CHECK(prepared);
  launch_clusters(stream, attention_many_kernel<splits>,
                  {.grid = dim3(static_cast<unsigned>(blocks)),
                   .threads = kThreads,
                   .shared_bytes = sizeof(Shared),
                   .cluster = splits},
                  p);
}

}  // namespace

void attention_many(cudaStream_t stream, const AttentionParams& p, int splits) {
  GANNET_CHECK(p.heads <= kHeads);
  if (splits == 2) {
    launch<2>(stream, p, 2 * p.rows.most);
  } else {
    launch<1>(stream, p, std::min<int64_t>(p.rows.most, kMultiprocessors));
  }
}

}  // namespace gannet::ops::cuda

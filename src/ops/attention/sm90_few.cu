#include <cooperative_groups.h>

#include "base/check.h"
#include "ops/attention/sm90_keys.cuh"
#include "ops/attention/sm90_variants.h"
#include "ops/cuda/launch.cuh"

// A block works for 16 heads of one row on a part of the row's keys, 64 at a time. Its 8 warps share the channels: each
// owns 64 of them, in the scores (whose partial sums are added through shared memory) as in the weighted sum of keys.
// The blocks of a cluster merge their parts through distributed shared memory, so that few rows fill the card with one
// launch and without a trip through global memory.
namespace gannet::ops::cuda {
namespace {

namespace cg = cooperative_groups;

constexpr int kHeads = 16;
constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kWarpDim = kHeadDim / kWarps;
static_assert(kWarps * kWarpKeys == kTile);
constexpr int kScorePitch = kTile + 8;    // floats; keeps rows in different banks
constexpr int kPartPitch = kHeadDim + 8;  // floats
constexpr int kWeightPitch = kTile + 8;   // bf16

struct Shared {
  // Decoded keys [kTile][kHeadDim] with 16-byte chunk c of key j at c ^ (j % 8); in the end the block's part of the
  // result, fp32 [kHeads][kPartPitch] in the usual order.
  alignas(128) std::byte keys[kTile * kHeadDim * 2];
  // Partial scores of each warp; before, its channels of the queries.
  alignas(128) float scores[kWarps][kHeads][kScorePitch];
  alignas(16) __nv_bfloat16 weights[kHeads][kWeightPitch];
  float shrink[kHeads];  // what the new largest score makes of the earlier sums
  float top[kHeads];
  float total[kHeads];
  float2 angles[kRotated / 2];
  const std::byte* addresses[kWarps][32];
};
static_assert(sizeof(float) * kHeads * kPartPitch <= sizeof(Shared::keys));
static_assert(kHeads * kWarpDim * 2 <= sizeof(Shared::scores[0]));

__device__ std::byte* key_chunk(Shared& shared, int key, int chunk) {
  return shared.keys + key * kHeadDim * 2 + (chunk ^ (key % 8)) * 16;
}

// The warp's 64 channels of all heads as operands; heads that do not exist are zero.
__device__ void load_queries(const AttentionParams& p, int64_t row, int first_head, Shared& shared, int warp, int lane,
                             uint32_t q[kWarpDim / 16][4]) {
  constexpr int kChunks = kWarpDim / 8, kRounds = kHeads * kChunks / 32;
  auto* slice = reinterpret_cast<std::byte*>(shared.scores[warp]);
  const auto place = [&](int head, int chunk) { return slice + head * kWarpDim * 2 + (chunk ^ (head % 8)) * 16; };
  const int chunk = lane % kChunks;
  uint4 values[kRounds];
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    const int64_t head = min(first_head + i * 4 + lane / kChunks, static_cast<int>(p.heads) - 1);
    values[i] =
        __ldg(reinterpret_cast<const uint4*>(p.q + (row * p.heads + head) * kHeadDim + warp * kWarpDim) + chunk);
  }
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    const int head = i * 4 + lane / kChunks;
    const bool exists = first_head + head < p.heads;
    *reinterpret_cast<uint4*>(place(head, chunk)) =
        exists ? prepared_query(values[i], warp * kChunks + chunk, shared.angles) : uint4{};
  }
  __syncwarp();
#pragma unroll
  for (int step = 0; step < kWarpDim / 16; ++step) load_matrices(q[step], place(lane % 16, 2 * step + lane / 16));
}

// Partial scores over the warp's channels, of 32 keys at a time for the sake of registers.
__device__ void add_scores(Shared& shared, int warp, int lane, const uint32_t q[kWarpDim / 16][4]) {
#pragma unroll 1
  for (int first = 0; first < kTile; first += 32) {
    float sums[4][4] = {};
#pragma unroll
    for (int step = 0; step < kWarpDim / 16; ++step) {
      const int chunk = warp * (kWarpDim / 8) + 2 * step + lane / 8 % 2;
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        uint32_t k[4];
        load_matrices(k, key_chunk(shared, first + 16 * n + lane / 16 * 8 + lane % 8, chunk));
        mma_16x8x16(sums[2 * n], q[step], k[0], k[1]);
        mma_16x8x16(sums[2 * n + 1], q[step], k[2], k[3]);
      }
    }
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      float* at = &shared.scores[warp][lane / 4][first + 8 * n + lane % 4 * 2];
      *reinterpret_cast<float2*>(at) = {sums[n][0], sums[n][1]};
      *reinterpret_cast<float2*>(at + 8 * kScorePitch) = {sums[n][2], sums[n][3]};
    }
  }
}

// One step of the running softmax of a head, whose keys are spread over 16 lanes; `total` is that of the lane's keys.
// Only the first `keys` of the tile's keys count.
__device__ void softmax_step(Shared& shared, int keys, float& top, float& total) {
  constexpr int kLanes = kThreads / kHeads;
  const int head = static_cast<int>(threadIdx.x) / kLanes, lane = static_cast<int>(threadIdx.x) % kLanes;
  float scores[kTile / kLanes] = {};
  float new_top = top;
#pragma unroll
  for (int i = 0; i < kTile / kLanes; ++i) {
#pragma unroll
    for (int w = 0; w < kWarps; ++w) scores[i] += shared.scores[w][head][i * kLanes + lane];
    scores[i] = i * kLanes + lane < keys ? scores[i] * kScoreScale : -INFINITY;
    new_top = fmaxf(new_top, scores[i]);
  }
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) new_top = fmaxf(new_top, __shfl_xor_sync(~0U, new_top, step));
  const float shrink = power_of_two(top - new_top);
  total *= shrink;
  top = new_top;
#pragma unroll
  for (int i = 0; i < kTile / kLanes; ++i) {
    const __nv_bfloat16 weight = __float2bfloat16(power_of_two(scores[i] - new_top));
    total += __bfloat162float(weight);
    shared.weights[head][i * kLanes + lane] = weight;
  }
  if (lane == 0) shared.shrink[head] = shrink;
}

// Adds the tile's weighted keys in the warp's channels.
__device__ void add_values(Shared& shared, int warp, int lane, float sums[kWarpDim / 8][4]) {
  const float low = shared.shrink[lane / 4], high = shared.shrink[lane / 4 + 8];
#pragma unroll
  for (int n = 0; n < kWarpDim / 8; ++n) {
    sums[n][0] *= low;
    sums[n][1] *= low;
    sums[n][2] *= high;
    sums[n][3] *= high;
  }
#pragma unroll
  for (int step = 0; step < kTile / 16; ++step) {
    uint32_t weights[4];
    load_matrices(weights, &shared.weights[lane % 16][16 * step + lane / 16 * 8]);
#pragma unroll
    for (int n = 0; n < kWarpDim / 16; ++n) {
      uint32_t k[4];
      const int chunk = warp * (kWarpDim / 8) + 2 * n + lane / 16;
      load_matrices_transposed(k, key_chunk(shared, 16 * step + lane % 16, chunk));
      mma_16x8x16(sums[2 * n], weights, k[0], k[1]);
      mma_16x8x16(sums[2 * n + 1], weights, k[2], k[3]);
    }
  }
}

// The block's part of the result, in the usual order of channels.
__device__ void store_part(Shared& shared, int warp, int lane, const float sums[kWarpDim / 8][4]) {
  auto* part = reinterpret_cast<float*>(shared.keys);
#pragma unroll
  for (int n = 0; n < kWarpDim / 8; ++n) {
    float* at = part + lane / 4 * kPartPitch + warp * kWarpDim + 8 * n + lane % 4;
    at[0] = sums[n][0];
    at[4] = sums[n][1];
    at[8 * kPartPitch] = sums[n][2];
    at[8 * kPartPitch + 4] = sums[n][3];
  }
}

// Merges the parts of the cluster's blocks in their order; each block does so for its share of the channels.
template <int splits>
__device__ void merge_parts(const AttentionParams& p, int64_t row, int first_head, Shared& shared) {
  const cg::cluster_group cluster = cg::this_cluster();
  constexpr int kChannels = kHeadDim / splits, kHeadThreads = kChannels / 4;
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < kHeads * kHeadThreads; i += kThreads) {
    const int head = i / kHeadThreads;
    if (first_head + head >= p.heads) break;
    const int c = static_cast<int>(cluster.block_rank()) * kChannels + i % kHeadThreads * 4;
    float tops[splits], totals[splits];
    float4 parts[splits];
#pragma unroll
    for (int b = 0; b < splits; ++b) {
      const Shared& other = *cluster.map_shared_rank(&shared, b);
      tops[b] = other.top[head];
      totals[b] = other.total[head];
      parts[b] = reinterpret_cast<const float4*>(other.keys)[(head * kPartPitch + c) / 4];
    }
    float top = kLowestScore;
#pragma unroll
    for (int b = 0; b < splits; ++b) top = fmaxf(top, tops[b]);
    float total = sink_weight(p.sink[first_head + head], top);
    float4 sum{};
#pragma unroll
    for (int b = 0; b < splits; ++b) {
      const float weight = power_of_two(tops[b] - top);
      total += totals[b] * weight;
      sum.x += parts[b].x * weight;
      sum.y += parts[b].y * weight;
      sum.z += parts[b].z * weight;
      sum.w += parts[b].w * weight;
    }
    const float factor = total != 0 ? __fdividef(kKeyScale, total) : 0.0F;  // 0: no key, and a sink of -inf
    float4 v = {sum.x * factor, sum.y * factor, sum.z * factor, sum.w * factor};
    if (const int pair = (c - (kHeadDim - kRotated)) / 2; c >= kHeadDim - kRotated) {
      rotate_pair(v.x, v.y, shared.angles[pair].x, -shared.angles[pair].y);
      rotate_pair(v.z, v.w, shared.angles[pair + 1].x, -shared.angles[pair + 1].y);
    }
    auto* out = reinterpret_cast<__nv_bfloat162*>(p.out + (row * p.heads + first_head + head) * kHeadDim + c);
    out[0] = __floats2bfloat162_rn(v.x, v.y);
    out[1] = __floats2bfloat162_rn(v.z, v.w);
  }
}

// What a block knows of its part of a row.
struct Progress {
  uint32_t q[kWarpDim / 16][4];
  float sums[kWarpDim / 8][4];
  float top, total;  // of a head, 16 threads each
};

template <bool from_window>
__device__ void add_tiles(const RowKeys& keys, int begin, int end, TileDecoder<from_window>& tiles, Shared& shared,
                          int warp, int lane, Progress& progress) {
  const int first = first_chunk(lane);
  for (int tile = begin; tile < end; ++tile) {
    tiles.decode(tile, [&](int i, const uint4(&chunks)[2]) {
      *reinterpret_cast<uint4*>(key_chunk(shared, warp * kWarpKeys + i, first)) = chunks[0];
      *reinterpret_cast<uint4*>(key_chunk(shared, warp * kWarpKeys + i, first ^ 1)) = chunks[1];
    });
    __syncthreads();
    add_scores(shared, warp, lane, progress.q);
    __syncthreads();
    softmax_step(shared, keys.tile_keys(tile), progress.top, progress.total);
    __syncthreads();
    add_values(shared, warp, lane, progress.sums);
    __syncthreads();
  }
}

template <int splits>
__global__ void __launch_bounds__(kThreads, splits >= 4 ? 1 : 2)
    attention_few_kernel(const __grid_constant__ AttentionParams p) {
  extern __shared__ __align__(128) std::byte memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int64_t row = blockIdx.z;
  if (row >= *p.rows.count) return;
  const int first_head = static_cast<int>(blockIdx.y) * kHeads;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const RowKeys keys = row_keys(p, row);
  const auto [begin, end] = tiles_of_part(keys, static_cast<int>(blockIdx.x), splits);

  Progress progress{.top = kLowestScore};
  const auto prepare = [&] {
    if (warp == kWarps - 1) {  // the rotated channels are those of the last warp
      shared.angles[lane] = angle_of_pair(keys.position, p.frequencies[lane]);
      __syncwarp();
    }
    load_queries(p, row, first_head, shared, warp, lane, progress.q);
  };
  const int entries_end = min(end, keys.entry_tiles), window_begin = max(begin, keys.entry_tiles);
  if (begin < entries_end) {
    TileDecoder<false> tiles(p, keys, begin, entries_end, warp, lane, shared.addresses[warp]);
    prepare();
    add_tiles(keys, begin, entries_end, tiles, shared, warp, lane, progress);
  }
  if (window_begin < end) {
    TileDecoder<true> tiles(p, keys, window_begin, end, warp, lane, shared.addresses[warp]);
    if (begin >= entries_end) prepare();
    add_tiles(keys, window_begin, end, tiles, shared, warp, lane, progress);
  }
  if (begin >= end && warp == kWarps - 1) shared.angles[lane] = angle_of_pair(keys.position, p.frequencies[lane]);

  auto& [q, sums, top, total] = progress;
  store_part(shared, warp, lane, sums);
#pragma unroll
  for (int step = kThreads / kHeads / 2; step > 0; step /= 2) total += __shfl_xor_sync(~0U, total, step);
  if (constexpr int kLanes = kThreads / kHeads; threadIdx.x % kLanes == 0) {
    shared.top[threadIdx.x / kLanes] = top;
    shared.total[threadIdx.x / kLanes] = total;
  }
  cg::this_cluster().sync();
  merge_parts<splits>(p, row, first_head, shared);
  wait_for_readers();
}

template <int splits>
void launch(cudaStream_t stream, const AttentionParams& p) {
  static const bool prepared = [] {
    const auto kernel = attention_few_kernel<splits>;
    GANNET_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared)));
    GANNET_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    return true;
  }();
  GANNET_CHECK(prepared && p.rows.most <= 65535);
  const auto head_tiles = static_cast<unsigned>((p.heads + kHeads - 1) / kHeads);
  launch_clusters(stream, attention_few_kernel<splits>,
                  {.grid = dim3(splits, head_tiles, static_cast<unsigned>(p.rows.most)),
                   .threads = kThreads,
                   .shared_bytes = sizeof(Shared),
                   .cluster = splits},
                  p);
}

}  // namespace

void attention_few(cudaStream_t stream, const AttentionParams& p, int splits) {
  switch (splits) {
    case 1:
      return launch<1>(stream, p);
    case 2:
      return launch<2>(stream, p);
    case 4:
      return launch<4>(stream, p);
    case 8:
      return launch<8>(stream, p);
    default:
      return launch<16>(stream, p);
  }
}

}  // namespace gannet::ops::cuda

#include <cooperative_groups.h>

#include "base/check.h"
#include "ops/attention/sm90_keys.cuh"
#include "ops/attention/sm90_variants.h"
#include "ops/cuda/check.h"

// A block works for 16 heads of one row on a part of the row's keys, 32 at a time. Its 8 warps share the channels: each
// owns 64 of them, in the scores (whose partial sums are added through shared memory) as in the weighted sum of keys.
// The blocks of a cluster merge their parts through distributed shared memory, so that few rows fill the card with one
// launch and without a trip through global memory.
namespace gannet::ops::cuda {
namespace {

namespace cg = cooperative_groups;

constexpr int kHeads = 16;
constexpr int kTile = 32;
constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kWarpDim = kHeadDim / kWarps;
constexpr int kWarpKeys = kTile / kWarps;  // that a warp decodes
constexpr int kScorePitch = kTile + 8;     // floats; keeps rows in different banks
constexpr int kWeightPitch = kTile + 8;    // bf16
constexpr int kAddressTiles = 32 / kWarpKeys;

struct Shared {
  // Decoded keys [kTile][kHeadDim] with 16-byte chunk c of key j at c ^ (j % 8); in the end the block's part of the
  // result, fp32 [kHeads][kHeadDim] in the usual order.
  alignas(128) std::byte keys[kTile * kHeadDim * 2];
  // Partial scores of each warp; before, its channels of the queries.
  alignas(128) float scores[kWarps][kHeads][kScorePitch];
  alignas(16) __nv_bfloat16 weights[kHeads][kWeightPitch];
  float shrink[kHeads];  // what the new largest score makes of the earlier sums
  float top[kHeads];
  float total[kHeads];
  float2 angles[kRotated / 2];
};
static_assert(sizeof(float) * kHeads * kHeadDim <= sizeof(Shared::keys));
static_assert(kHeads * kWarpDim * 2 <= sizeof(Shared::scores[0]));

__device__ std::byte* key_chunk(Shared& shared, int key, int chunk) {
  return shared.keys + key * kHeadDim * 2 + (chunk ^ (key % 8)) * 16;
}

// The warp's 64 channels of all heads as operands; heads that do not exist are zero.
__device__ void load_queries(const AttentionParams& p, int64_t row, int first_head, Shared& shared, int warp, int lane,
                             uint32_t q[kWarpDim / 16][4]) {
  constexpr int kChunks = kWarpDim / 8;
  auto* slice = reinterpret_cast<std::byte*>(shared.scores[warp]);
  const auto place = [&](int head, int chunk) { return slice + head * kWarpDim * 2 + (chunk ^ (head % 8)) * 16; };
#pragma unroll
  for (int i = lane; i < kHeads * kChunks; i += 32) {
    const int head = i / kChunks, chunk = i % kChunks;
    uint4 values{};
    if (first_head + head < p.heads) {
      values = query_chunk(p.q + (row * p.heads + first_head + head) * kHeadDim, warp * kChunks + chunk, shared.angles);
    }
    *reinterpret_cast<uint4*>(place(head, chunk)) = values;
  }
  __syncwarp();
#pragma unroll
  for (int step = 0; step < kWarpDim / 16; ++step) load_matrices(q[step], place(lane % 16, 2 * step + lane / 16));
}

// Partial scores over the warp's channels.
__device__ void add_scores(Shared& shared, int warp, int lane, const uint32_t q[kWarpDim / 16][4]) {
  float sums[kTile / 8][4] = {};
#pragma unroll
  for (int step = 0; step < kWarpDim / 16; ++step) {
    const int chunk = warp * (kWarpDim / 8) + 2 * step + lane / 8 % 2;
#pragma unroll
    for (int n = 0; n < kTile / 16; ++n) {
      uint32_t k[4];
      load_matrices(k, key_chunk(shared, 16 * n + lane / 16 * 8 + lane % 8, chunk));
      mma_16x8x16(sums[2 * n], q[step], k[0], k[1]);
      mma_16x8x16(sums[2 * n + 1], q[step], k[2], k[3]);
    }
  }
#pragma unroll
  for (int n = 0; n < kTile / 8; ++n) {
    float* at = &shared.scores[warp][lane / 4][8 * n + lane % 4 * 2];
    *reinterpret_cast<float2*>(at) = {sums[n][0], sums[n][1]};
    *reinterpret_cast<float2*>(at + 8 * kScorePitch) = {sums[n][2], sums[n][3]};
  }
}

// One step of the running softmax of a head: the warp's lanes are the tile's keys.
__device__ void softmax_step(Shared& shared, int head, int lane, bool valid, float& top, float& total) {
  float score = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) score += shared.scores[w][head][lane];
  score = valid ? score * kScoreScale : -INFINITY;
  float new_top = fmaxf(score, top);
  for (int step = 16; step > 0; step /= 2) new_top = fmaxf(new_top, __shfl_xor_sync(~0U, new_top, step));
  const __nv_bfloat16 weight = __float2bfloat16(exp2f(score - new_top));
  float sum = __bfloat162float(weight);
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0U, sum, step);
  const float shrink = exp2f(top - new_top);
  total = total * shrink + sum;
  top = new_top;
  shared.weights[head][lane] = weight;
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
    float* at = part + lane / 4 * kHeadDim + warp * kWarpDim + 8 * n + lane % 4;
    at[0] = sums[n][0];
    at[4] = sums[n][1];
    at[8 * kHeadDim] = sums[n][2];
    at[8 * kHeadDim + 4] = sums[n][3];
  }
}

// Merges the parts of the cluster's blocks in their order; each block does so for its share of the channels.
__device__ void merge_parts(const AttentionParams& p, int64_t row, int first_head, bool any_key, Shared& shared) {
  const cg::cluster_group cluster = cg::this_cluster();
  const auto blocks = static_cast<int>(cluster.num_blocks());
  const int channels = kHeadDim / blocks, threads_of_head = channels / 4;
  for (int i = static_cast<int>(threadIdx.x); i < kHeads * threads_of_head; i += kThreads) {
    const int head = i / threads_of_head;
    if (first_head + head >= p.heads) return;
    const int c = static_cast<int>(cluster.block_rank()) * channels + i % threads_of_head * 4;
    float top = kLowestScore;
    for (int b = 0; b < blocks; ++b) top = fmaxf(top, *cluster.map_shared_rank(&shared.top[head], b));
    float total = sink_weight(p.sink[first_head + head], top);
    float4 sum{};
    for (int b = 0; b < blocks; ++b) {
      const Shared& other = *cluster.map_shared_rank(&shared, b);
      const float weight = exp2f(other.top[head] - top);
      const float4 part = reinterpret_cast<const float4*>(other.keys)[(head * kHeadDim + c) / 4];
      total += other.total[head] * weight;
      sum.x += part.x * weight;
      sum.y += part.y * weight;
      sum.z += part.z * weight;
      sum.w += part.w * weight;
    }
    const float factor = any_key ? kKeyScale / total : 0.0F;
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

__global__ void __launch_bounds__(kThreads, 2) attention_few_kernel(const __grid_constant__ AttentionParams p) {
  extern __shared__ __align__(128) std::byte memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int64_t row = blockIdx.z;
  if (row >= *p.rows.count) return;
  const int splits = static_cast<int>(gridDim.x), split = static_cast<int>(blockIdx.x);
  const int first_head = static_cast<int>(blockIdx.y) * kHeads;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;

  const RowKeys keys = row_keys(p, row);
  const int split_keys = ((keys.count + splits - 1) / splits + 7) / 8 * 8;
  const int begin = min(split * split_keys, keys.count), end = min(begin + split_keys, keys.count);

  // Lane l keeps the address of the warp's key l % 4 in tile l / 4 of the next 8 tiles.
  const std::byte* address = nullptr;
  const auto find_addresses = [&](int first) {
    const int j = first + lane / kWarpKeys * kTile + warp * kWarpKeys + lane % kWarpKeys;
    if (j < end) address = key_address(p, keys, j);
  };
  PackedKey packed[kWarpKeys];
  const auto load_tile = [&](int first) {
    const int tile = (first - begin) / kTile % kAddressTiles;
    if (tile == 0) find_addresses(first);
#pragma unroll
    for (int i = 0; i < kWarpKeys; ++i) {
      const int j = first + warp * kWarpKeys + i;
      const auto bits = __shfl_sync(~0U, reinterpret_cast<uint64_t>(address), tile * kWarpKeys + i);
      packed[i] = {};
      if (j < end) packed[i] = load_key(reinterpret_cast<const std::byte*>(bits), j < keys.window_keys, lane);
    }
  };
  if (begin < end) load_tile(begin);

  if (warp == kWarps - 1) {  // the rotated channels are those of the last warp
    shared.angles[lane] = angle_of_pair(keys.position, p.frequencies[lane]);
    __syncwarp();
  }
  uint32_t q[kWarpDim / 16][4];
  load_queries(p, row, first_head, shared, warp, lane, q);

  float sums[kWarpDim / 8][4] = {};
  float top[2] = {kLowestScore, kLowestScore}, total[2] = {};
  for (int first = begin; first < end; first += kTile) {
#pragma unroll
    for (int i = 0; i < kWarpKeys; ++i) {
      const int key = warp * kWarpKeys + i;
      uint4 chunks[2];
      decode_key(packed[i], first + key < keys.window_keys, chunks);
      // Half of the lanes store their chunks in the other order: otherwise four lanes would meet in each bank.
      const bool swapped = lane / 4 % 2 != 0;
      const uint4 first_chunk = swapped ? chunks[1] : chunks[0], second_chunk = swapped ? chunks[0] : chunks[1];
      *reinterpret_cast<uint4*>(key_chunk(shared, key, 2 * lane + (swapped ? 1 : 0))) = first_chunk;
      *reinterpret_cast<uint4*>(key_chunk(shared, key, 2 * lane + (swapped ? 0 : 1))) = second_chunk;
    }
    if (first + kTile < end) load_tile(first + kTile);
    __syncthreads();
    add_scores(shared, warp, lane, q);
    __syncthreads();
#pragma unroll
    for (int h = 0; h < 2; ++h) softmax_step(shared, 2 * warp + h, lane, first + lane < end, top[h], total[h]);
    __syncthreads();
    add_values(shared, warp, lane, sums);
    __syncthreads();
  }
  store_part(shared, warp, lane, sums);
  if (lane == 0) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      shared.top[2 * warp + h] = top[h];
      shared.total[2 * warp + h] = total[h];
    }
  }
  cg::this_cluster().sync();
  merge_parts(p, row, first_head, keys.count > 0, shared);
  cg::this_cluster().sync();  // nobody leaves while others read its memory
}

}  // namespace

void attention_few(cudaStream_t stream, const AttentionParams& p, int splits) {
  static const bool prepared = [] {
    GANNET_CUDA_CHECK(
        cudaFuncSetAttribute(attention_few_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared)));
    GANNET_CUDA_CHECK(cudaFuncSetAttribute(attention_few_kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    return true;
  }();
  GANNET_CHECK(prepared && p.rows.most <= 65535);
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {static_cast<unsigned>(splits), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(splits), static_cast<unsigned>((p.heads + kHeads - 1) / kHeads),
                        static_cast<unsigned>(p.rows.most));
  config.blockDim = kThreads;
  config.dynamicSmemBytes = sizeof(Shared);
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  GANNET_CUDA_CHECK(cudaLaunchKernelEx(&config, attention_few_kernel, p));
}

}  // namespace gannet::ops::cuda

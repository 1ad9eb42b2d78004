#include <cooperative_groups.h>

#include "base/check.h"
#include "ops/cuda/launch.cuh"
#include "ops/hyper_apply/sm90_row.cuh"

namespace gannet::ops::cuda {
namespace apply {
namespace {

namespace cg = cooperative_groups;

constexpr int kMaxCluster = 8;
constexpr int kMaxVectors = 2;    // of a thread
constexpr int kMaxThreads = 640;  // of a block; leaves the registers that let two blocks of hidden 5120 run together
constexpr int kMaxWarps = kMaxThreads / 32;

// Six parts are the released model's: their number is known to the compiler, so that all are read at once.
enum class Source { none, y, parts, six_parts };

// One thread's vectors: channels 8 (first + v stride) .. of a row.
struct Slice {
  int first = 0;
  int end = 0;
  int stride = 0;
  __device__ int at(int v) const { return first + v * stride; }
  __device__ bool has(int v) const { return at(v) < end; }
};

template <Source source>
__device__ Coefficients load_coefficients(const HyperApplyParams& p, int64_t row) {
  Coefficients c{};
  if (p.norm != nullptr) load_four(p.pre + row * kStreams, c.pre);
  if constexpr (source != Source::none) {
    load_four(p.post + row * kStreams, c.post);
    for (int j = 0; j < kStreams; ++j) load_four(p.mix + (row * kStreams + j) * kStreams, c.mix + j * kStreams);
  }
  return c;
}

__device__ void load_part(const float4* from, float4 part[2]) {
  part[0] = __ldcg(from);
  part[1] = __ldcg(from + 1);
}
__device__ void add_part(const float4 part[2], float4 sum[2]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    sum[i].x += part[i].x, sum[i].y += part[i].y, sum[i].z += part[i].z, sum[i].w += part[i].w;
  }
}

// The sublayer's output for one vector.
template <Source source>
__device__ uint4 load_output(const HyperApplyParams& p, int64_t row, int vector) {
  const int64_t at = row * p.hidden + vector * kVectorChannels;
  if constexpr (source == Source::y) return load_vector(p.y + at);
  const auto* shared = reinterpret_cast<const float4*>(p.shared + at);
  const auto* part = reinterpret_cast<const float4*>(p.parts + row * p.top_k * p.hidden + vector * kVectorChannels);
  float4 sum[2] = {__ldcg(shared), __ldcg(shared + 1)};
  if constexpr (source == Source::six_parts) {
    float4 parts[6][2];
#pragma unroll
    for (int e = 0; e < 6; ++e) load_part(part + e * (p.hidden / 4), parts[e]);
#pragma unroll
    for (int e = 0; e < 6; ++e) add_part(parts[e], sum);
  } else {
    for (int64_t e = 0; e < p.top_k; ++e) {
      float4 one[2];
      load_part(part + e * (p.hidden / 4), one);
      add_part(one, sum);
    }
  }
  return make_uint4(pack_channels(sum[0].x, sum[0].y), pack_channels(sum[0].z, sum[0].w),
                    pack_channels(sum[1].x, sum[1].y), pack_channels(sum[1].z, sum[1].w));
}

// Adds up every thread's value over the cluster, in an order that the cluster's shape fixes.
__device__ float cluster_sum(cg::cluster_group& cluster, float value) {
  __shared__ float sums[kMaxCluster * kMaxWarps];
  const int warps = static_cast<int>(blockDim.x / 32);
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int blocks = static_cast<int>(cluster.num_blocks());
  value = warp_sum(value);
  if (blocks == 1) {
    if (lane == 0) sums[warp] = value;
    __syncthreads();
  } else {
    cluster.barrier_wait();  // of the kernel's beginning: all blocks have started
    const int slot = static_cast<int>(cluster.block_rank()) * warps + warp;
    if (lane < blocks) *cluster.map_shared_rank(&sums[slot], lane) = value;
    cluster.sync();
  }
  float sum = 0;
  for (int i = 0; i < blocks * warps; ++i) sum += sums[i];
  return sum;
}

// A cluster for each row.
template <Source source, int vectors>
__global__ __launch_bounds__(kMaxThreads) void apply_kernel(HyperApplyParams p, int block_vectors) {
  allow_next_launch();
  cg::cluster_group cluster = cg::this_cluster();
  const int64_t row = blockIdx.x / cluster.num_blocks();
  // Of few rows, those beyond the count are read too: that costs less than waiting for the count.
  constexpr bool kFew = vectors == 1;
  const int row_vectors = static_cast<int>(p.hidden / kVectorChannels);
  const int begin = static_cast<int>(cluster.block_rank()) * block_vectors;
  const Slice slice{.first = begin + static_cast<int>(threadIdx.x),
                    .end = min(begin + block_vectors, row_vectors),
                    .stride = static_cast<int>(blockDim.x)};
  auto* streams = reinterpret_cast<uint4*>(p.streams) + row * kStreams * row_vectors;
  uint4 state[vectors][kStreams], y[vectors], norm[vectors];
  if (p.norm != nullptr) {
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
      if (slice.has(v)) norm[v] = load_vector(p.norm + slice.at(v) * kVectorChannels);
    }
  }
  wait_for_previous_launch();
  const int64_t count = *p.count;
  if (!kFew && row >= count) return;
#pragma unroll
  for (int v = 0; v < vectors; ++v) {
    if (!slice.has(v)) continue;
#pragma unroll
    for (int j = 0; j < kStreams; ++j) state[v][j] = load_vector(streams + j * row_vectors + slice.at(v));
    if constexpr (source != Source::none) y[v] = load_output<source>(p, row, slice.at(v));
  }
  const Coefficients c = load_coefficients<source>(p, row);
  if (kFew && row >= count) return;
  if (cluster.num_blocks() > 1) cluster.barrier_arrive();

  float z[vectors][kVectorChannels] = {};
  float squares = 0;
#pragma unroll
  for (int v = 0; v < vectors; ++v) {
    if (!slice.has(v)) continue;
    mix_and_collapse<source != Source::none>(c, y[v], state[v], z[v]);
    squares += squares_of(z[v]);
    if constexpr (source != Source::none) {
#pragma unroll
      for (int j = 0; j < kStreams; ++j) streams[j * row_vectors + slice.at(v)] = state[v][j];
    }
  }
  if (p.norm == nullptr) {
    if (cluster.num_blocks() > 1) cluster.barrier_wait();
    return;
  }

  const float factor = inverse_rms(cluster_sum(cluster, squares), p);
#pragma unroll
  for (int v = 0; v < vectors; ++v) {
    uint4 x, operand;
    normalise(z[v], factor, norm[v], x, operand);
    if (!slice.has(v)) continue;
    reinterpret_cast<uint4*>(p.x)[row * row_vectors + slice.at(v)] = x;
    reinterpret_cast<uint4*>(p.operand)[row * row_vectors + slice.at(v)] = operand;
  }
}

// Few rows are spread over more blocks, which wait for memory together.
int cluster_blocks(int64_t most, int64_t row_vectors) {
  constexpr int64_t kFewestVectors = 32;  // of a block
  const int64_t wanted = most <= 16 ? 8 : most <= 32 ? 4 : most <= 128 ? 2 : 1;
  int64_t blocks = 1;
  while (blocks < wanted && row_vectors >= 2 * blocks * kFewestVectors) blocks *= 2;
  return static_cast<int>(blocks);
}

template <Source source, int vectors>
void launch(cudaStream_t stream, const HyperApplyParams& p, int cluster, int block_vectors) {
  const int threads = ((block_vectors + vectors - 1) / vectors + 31) / 32 * 32;
  launch_overlapping(stream, apply_kernel<source, vectors>,
                     {.grid = static_cast<unsigned>(p.most * cluster),
                      .threads = static_cast<unsigned>(threads),
                      .cluster = static_cast<unsigned>(cluster)},
                     p, block_vectors);
}

template <Source source>
void launch(cudaStream_t stream, const HyperApplyParams& p) {
  const int64_t row_vectors = p.hidden / kVectorChannels;
  const int cluster = cluster_blocks(p.most, row_vectors);
  const int64_t share = (row_vectors + cluster - 1) / cluster;
  const int block_vectors = static_cast<int>((share + kGroupLanes - 1) / kGroupLanes * kGroupLanes);
  GANNET_CHECK(block_vectors <= kMaxThreads * kMaxVectors);
  if (cluster > 1 && block_vectors <= kMaxThreads) {
    launch<source, 1>(stream, p, cluster, block_vectors);
  } else {
    launch<source, kMaxVectors>(stream, p, cluster, block_vectors);
  }
}

}  // namespace
}  // namespace apply

void hyper_apply(cudaStream_t stream, const HyperApplyParams& p) {
  const bool has_output = p.y != nullptr || p.shared != nullptr;
  if (p.most == 0 || (!has_output && p.norm == nullptr)) return;
  GANNET_CHECK(p.hidden % (kVectorChannels * kGroupLanes) == 0);
  if (apply::takes_many(p)) return apply::launch_many(stream, p);
  if (p.y != nullptr) return apply::launch<apply::Source::y>(stream, p);
  if (p.shared == nullptr) return apply::launch<apply::Source::none>(stream, p);
  if (p.top_k == 6) return apply::launch<apply::Source::six_parts>(stream, p);
  apply::launch<apply::Source::parts>(stream, p);
}

}  // namespace gannet::ops::cuda

#include <cooperative_groups.h>

#include "base/check.h"
#include "ops/cuda/check.h"
#include "ops/cuda/vectors.cuh"
#include "ops/hyper_apply/sm90.h"

namespace gannet::ops::cuda {
namespace {

namespace cg = cooperative_groups;

constexpr int kStreams = 4;
constexpr int kMaxCluster = 8;
constexpr int kMaxVectors = 2;    // of a thread
constexpr int kMaxThreads = 512;  // of a block
constexpr int kMaxWarps = kMaxThreads / 32;

enum class Source { none, y, parts };

// One thread's vectors: channels 8 (first + v stride) .. of a row.
struct Slice {
  int first = 0;
  int end = 0;
  int stride = 0;
  __device__ int at(int v) const { return first + v * stride; }
  __device__ bool has(int v) const { return at(v) < end; }
};

struct Coefficients {
  float post[kStreams];
  float mix[kStreams * kStreams];
  float pre[kStreams];
};

__device__ void load_four(const float* from, float* to) {
  const float4 v = *reinterpret_cast<const float4*>(from);
  to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
}

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

// The sublayer's output for one vector.
template <Source source>
__device__ uint4 load_output(const HyperApplyParams& p, int64_t row, int vector) {
  const int64_t at = row * p.hidden + vector * kVectorChannels;
  if constexpr (source == Source::y) return load_vector(p.y + at);
  const auto* shared = reinterpret_cast<const float4*>(p.shared + at);
  const auto* part = reinterpret_cast<const float4*>(p.parts + row * p.top_k * p.hidden + vector * kVectorChannels);
  float4 a = __ldcg(shared), b = __ldcg(shared + 1);
#pragma unroll 6
  for (int64_t e = 0; e < p.top_k; ++e) {
    const float4 c = __ldcg(part + e * (p.hidden / 4)), d = __ldcg(part + e * (p.hidden / 4) + 1);
    a.x += c.x, a.y += c.y, a.z += c.z, a.w += c.w;
    b.x += d.x, b.y += d.y, b.z += d.z, b.w += d.w;
  }
  return make_uint4(pack_channels(a.x, a.y), pack_channels(a.z, a.w), pack_channels(b.x, b.y), pack_channels(b.z, b.w));
}

// sum + a b with both results rounded, as the reference rounds them: streams come out with the CPU's bits.
__device__ float add_product(float sum, float a, float b) {
  return __fadd_rn(sum, __fmul_rn(a, b));
}

// The new streams' words for two channels.
__device__ void mix_word(const Coefficients& c, uint32_t y, uint32_t words[kStreams]) {
  uint32_t mixed[kStreams];
#pragma unroll
  for (int k = 0; k < kStreams; ++k) {
    float low = __fmul_rn(c.post[k], low_channel(y));
    float high = __fmul_rn(c.post[k], high_channel(y));
#pragma unroll
    for (int j = 0; j < kStreams; ++j) {
      low = add_product(low, c.mix[j * kStreams + k], low_channel(words[j]));
      high = add_product(high, c.mix[j * kStreams + k], high_channel(words[j]));
    }
    mixed[k] = pack_channels(low, high);
  }
#pragma unroll
  for (int k = 0; k < kStreams; ++k) words[k] = mixed[k];
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
  cg::cluster_group cluster = cg::this_cluster();
  const int64_t row = blockIdx.x / cluster.num_blocks();
  if (row >= *p.count) return;
  if (cluster.num_blocks() > 1) cluster.barrier_arrive();

  const int row_vectors = static_cast<int>(p.hidden / kVectorChannels);
  const int begin = static_cast<int>(cluster.block_rank()) * block_vectors;
  const Slice slice{.first = begin + static_cast<int>(threadIdx.x),
                    .end = min(begin + block_vectors, row_vectors),
                    .stride = static_cast<int>(blockDim.x)};
  auto* streams = reinterpret_cast<uint4*>(p.streams) + row * kStreams * row_vectors;
  uint4 state[vectors][kStreams], y[vectors], norm[vectors];
#pragma unroll
  for (int v = 0; v < vectors; ++v) {
    if (!slice.has(v)) continue;
#pragma unroll
    for (int j = 0; j < kStreams; ++j) state[v][j] = load_vector(streams + j * row_vectors + slice.at(v));
    if constexpr (source != Source::none) y[v] = load_output<source>(p, row, slice.at(v));
    if (p.norm != nullptr) norm[v] = reinterpret_cast<const uint4*>(p.norm)[slice.at(v)];
  }
  const Coefficients c = load_coefficients<source>(p, row);

  float z[vectors][kVectorChannels];
  float squares = 0;
#pragma unroll
  for (int v = 0; v < vectors; ++v) {
    uint32_t out[kStreams][4];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      uint32_t words[kStreams];
#pragma unroll
      for (int j = 0; j < kStreams; ++j) words[j] = word_of(state[v][j], w);
      if constexpr (source != Source::none) mix_word(c, word_of(y[v], w), words);
      float low = 0, high = 0;
#pragma unroll
      for (int j = 0; j < kStreams; ++j) {
        out[j][w] = words[j];
        low = add_product(low, c.pre[j], low_channel(words[j]));
        high = add_product(high, c.pre[j], high_channel(words[j]));
      }
      z[v][2 * w] = low;
      z[v][2 * w + 1] = high;
    }
    if (!slice.has(v)) continue;
#pragma unroll
    for (int i = 0; i < kVectorChannels; ++i) squares = fmaf(z[v][i], z[v][i], squares);
    if constexpr (source != Source::none) {
#pragma unroll
      for (int j = 0; j < kStreams; ++j) {
        streams[j * row_vectors + slice.at(v)] = make_uint4(out[j][0], out[j][1], out[j][2], out[j][3]);
      }
    }
  }
  if (p.norm == nullptr) {
    if (cluster.num_blocks() > 1) cluster.barrier_wait();
    return;
  }

  const float mean = cluster_sum(cluster, squares) / static_cast<float>(p.hidden);
  const float factor = 1.0F / sqrtf(mean + p.norm_eps);
  auto* x = reinterpret_cast<uint4*>(p.x) + row * row_vectors;
  auto* operand = reinterpret_cast<uint4*>(p.operand) + row * row_vectors;
#pragma unroll
  for (int v = 0; v < vectors; ++v) {
    float value[kVectorChannels];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const uint32_t weights = word_of(norm[v], w);
      value[2 * w] = low_channel(weights) * (z[v][2 * w] * factor);
      value[2 * w + 1] = high_channel(weights) * (z[v][2 * w + 1] * factor);
    }
    const uint4 quantized = q8_round_vector(value);
    if (!slice.has(v)) continue;
    x[slice.at(v)] = quantized;
    operand[slice.at(v)] = make_uint4(pack_channels(value[0], value[1]), pack_channels(value[2], value[3]),
                                      pack_channels(value[4], value[5]), pack_channels(value[6], value[7]));
  }
}

// Few rows are spread over more blocks, which wait for memory together.
int cluster_blocks(int64_t most, int64_t row_vectors) {
  constexpr int64_t kFewestVectors = 32;  // of a block
  const int64_t wanted = most <= 16 ? 8 : most <= 32 ? 4 : most <= 64 ? 2 : 1;
  int64_t blocks = 1;
  while (blocks < wanted && row_vectors >= 2 * blocks * kFewestVectors) blocks *= 2;
  return static_cast<int>(blocks);
}

template <Source source, int vectors>
void launch(cudaStream_t stream, const HyperApplyParams& p, int cluster, int block_vectors) {
  cudaLaunchAttribute shape{};
  shape.id = cudaLaunchAttributeClusterDimension;
  shape.val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(p.most * cluster));
  config.blockDim = dim3(static_cast<unsigned>(((block_vectors + vectors - 1) / vectors + 31) / 32 * 32));
  config.stream = stream;
  config.attrs = &shape;
  config.numAttrs = 1;
  GANNET_CUDA_CHECK(cudaLaunchKernelEx(&config, apply_kernel<source, vectors>, p, block_vectors));
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

void hyper_apply(cudaStream_t stream, const HyperApplyParams& p) {
  const bool has_output = p.y != nullptr || p.shared != nullptr;
  if (p.most == 0 || (!has_output && p.norm == nullptr)) return;
  GANNET_CHECK(p.hidden % (kVectorChannels * kGroupLanes) == 0);
  if (p.y != nullptr) return launch<Source::y>(stream, p);
  if (p.shared != nullptr) return launch<Source::parts>(stream, p);
  launch<Source::none>(stream, p);
}

}  // namespace gannet::ops::cuda

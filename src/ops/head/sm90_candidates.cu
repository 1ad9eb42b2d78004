#include <cooperative_groups.h>

#include <cfloat>

#include "base/check.h"
#include "ops/cuda/check.h"
#include "ops/cuda/vectors.cuh"
#include "ops/head/sm90_candidates.h"

// A cluster holds a row in registers, 64 logits in each thread. The 64th largest of all threads' largest logits bounds
// the row's 64th largest from below, and only 64 threads hold anything above it: few logits are left to be ranked.
namespace gannet::ops::cuda {
namespace {

namespace cg = cooperative_groups;

constexpr int kBlocks = 8;  // of a cluster
constexpr int kThreads = 256;
constexpr int kLoads = 16;  // of a thread, four logits each
constexpr int kThreadLogits = 4 * kLoads;
constexpr int kWanted = static_cast<int>(kCandidates);
constexpr int kMostFound = kWanted * kThreadLogits;
constexpr int64_t kMostVocabulary = int64_t{kBlocks} * kThreads * kThreadLogits;

// Larger for likelier candidates, and no two are equal; 0 is none.
using Key = unsigned long long;

__device__ float sane(float logit) {
  return logit >= -INFINITY ? fminf(logit, FLT_MAX) + 0.0F : -INFINITY;  // + 0: both zeros are equal
}
__device__ Key key_of(float logit, uint32_t id) {
  const uint32_t bits = __float_as_uint(logit);
  const uint32_t rank = (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
  return Key{rank} << 32 | (~0U - id);
}
__device__ float logit_of(Key key) {
  const auto rank = static_cast<uint32_t>(key >> 32);
  return __uint_as_float((rank & 0x80000000U) != 0 ? rank & 0x7fffffffU : ~rank);
}
__device__ uint32_t id_of(Key key) {
  return ~0U - static_cast<uint32_t>(key);
}

// Of a block; those of the cluster's first block gather what is found.
struct Shared {
  Key sorted[kThreads];
  Key best[kBlocks][kWanted];  // each block's largest, falling
  Key bound;
  Key found[kMostFound];
  int found_count;
  float log_mass[kBlocks], mass[kBlocks];  // sums of the blocks
  float warp_sums[2][kThreads / 32];
};

// Sorts the threads' keys, largest first: a bitonic network, inside a warp by shuffles.
__device__ Key sort_keys(Key key, Shared& s) {
  const int i = static_cast<int>(threadIdx.x);
  for (int size = 2; size <= kThreads; size *= 2) {
    for (int step = size / 2; step > 0; step /= 2) {
      Key other;
      if (step >= 32) {
        __syncthreads();
        s.sorted[i] = key;
        __syncthreads();
        other = s.sorted[i ^ step];
      } else {
        other = __shfl_xor_sync(~0U, key, step);
      }
      const bool larger_first = (i & size) == 0, first = (i & step) == 0;
      key = (larger_first == first) == (other > key) ? other : key;
    }
  }
  return key;
}

// How many keys of a falling list are larger.
__device__ int count_larger(const Key* list, Key key) {
  int count = 0;
#pragma unroll
  for (int step = kWanted / 2; step > 0; step /= 2) {
    if (list[count + step - 1] > key) count += step;
  }
  return count + (list[count] > key ? 1 : 0);
}

// The cluster's kWanted-th largest of the blocks' best keys, which are in `s.best`.
__device__ void find_bound(Shared& s) {
  for (int i = static_cast<int>(threadIdx.x); i < kBlocks * kWanted; i += kThreads) {
    const Key key = s.best[i / kWanted][i % kWanted];
    if (key == 0) continue;
    int larger = 0;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) larger += count_larger(s.best[b], key);
    if (larger == kWanted - 1) s.bound = key;
  }
}

__device__ void block_sums(Shared& s, float a, float b) {
  a = warp_sum(a);
  b = warp_sum(b);
  if (threadIdx.x % 32 == 0) {
    s.warp_sums[0][threadIdx.x / 32] = a;
    s.warp_sums[1][threadIdx.x / 32] = b;
  }
  __syncthreads();
}

// Ranks what was found by counting: mostly little more than kWanted.
__device__ void write_ranked(const CandidatesParams& p, int64_t row, const Shared& s) {
  for (int i = static_cast<int>(threadIdx.x); i < s.found_count; i += kThreads) {
    const Key key = s.found[i];
    int rank = 0;
#pragma unroll 8
    for (int j = 0; j < s.found_count; ++j) rank += s.found[j] > key ? 1 : 0;
    if (rank >= kWanted) continue;
    p.values[row * kWanted + rank] = logit_of(key);
    p.ids[row * kWanted + rank] = static_cast<int32_t>(id_of(key));
  }
  for (int i = s.found_count + static_cast<int>(threadIdx.x); i < kWanted; i += kThreads) {
    p.values[row * kWanted + i] = -INFINITY;
    p.ids[row * kWanted + i] = -1;
  }
}

__global__ __cluster_dims__(kBlocks, 1, 1) __launch_bounds__(kThreads, 2) void candidates_kernel(CandidatesParams p) {
  extern __shared__ __align__(16) unsigned char memory[];
  Shared& s = *reinterpret_cast<Shared*>(memory);
  cg::cluster_group cluster = cg::this_cluster();
  const int64_t row = blockIdx.x / kBlocks;
  if (row >= *p.count) return;
  const int block = static_cast<int>(cluster.block_rank()), thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    s.found_count = 0;
    s.bound = 0;
  }
  const int vectors = static_cast<int>(p.vocabulary / 4);
  const auto* logits = reinterpret_cast<const float4*>(p.logits + row * p.vocabulary);
  const auto vector_at = [&](int load) { return (load * kBlocks + block) * kThreads + thread; };
  float v[kThreadLogits];
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    float4 four = make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
    if (vector_at(i) < vectors) four = __ldcs(logits + vector_at(i));
    v[4 * i] = sane(four.x), v[4 * i + 1] = sane(four.y), v[4 * i + 2] = sane(four.z), v[4 * i + 3] = sane(four.w);
  }
  const auto id_at = [&](int i) { return static_cast<uint32_t>(vector_at(i / 4) * 4 + i % 4); };
  int best_at = 0;
  float best_logit = v[0];
#pragma unroll
  for (int i = 1; i < kThreadLogits; ++i) {
    if (v[i] > best_logit) {
      best_logit = v[i];
      best_at = i;
    }
  }
  const Key best = vector_at(0) < vectors ? key_of(best_logit, id_at(best_at)) : 0;

  cluster.sync();  // all blocks have started
  const Key sorted = sort_keys(best, s);
  if (thread < kWanted) {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) *cluster.map_shared_rank(&s.best[block][thread], b) = sorted;
  }
  cluster.sync();
  find_bound(s);
  Key top_key = 0;
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) top_key = s.best[b][0] > top_key ? s.best[b][0] : top_key;
  const float top = fmaxf(logit_of(top_key), -FLT_MAX);  // finite, so that differences are numbers
  __syncthreads();

  Shared& first = *cluster.map_shared_rank(&s, 0);
  if (best >= s.bound && best != 0) {
#pragma unroll
    for (int i = 0; i < kThreadLogits; ++i) {
      const Key key = key_of(v[i], id_at(i));
      if (vector_at(i / 4) < vectors && key >= s.bound) first.found[atomicAdd(&first.found_count, 1)] = key;
    }
  }
  const float inverse_temperature = p.inverse_temperature == nullptr ? 1.0F : p.inverse_temperature[row];
  float log_mass = 0, mass = 0;
#pragma unroll
  for (int i = 0; i < kThreadLogits; ++i) log_mass += __expf(v[i] - top);
  if (inverse_temperature == 1.0F) {
    mass = log_mass;
  } else {
#pragma unroll
    for (int i = 0; i < kThreadLogits; ++i) mass += __expf((v[i] - top) * inverse_temperature);
  }
  block_sums(s, log_mass, mass);
  if (thread == 0) {
    log_mass = mass = 0;
    for (int w = 0; w < kThreads / 32; ++w) {
      log_mass += s.warp_sums[0][w];
      mass += s.warp_sums[1][w];
    }
    first.log_mass[block] = log_mass;
    first.mass[block] = mass;
  }
  cluster.sync();
  if (block != 0) return;
  write_ranked(p, row, s);
  if (thread != 0) return;
  log_mass = mass = 0;
  for (int b = 0; b < kBlocks; ++b) {
    log_mass += s.log_mass[b];
    mass += s.mass[b];
  }
  p.log_sum[row] = top + logf(log_mass);
  p.mass[row] = mass;
}

}  // namespace

void candidates(cudaStream_t stream, const CandidatesParams& p) {
  if (p.most == 0) return;
  GANNET_CHECK(p.vocabulary % 4 == 0 && p.vocabulary <= kMostVocabulary);
  static const cudaError_t configured = cudaFuncSetAttribute(
      candidates_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(sizeof(Shared)));
  GANNET_CUDA_CHECK(configured);
  candidates_kernel<<<static_cast<unsigned>(p.most * kBlocks), kThreads, sizeof(Shared), stream>>>(p);
  GANNET_CUDA_LAUNCHED();
}

}  // namespace gannet::ops::cuda

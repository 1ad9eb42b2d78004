#include "ops/cuda/bulk_copy.cuh"
#include "ops/cuda/check.h"
#include "ops/hyper_apply/sm90_row.cuh"

// Blocks stay and take row after row. The copy engine brings the rows behind the current one into shared memory, so
// that reading goes on while a block computes, waits for its sum and writes.
namespace gannet::ops::cuda::apply {
namespace {

constexpr int kStages = 2;
constexpr int kBlocks = 264;  // two for each multiprocessor
constexpr int kVectors = 2;   // of a thread
constexpr int kMaxThreads = 320;
constexpr int64_t kMostHidden = kVectors * kMaxThreads * kVectorChannels;

// A row in shared memory: its streams, the sublayer's output, and the coefficients as they lie in their structure.
__host__ __device__ int64_t stage_bytes(int64_t hidden) {
  return (kStreams + 1) * hidden * int64_t{sizeof(__nv_bfloat16)} + 128;
}
static_assert(sizeof(Coefficients) <= 128);

__device__ void fetch_row(const HyperApplyParams& p, int64_t row, unsigned char* stage, uint64_t* barrier) {
  const auto channel_bytes = static_cast<uint32_t>(p.hidden * int64_t{sizeof(__nv_bfloat16)});
  constexpr uint32_t kFour = kStreams * sizeof(float);
  auto* coefficients = reinterpret_cast<Coefficients*>(stage + int64_t{kStreams + 1} * channel_bytes);
  arrive_expecting(barrier, (kStreams + 1) * channel_bytes + sizeof(Coefficients));
  copy_bulk(stage, p.streams + row * kStreams * p.hidden, kStreams * channel_bytes, barrier);
  copy_bulk(stage + int64_t{kStreams} * channel_bytes, p.y + row * p.hidden, channel_bytes, barrier);
  copy_bulk(coefficients->post, p.post + row * kStreams, kFour, barrier);
  copy_bulk(coefficients->mix, p.mix + row * kStreams * kStreams, kStreams * kFour, barrier);
  copy_bulk(coefficients->pre, p.pre + row * kStreams, kFour, barrier);
}

__global__ __launch_bounds__(kMaxThreads, 2) void many_kernel(HyperApplyParams p) {
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ uint64_t full[kStages];
  __shared__ float sums[2][kMaxThreads / 32];
  const int64_t count = *p.count;
  const int vectors = static_cast<int>(p.hidden / kVectorChannels);
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int64_t stage_size = stage_bytes(p.hidden);
  if (thread == 0) {
    for (uint64_t& barrier : full) init_barrier(&barrier, 1);
    fence_barrier_init();
    for (int s = 0; s < kStages; ++s) {
      const int64_t row = blockIdx.x + int64_t{s} * gridDim.x;
      if (row < count) fetch_row(p, row, memory + s * stage_size, &full[s]);
    }
  }
  uint4 norm[kVectors];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    norm[v] = make_uint4(0, 0, 0, 0);
    if (thread + v * threads < vectors) norm[v] = reinterpret_cast<const uint4*>(p.norm)[thread + v * threads];
  }
  __syncthreads();

  int turn = 0;
  for (int64_t row = blockIdx.x; row < count; row += gridDim.x, ++turn) {
    const int slot = turn % kStages;
    unsigned char* stage = memory + slot * stage_size;
    const auto* in = reinterpret_cast<const uint4*>(stage);
    const auto& c = *reinterpret_cast<const Coefficients*>(in + (kStreams + 1) * vectors);
    auto* streams = reinterpret_cast<uint4*>(p.streams) + row * kStreams * vectors;
    wait_barrier(&full[slot], turn / kStages & 1);
    float z[kVectors][kVectorChannels] = {};
    float squares = 0;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int i = thread + v * threads;
      if (i >= vectors) continue;
      uint4 state[kStreams];
#pragma unroll
      for (int j = 0; j < kStreams; ++j) state[j] = in[j * vectors + i];
      mix_and_collapse<true>(c, in[kStreams * vectors + i], state, z[v]);
      squares += squares_of(z[v]);
#pragma unroll
      for (int j = 0; j < kStreams; ++j) streams[j * vectors + i] = state[j];
    }
    squares = warp_sum(squares);
    if (thread % 32 == 0) sums[turn & 1][thread / 32] = squares;
    __syncthreads();  // the sums are there, and nobody reads the stage any more
    const int64_t ahead = row + int64_t{kStages} * gridDim.x;
    if (thread == 0 && ahead < count) fetch_row(p, ahead, stage, &full[slot]);
    float total = 0;
    for (int w = 0; w < threads / 32; ++w) total += sums[turn & 1][w];
    const float factor = inverse_rms(total, p);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int i = thread + v * threads;
      uint4 x, operand;
      normalise(z[v], factor, norm[v], x, operand);
      if (i >= vectors) continue;
      reinterpret_cast<uint4*>(p.x)[row * vectors + i] = x;
      reinterpret_cast<uint4*>(p.operand)[row * vectors + i] = operand;
    }
  }
}

}  // namespace

bool takes_many(const HyperApplyParams& p) {
  return p.most > kBlocks && p.y != nullptr && p.norm != nullptr && p.hidden <= kMostHidden;
}

void launch_many(cudaStream_t stream, const HyperApplyParams& p) {
  static const cudaError_t configured = cudaFuncSetAttribute(many_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                             static_cast<int>(kStages * stage_bytes(kMostHidden)));
  GANNET_CUDA_CHECK(configured);
  const int64_t threads = (p.hidden / kVectorChannels + kVectors - 1) / kVectors;
  const auto warps = static_cast<unsigned>((threads + 31) / 32);
  many_kernel<<<kBlocks, warps * 32, static_cast<size_t>(kStages * stage_bytes(p.hidden)), stream>>>(p);
  GANNET_CUDA_LAUNCHED();
}

}  // namespace gannet::ops::cuda::apply

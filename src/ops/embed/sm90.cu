#include "ops/embed/sm90.h"

#include "base/check.h"
#include "ops/cuda/check.h"
#include "ops/cuda/vectors.cuh"

namespace gannet::ops::cuda {
namespace {

constexpr int kStreams = 4;
constexpr int kThreads = 128;

__global__ __launch_bounds__(kThreads) void embed_kernel(EmbedParams p) {
  const int64_t row = blockIdx.x;
  if (row >= *p.count) return;
  const int64_t vectors = p.hidden / kVectorChannels;
  const int64_t i = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (i == 0) reinterpret_cast<float4*>(p.pre)[row] = make_float4(1, 0, 0, 0);
  if (i >= vectors) return;
  const uint4 v = load_vector(p.weight + p.ids[row] * p.hidden + i * kVectorChannels);
  uint4* out = reinterpret_cast<uint4*>(p.streams) + row * kStreams * vectors + i;
#pragma unroll
  for (int j = 0; j < kStreams; ++j) out[j * vectors] = v;
}

// The vectors of a row's streams, x and operand, in this order.
__global__ __launch_bounds__(kThreads) void cut_rows_kernel(CutRowsParams p) {
  const int64_t row = blockIdx.x;
  if (row >= *p.count) return;
  const int64_t from = p.rows[row];
  const int64_t vectors = p.hidden / kVectorChannels;
  int64_t i = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (i == 0) reinterpret_cast<float4*>(p.pre_out)[row] = reinterpret_cast<const float4*>(p.pre)[from];
  const __nv_bfloat16* in = p.streams;
  __nv_bfloat16* out = p.streams_out;
  int64_t width = kStreams * vectors;
  if (i >= width) {
    i -= width;
    width = vectors;
    in = i < vectors ? p.x : p.operand;
    out = i < vectors ? p.x_out : p.operand_out;
    if (i >= vectors) i -= vectors;
    if (i >= vectors) return;
  }
  reinterpret_cast<uint4*>(out)[row * width + i] = load_vector(in + (from * width + i) * kVectorChannels);
}

unsigned parts(int64_t vectors) {
  return static_cast<unsigned>((vectors + kThreads - 1) / kThreads);
}

}  // namespace

void embed(cudaStream_t stream, const EmbedParams& p) {
  if (p.most == 0) return;
  GANNET_CHECK(p.hidden % kVectorChannels == 0);
  const dim3 grid(static_cast<unsigned>(p.most), parts(p.hidden / kVectorChannels));
  embed_kernel<<<grid, kThreads, 0, stream>>>(p);
  GANNET_CUDA_LAUNCHED();
}

void cut_rows(cudaStream_t stream, const CutRowsParams& p) {
  if (p.most == 0) return;
  GANNET_CHECK(p.hidden % kVectorChannels == 0);
  const dim3 grid(static_cast<unsigned>(p.most), parts((kStreams + 2) * p.hidden / kVectorChannels));
  cut_rows_kernel<<<grid, kThreads, 0, stream>>>(p);
  GANNET_CUDA_LAUNCHED();
}

}  // namespace gannet::ops::cuda

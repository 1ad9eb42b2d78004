#include "ops/kv_insert/sm90.h"

#include "base/check.h"
#include "ops/cuda/check.h"
#include "ops/cuda/record_address.cuh"
#include "ops/cuda/rope.cuh"
#include "ops/cuda/vectors.cuh"

namespace gannet::ops::cuda {
namespace {

constexpr int kHeadDim = 512;
constexpr int kIndexDim = 128;
constexpr int kRotated = 2 * kRopePairs;
constexpr int kWindowBytes = kHeadDim + kHeadDim / 32;
constexpr int kEntryBytes = kHeadDim / 2 + kHeadDim / 16;
constexpr int kKeyBytes = kIndexDim / 2 + kIndexDim / 32;

// A thread holds four neighbouring channels, 128 threads a record.
constexpr int kChannels = 4;
constexpr int kThreads = kHeadDim / kChannels;
constexpr int kWarps = kThreads / 32;

__device__ float4 load4(const float* p) {
  return *reinterpret_cast<const float4*>(p);
}
__device__ float sum_of_squares(float4 v) {
  return v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
}
__device__ float largest(float4 v) {
  return fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
}
// Over `lanes` neighbouring lanes, a power of two.
__device__ float largest_of(float value, int lanes) {
  for (int step = 1; step < lanes; step *= 2) value = fmaxf(value, __shfl_xor_sync(~0U, value, step));
  return value;
}
// Once in a kernel.
__device__ float sum_of_block(float value) {
  __shared__ float sums[kWarps];
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0;
  for (int w = 0; w < kWarps; ++w) sum += sums[w];
  return sum;
}

__device__ float inverse_rms(float squares, int64_t n, float eps) {
  return 1.0F / sqrtf(squares / static_cast<float>(n) + eps);
}
// weight * (x * factor), in this order.
__device__ float4 normalised(float4 x, float factor, const __nv_bfloat16* weight) {
  const uint2 pairs = *reinterpret_cast<const uint2*>(weight);
  return {low_channel(pairs.x) * (x.x * factor), high_channel(pairs.x) * (x.y * factor),
          low_channel(pairs.y) * (x.z * factor), high_channel(pairs.y) * (x.w * factor)};
}
// Channels c .. c + 3 of `dim`.
__device__ void rotate(float4& v, int c, int dim, int64_t position, const float* frequencies) {
  const int pair = (c - (dim - kRotated)) / 2;
  if (pair < 0) return;
  rotate_pair_at(v.x, v.y, position, frequencies[pair]);
  rotate_pair_at(v.z, v.w, position, frequencies[pair + 1]);
}

__device__ uint2 bf16_pairs(float4 v) {
  return {pack_channels(v.x, v.y), pack_channels(v.z, v.w)};
}
// Codes of four channels, the first one lowest. Dividing comes before the limit, as in base/quantize.cc.
__device__ uint32_t e2m1_codes(float4 v, float scale) {
  return e2m1_code(v.x / scale) | e2m1_code(v.y / scale) << 4 | e2m1_code(v.z / scale) << 8 |
         e2m1_code(v.w / scale) << 12;
}

// The row's sequence, or null if the row is not real.
__device__ const Sequence* sequence_of_row(const Rows& rows, int64_t row) {
  return row < *rows.count ? rows.sequences + rows.sequence_of[row] : nullptr;
}

__device__ void insert_latent(const InsertWindowParams& p, int64_t row) {
  const float* x = p.projected + row * p.stride;
  const int first = static_cast<int>(threadIdx.x) * kChannels;
  float squares = 0;
#pragma unroll 3
  for (int64_t c = first; c < p.latent_size; c += kHeadDim) squares += sum_of_squares(load4(x + c));
  const float factor = inverse_rms(sum_of_block(squares), p.latent_size, p.norm_eps);
  for (int64_t c = first; c - first < p.latent_size; c += kHeadDim) {
    const bool valid = c < p.latent_size;  // the same for the 8 lanes of a group
    const float4 v = valid ? normalised(load4(x + c), factor, p.latent_norm + c) : float4{};
    const uint32_t scale = q8_scale(largest_of(largest(v), 8));
    const float4 rounded = {q8_round(v.x, scale), q8_round(v.y, scale), q8_round(v.z, scale), q8_round(v.w, scale)};
    if (valid) *reinterpret_cast<uint2*>(p.latent + row * p.latent_stride + c) = bf16_pairs(rounded);
  }
}

__device__ void insert_record(const InsertWindowParams& p, int64_t row) {
  const int c = static_cast<int>(threadIdx.x) * kChannels;
  float4 v = load4(p.projected + row * p.stride + p.latent_size + c);
  const float factor = inverse_rms(sum_of_block(sum_of_squares(v)), kHeadDim, p.norm_eps);
  v = normalised(v, factor, p.kv_norm + c);
  rotate(v, c, kHeadDim, p.rows.positions[row], p.frequencies);
  const uint32_t scale = q8_scale(largest_of(largest(v), 8));
  const float inverse = inverse_scale_value(scale);
  std::byte* record = p.records + row * kWindowBytes;
  *reinterpret_cast<uint32_t*>(record + c) = e4m3_code(v.x * inverse) | e4m3_code(v.y * inverse) << 8 |
                                             e4m3_code(v.z * inverse) << 16 | e4m3_code(v.w * inverse) << 24;
  if (threadIdx.x % 8 == 0) record[kHeadDim + c / 32] = static_cast<std::byte>(scale);
}

// Two blocks for a row: the latent and the record.
__global__ void __launch_bounds__(kThreads) insert_window_kernel(InsertWindowParams p) {
  const int64_t row = blockIdx.x;
  if (row >= *p.rows.count) return;
  if (blockIdx.y == 0) {
    insert_latent(p, row);
  } else {
    insert_record(p, row);
  }
}

// A warp for a row and a layer.
__global__ void __launch_bounds__(kThreads) keep_windows_kernel(KeepWindowsParams p) {
  constexpr int kParts = kWindowBytes / 16;
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  const Sequence* sequence = sequence_of_row(p.rows, row);
  if (sequence == nullptr || row < sequence->first_row + sequence->rows - p.window) return;
  const int64_t slot = p.rows.positions[row] % p.window;
  const auto* from = reinterpret_cast<const uint4*>(p.records + blockIdx.y * p.layer_stride + row * kWindowBytes);
  auto* to = reinterpret_cast<uint4*>(p.rings + sequence->slot * p.slot_stride +
                                      ((p.first_layer + blockIdx.y) * p.window + slot) * kWindowBytes);
  for (int i = threadIdx.x % 32; i < kParts; i += 32) to[i] = from[i];
}

// A channel of a pair: the average of a0 and a1 weighted by the softmax of their gates, rounded as the reference does.
__device__ float pooled(float a0, float g0, float a1, float g1) {
  const float top = fmaxf(g0, g1);
  const float w0 = expf(g0 - top), w1 = expf(g1 - top);
  const float sum = w0 + w1;
  return __fadd_rn(__fmul_rn(a0, w0 / sum), __fmul_rn(a1, w1 / sum));
}
__device__ float4 pooled(float4 a0, float4 g0, float4 a1, float4 g1) {
  return {pooled(a0.x, g0.x, a1.x, g1.x), pooled(a0.y, g0.y, a1.y, g1.y), pooled(a0.z, g0.z, a1.z, g1.z),
          pooled(a0.w, g0.w, a1.w, g1.w)};
}

// Position of the sequence's first row whose entry is written, and of the row behind the last.
struct Written {
  int64_t begin;
  int64_t end;
};
__device__ Written written(const Sequence& sequence) {
  const int64_t end = int64_t{sequence.start} + sequence.rows;
  return {max(int64_t{sequence.start}, min(int64_t{sequence.cached}, end)), end};
}

// The latent of the row's group, if the row completes one. Afterwards `pending` holds the last even row. That row
// writes it, unless the first row reads it: then that one does both, since nothing orders two blocks.
__device__ bool take_latent(const InsertEntriesParams& p, const Sequence& sequence, int64_t row, int c,
                            float4& latent) {
  const int64_t position = p.rows.positions[row];
  const auto [begin, end] = written(sequence);
  if (position < begin) return false;
  const auto a = [&](int64_t at) {
    return load4(p.projected + (sequence.first_row + at - sequence.start) * p.stride + c);
  };
  const auto gate = [&](int64_t at) {
    return load4(p.projected + (sequence.first_row + at - sequence.start) * p.stride + kHeadDim + c);
  };
  if (p.ratio == 1) {
    latent = a(position);
    return true;
  }
  float* pending = p.pending + sequence.slot * p.pending_stride + c;
  const int64_t last_even = (end - 1) / 2 * 2;
  const bool first_reads = begin % 2 != 0;
  if (position % 2 != 0) {
    const bool reads = position == begin;
    const float4 a0 = reads ? load4(pending) : a(position - 1);
    const float4 g0 = reads ? load4(pending + kHeadDim) : gate(position - 1);
    latent = pooled(a0, g0, a(position), gate(position));
  }
  if (last_even >= begin && position == (first_reads ? begin : last_even)) {
    *reinterpret_cast<float4*>(pending) = a(last_even);
    *reinterpret_cast<float4*>(pending + kHeadDim) = gate(last_even);
  }
  return position % 2 != 0;
}

__global__ void __launch_bounds__(kThreads) insert_entries_kernel(InsertEntriesParams p) {
  const int64_t row = blockIdx.x;
  const Sequence* sequence = sequence_of_row(p.rows, row);
  if (sequence == nullptr) return;
  const int c = static_cast<int>(threadIdx.x) * kChannels;
  auto* latent = reinterpret_cast<uint2*>(p.latent + row * kHeadDim + c);
  float4 v;
  if (!take_latent(p, *sequence, row, c, v)) {
    *latent = {};
    return;
  }
  const float factor = inverse_rms(sum_of_block(sum_of_squares(v)), kHeadDim, p.norm_eps);
  v = normalised(v, factor, p.norm + c);
  *latent = bf16_pairs(v);
  const int64_t group = p.rows.positions[row] / p.ratio;
  rotate(v, c, kHeadDim, group * p.ratio, p.frequencies);
  const uint32_t scale = e4m3_code(fmaxf(largest_of(largest(v), 4), 6 * 0x1p-9F) / 6.0F);
  std::byte* record = record_address(p.entries, sequence->slot, static_cast<uint32_t>(group));
  *reinterpret_cast<uint16_t*>(record + c / 2) = static_cast<uint16_t>(e2m1_codes(v, e4m3_value(scale)));
  if (threadIdx.x % 4 == 0) record[kHeadDim / 2 + c / 16] = static_cast<std::byte>(scale);
}

// A warp for a row.
__global__ void __launch_bounds__(kThreads) insert_keys_kernel(InsertKeysParams p) {
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  const Sequence* sequence = sequence_of_row(p.rows, row);
  if (sequence == nullptr) return;
  const int64_t position = p.rows.positions[row];
  if (position < written(*sequence).begin || (position + 1) % p.ratio != 0) return;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int c = lane * kChannels;
  float4 v = load4(p.projected + row * kIndexDim + c);
  v = normalised(v, inverse_rms(warp_sum(sum_of_squares(v)), kIndexDim, p.norm_eps), p.norm + c);
  const int64_t group = position / p.ratio;
  rotate(v, c, kIndexDim, group * p.ratio, p.frequencies);
  const uint32_t scale = power_of_two_scale(fmaxf(largest_of(largest(v), 8), 6 * 0x1p-126F), 1.0F / 6.0F);
  std::byte* record = record_address(p.keys, sequence->slot, static_cast<uint32_t>(group));
  *reinterpret_cast<uint16_t*>(record + c / 2) = static_cast<uint16_t>(e2m1_codes(v, scale_value(scale)));
  if (lane % 8 == 0) record[kIndexDim / 2 + c / 32] = static_cast<std::byte>(scale);
}

unsigned blocks_of_warps(int64_t rows) {
  return static_cast<unsigned>((rows + kWarps - 1) / kWarps);
}

}  // namespace

void insert_window(cudaStream_t stream, const InsertWindowParams& p) {
  if (p.rows.most == 0) return;
  GANNET_CHECK(p.latent_size % 32 == 0 && p.stride % kChannels == 0 && p.latent_stride % kChannels == 0);
  insert_window_kernel<<<dim3(static_cast<unsigned>(p.rows.most), 2), kThreads, 0, stream>>>(p);
  GANNET_CUDA_LAUNCHED();
}

void keep_windows(cudaStream_t stream, const KeepWindowsParams& p) {
  if (p.rows.most == 0 || p.layers == 0) return;
  const dim3 blocks(blocks_of_warps(p.rows.most), static_cast<unsigned>(p.layers));
  keep_windows_kernel<<<blocks, kThreads, 0, stream>>>(p);
  GANNET_CUDA_LAUNCHED();
}

void insert_entries(cudaStream_t stream, const InsertEntriesParams& p) {
  if (p.rows.most == 0) return;
  GANNET_CHECK((p.ratio == 1 || p.ratio == 2) && p.stride % kChannels == 0);
  GANNET_CHECK(p.entries.record_bytes == kEntryBytes);
  insert_entries_kernel<<<static_cast<unsigned>(p.rows.most), kThreads, 0, stream>>>(p);
  GANNET_CUDA_LAUNCHED();
}

void insert_keys(cudaStream_t stream, const InsertKeysParams& p) {
  if (p.rows.most == 0) return;
  GANNET_CHECK(p.keys.record_bytes == kKeyBytes);
  insert_keys_kernel<<<blocks_of_warps(p.rows.most), kThreads, 0, stream>>>(p);
  GANNET_CUDA_LAUNCHED();
}

}  // namespace gannet::ops::cuda

#include "ops/engram/sm90.h"

#include <algorithm>

#include "base/check.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/vectors.cuh"

namespace gannet::ops::cuda {
namespace {

constexpr int kStreams = 4;

// ---- Rows of the tables ----

constexpr int kPieceChannels = 16;  // a thread's load; two neighbouring threads share a scale
constexpr int kGroupChannels = 32;
constexpr int kPieces = 4;  // of a thread, all read before the first is used
constexpr int kGatherThreads = 256;
constexpr int kGatherBlocks = 66;  // half of the multiprocessors

// 16 bytes of a table: in host memory each is a read over PCIe.
__device__ uint4 load_codes(const uint8_t* from) {
  return __ldcs(reinterpret_cast<const uint4*>(from));
}

// Two bytes of codes as values of their row.
__device__ void decode_pair(uint32_t codes, float scale, float& first, float& second) {
  const __half2_raw halves = __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(codes & 0xffffU), __NV_E4M3);
  const float2 values = __half22float2(__half2(halves));
  first = values.x * scale;
  second = values.y * scale;
}

__device__ float e8m0_value(uint32_t code) {
  return code == 0 ? 0x1p-127F : code == 255 ? __int_as_float(0x7fffffff) : scale_value(code);
}

// Decodes a piece and rounds it through Q8 with the other half of its group, which the neighbouring lane holds.
__device__ void write_piece(const uint4& codes, uint32_t scale_code, __nv_bfloat16* out, bool valid) {
  float v[kPieceChannels];
  const float scale = e8m0_value(scale_code);
  float amax = 0;
#pragma unroll
  for (int i = 0; i < kPieceChannels / 2; ++i) {
    decode_pair(word_of(codes, i / 2) >> (i % 2 * 16), scale, v[2 * i], v[2 * i + 1]);
    amax = fmaxf(amax, fmaxf(fabsf(v[2 * i]), fabsf(v[2 * i + 1])));
  }
  amax = fmaxf(amax, __shfl_xor_sync(~0U, amax, 1));
  const uint32_t q8 = q8_scale(amax);
  uint32_t words[kPieceChannels / 2];
#pragma unroll
  for (int i = 0; i < kPieceChannels / 2; ++i) {
    words[i] = pack_channels(q8_round(v[2 * i], q8), q8_round(v[2 * i + 1], q8));
  }
  if (!valid) return;
  auto* to = reinterpret_cast<uint4*>(out);
  to[0] = make_uint4(words[0], words[1], words[2], words[3]);
  to[1] = make_uint4(words[4], words[5], words[6], words[7]);
}

__global__ __launch_bounds__(kGatherThreads) void gather_kernel(EngramGatherParams p) {
  const auto row_pieces = static_cast<uint32_t>(p.dim / kPieceChannels);
  const auto pieces = static_cast<uint32_t>(*p.count * p.columns) * row_pieces;
  for (uint32_t first = blockIdx.x * kGatherThreads * kPieces; first < pieces;
       first += gridDim.x * kGatherThreads * kPieces) {
    int64_t table_row[kPieces];
    uint4 codes[kPieces];
    uint32_t scales[kPieces];
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const uint32_t piece = first + i * kGatherThreads + threadIdx.x;
      table_row[i] = piece < pieces ? p.table_rows[piece / row_pieces] : -1;
    }
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const uint32_t channel = (first + i * kGatherThreads + threadIdx.x) % row_pieces * kPieceChannels;
      codes[i] = make_uint4(0, 0, 0, 0);
      scales[i] = 0;
      if (table_row[i] < 0) continue;
      codes[i] = load_codes(p.table + table_row[i] * p.dim + channel);
      scales[i] = __ldcs(p.table_scale + (table_row[i] * p.dim + channel) / kGroupChannels);
    }
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const int64_t piece = first + i * kGatherThreads + threadIdx.x;
      write_piece(codes[i], scales[i], p.out + piece * kPieceChannels, piece < pieces);
    }
  }
}

// ---- The gate ----

constexpr int kVectors = 2;  // of a thread
constexpr int kMaxThreads = 512;

struct Sums {
  float dot = 0;
  float stream_squares = 0;
  float key_squares = 0;
};

__device__ Sums block_sums(Sums s) {
  __shared__ float sums[3][kMaxThreads / 32];
  const int warp = static_cast<int>(threadIdx.x / 32);
  s = {warp_sum(s.dot), warp_sum(s.stream_squares), warp_sum(s.key_squares)};
  if (threadIdx.x % 32 == 0) {
    sums[0][warp] = s.dot;
    sums[1][warp] = s.stream_squares;
    sums[2][warp] = s.key_squares;
  }
  __syncthreads();
  Sums total;
  for (int w = 0; w < static_cast<int>(blockDim.x / 32); ++w) {
    total.dot += sums[0][w];
    total.stream_squares += sums[1][w];
    total.key_squares += sums[2][w];
  }
  return total;
}

__device__ void load_eight(const float* from, float v[kVectorChannels]) {
  const float4 a = __ldcg(reinterpret_cast<const float4*>(from)), b = __ldcg(reinterpret_cast<const float4*>(from) + 1);
  v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
}

__device__ void add_products(const uint4& stream, const float key[kVectorChannels], const uint4& q_weight,
                             const uint4& k_weight, Sums& s) {
#pragma unroll
  for (int i = 0; i < kVectorChannels; ++i) {
    const uint32_t hw = word_of(stream, i / 2), qw = word_of(q_weight, i / 2), kw = word_of(k_weight, i / 2);
    const float h = i % 2 == 0 ? low_channel(hw) : high_channel(hw);
    const float weight = i % 2 == 0 ? low_channel(qw) * low_channel(kw) : high_channel(qw) * high_channel(kw);
    s.dot = fmaf(h * weight, key[i], s.dot);
    s.stream_squares = fmaf(h, h, s.stream_squares);
    s.key_squares = fmaf(key[i], key[i], s.key_squares);
  }
}

__device__ float inverse_root_mean(float squares, const EngramGateParams& p) {
  return 1.0F / sqrtf(squares / static_cast<float>(p.hidden) + p.norm_eps);
}

__device__ float gate_of(const Sums& s, const EngramGateParams& p) {
  constexpr float kSmallest = 1e-6F;
  const float unit = inverse_root_mean(s.stream_squares, p) * inverse_root_mean(s.key_squares, p);
  const float dot = s.dot * unit / sqrtf(static_cast<float>(p.hidden));
  const float root = copysignf(sqrtf(fmaxf(fabsf(dot), kSmallest)), dot);
  return 1.0F / (1.0F + expf(-root));
}

// h + gate value, both results rounded as the reference rounds them.
__device__ float add_gated(float h, float gate, float value) {
  return __fadd_rn(h, __fmul_rn(gate, value));
}

// A block for each stream of each row.
__global__ __launch_bounds__(kMaxThreads) void gate_kernel(EngramGateParams p) {
  allow_next_launch();
  wait_for_previous_launch();
  const int64_t row = blockIdx.x / kStreams, j = blockIdx.x % kStreams;
  if (row >= *p.count) return;
  const float* key = p.kv + (row * (kStreams + 1) + j) * p.hidden;
  const float* value = p.kv + (row * (kStreams + 1) + kStreams) * p.hidden;
  __nv_bfloat16* stream = p.streams + (row * kStreams + j) * p.hidden;

  uint4 h[kVectors];
  float added[kVectors][kVectorChannels];
  Sums sums;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int64_t channel = (int64_t{v} * blockDim.x + threadIdx.x) * kVectorChannels;
    if (channel >= p.hidden) continue;
    h[v] = load_vector(stream + channel);
    load_eight(value + channel, added[v]);
    float keys[kVectorChannels];
    load_eight(key + channel, keys);
    add_products(h[v], keys, *reinterpret_cast<const uint4*>(p.q_weight + j * p.hidden + channel),
                 *reinterpret_cast<const uint4*>(p.k_weight + j * p.hidden + channel), sums);
  }
  const float gate = gate_of(block_sums(sums), p);
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int64_t channel = (int64_t{v} * blockDim.x + threadIdx.x) * kVectorChannels;
    if (channel >= p.hidden) continue;
    uint32_t words[kVectorChannels / 2];
#pragma unroll
    for (int w = 0; w < kVectorChannels / 2; ++w) {
      const uint32_t old = word_of(h[v], w);
      words[w] = pack_channels(add_gated(low_channel(old), gate, added[v][2 * w]),
                               add_gated(high_channel(old), gate, added[v][2 * w + 1]));
    }
    *reinterpret_cast<uint4*>(stream + channel) = make_uint4(words[0], words[1], words[2], words[3]);
  }
}

}  // namespace

void engram_gather(cudaStream_t stream, const EngramGatherParams& p) {
  if (p.most == 0 || p.columns == 0) return;
  GANNET_CHECK(p.dim % kGroupChannels == 0);
  constexpr int64_t kBlockPieces = kGatherThreads * kPieces;
  const int64_t pieces = p.most * p.columns * (p.dim / kPieceChannels);
  const int64_t limit = p.half_of_device ? kGatherBlocks : 8 * kGatherBlocks;
  const auto blocks = static_cast<unsigned>(std::min(limit, (pieces + kBlockPieces - 1) / kBlockPieces));
  gather_kernel<<<blocks, kGatherThreads, 0, stream>>>(p);
  GANNET_CUDA_LAUNCHED();
}

void engram_gate(cudaStream_t stream, const EngramGateParams& p) {
  if (p.most == 0) return;
  GANNET_CHECK(p.hidden % kVectorChannels == 0 && p.hidden <= kVectorChannels * kVectors * kMaxThreads);
  const int64_t threads = (p.hidden / kVectorChannels + kVectors - 1) / kVectors;
  const auto warps = static_cast<unsigned>((threads + 31) / 32);
  launch_overlapping(stream, gate_kernel, {.grid = static_cast<unsigned>(p.most * kStreams), .threads = warps * 32}, p);
}

}  // namespace gannet::ops::cuda

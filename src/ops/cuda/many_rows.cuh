#pragma once

#include <cuda_bf16.h>

#include <cstddef>
#include <cstdint>

#include "ops/cuda/fragment.cuh"
#include "ops/cuda/packed_matrix.h"
#include "ops/cuda/quantize.cuh"
#include "ops/cuda/wgmma.cuh"

// The kernel behind linear_many_rows and experts_many_rows: y^T = W x^T, so that the weight is the operand that the
// tensor cores take from registers, where it is decoded, and the tokens the one they take from shared memory.
//
// A block stays on its multiprocessor and works off items: 128 or 256 rows of a weight by up to kTokens tokens. The
// third warpgroup brings stages of 64 columns into shared memory, by tensor maps or, where token rows lie anywhere, by
// copies of 16 bytes; the first two multiply, each its own rows: while the products of 32 columns run, the weights of
// the next 32 are decoded.
namespace gannet::ops::cuda::many_rows {

enum class Output {
  f32,
  bf16,
  q8,      // values of Q8 over 32 outputs, as bf16
  swiglu,  // the weight is a gate-up pair: Q8(swiglu * weight of the row), half as many outputs
};

// Rows of a weight by tokens. Tokens are given by their position in the source's list.
struct Item {
  // Without tensor maps: the first panel and how many there are from it on; the block's others repeat the last.
  const std::byte* panels = nullptr;
  int panel_count = 0;
  int panel = 0;     // with tensor maps: the first panel's number
  float factor = 1;  // of the results
  int group = 0;     // run of columns of x
  int first = 0;
  int tokens = 0;
  int first_output = 0;
  int end_output = 0;
};

// What all items share. The source of a kernel says the rest:
//   int items()                   how many there are
//   Item item(int index)
//   int64_t input_row(int position), int64_t output_row(int position), float row_weight(int position)
//   kTensorMaps                   whether it has tensor maps that bring a stage: input (column, group, position), and
//                                 codes and scales (8 bytes, panel)
struct Shape {
  const __nv_bfloat16* x = nullptr;
  int64_t x_stride = 0;
  int cols = 0;
  int k_tiles = 0;  // of 64 columns
  int64_t panel_bytes = 0;
  float limit = 0;  // of swiglu
  void* y = nullptr;
  int64_t y_stride = 0;
  bool wide_stores = false;  // y's rows allow stores of 16 bytes
};

inline constexpr int kMultipliers = 2;  // warpgroups
inline constexpr int kThreads = 128 * (kMultipliers + 1);
inline constexpr int kChunk = 32;  // tokens that go through shared memory at a time on their way out

// A panel's scales of four tiles.
template <WeightFormat format>
inline constexpr int kScaleGroupBytes = format == WeightFormat::mxfp4 ? 128
                                        : format == WeightFormat::fp8 ? 16
                                                                      : 0;

// Shared memory of a block. A warpgroup's part of the output is transposed in `out`.
template <WeightFormat format, Output output, int kHeight, int kTokens, int kStages>
struct Layout {
  static constexpr int kPanels = kMultipliers * kHeight * 4;
  static constexpr int kTokenBytes = kTokens * 128;
  static constexpr int kTileBytes = static_cast<int>(tile_bytes(format));
  static constexpr int kWeightBytes = kPanels * kTileBytes;
  static constexpr int kScaleBytes = kScaleGroupBytes<format>;
  static constexpr int kOutRows = output == Output::swiglu ? 32 : 64;
  static constexpr int kOutStride = kOutRows + 4;  // neither writing by rows nor reading by tokens meets a bank twice

  alignas(1024) std::byte tokens[kStages][kTokenBytes];
  alignas(128) std::byte weights[kStages][kWeightBytes];
  alignas(128) std::byte
      scales[kStages][kScaleBytes > 0 ? kPanels* kScaleBytes : 128];  // in every fourth stage, for the next four
  alignas(16) float out[kMultipliers][2][kChunk][kOutStride];
  int output_rows[kMultipliers][kTokens];
  float row_weights[kMultipliers][kTokens];
  uint64_t full[kStages];
  uint64_t empty[kStages];
};

// A place in the ring of stages.
template <int kStages>
struct Ring {
  int stage = 0;
  uint32_t parity = 0;

  __device__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// ---- weights ----

// One panel's packed weights of 64 columns in the registers of a warp; decoded 32 columns, two steps, at a time.
template <WeightFormat format>
struct PackedTile {
  uint4 words[format == WeightFormat::bf16 ? 2 : 1];

  template <int half>
  __device__ void load(const std::byte* tile, int lane) {
    const auto* vectors = reinterpret_cast<const uint4*>(tile) + lane;
    if constexpr (format == WeightFormat::mxfp4) {
      if constexpr (half == 0) words[0] = vectors[0];
    } else if constexpr (format == WeightFormat::fp8) {
      words[0] = vectors[32 * half];
    } else {
      words[0] = vectors[64 * half];
      words[1] = vectors[64 * half + 32];
    }
  }

  template <int half>
  __device__ void decode(uint32_t scales, uint32_t (&a)[2][4]) const {
    if constexpr (format == WeightFormat::mxfp4) {
      const uint32_t low = scale_factors(__byte_perm(scales, 0, 0x4440 + half));
      const uint32_t high = scale_factors(__byte_perm(scales, 0, 0x4442 + half));
      decode_mxfp4(half == 0 ? words[0].x : words[0].z, low, high, a[0]);
      decode_mxfp4(half == 0 ? words[0].y : words[0].w, low, high, a[1]);
    } else if constexpr (format == WeightFormat::fp8) {
      const uint32_t low = scale_factors(__byte_perm(scales, 0, 0x4440 + 2 * half));
      const uint32_t high = scale_factors(__byte_perm(scales, 0, 0x4441 + 2 * half));
      decode_fp8(words[0].x, low, a[0][0], a[0][2]);
      decode_fp8(words[0].y, high, a[0][1], a[0][3]);
      decode_fp8(words[0].z, low, a[1][0], a[1][2]);
      decode_fp8(words[0].w, high, a[1][1], a[1][3]);
    } else {
      for (int step = 0; step < 2; ++step) {
        a[step][0] = words[step].x;
        a[step][1] = words[step].y;
        a[step][2] = words[step].z;
        a[step][3] = words[step].w;
      }
    }
  }
};

// A panel's scales of four tiles, a word each.
template <WeightFormat format>
struct Scales {
  uint4 words;

  __device__ void load(const std::byte* group, int lane) {
    words = *reinterpret_cast<const uint4*>(group + (format == WeightFormat::mxfp4 ? lane / 4 * 16 : 0));
  }
  // To the next tile's.
  __device__ void advance() { words = make_uint4(words.y, words.z, words.w, 0); }
};

// ---- products ----

// d[h][..] = the sums of this warpgroup's 64 rows h for n tokens.
template <int n, WeightFormat format, int kHeight, int kTokens, int kStages, class Memory>
__device__ __forceinline__ void multiply_item(float (&d)[kHeight][kTokens / 2], Memory& memory, Ring<kStages>& ring,
                                              const Item& item, const Shape& shape, int warpgroup) {
  const int warp = static_cast<int>(threadIdx.x) % 128 / 32, lane = static_cast<int>(threadIdx.x) % 32;
  Scales<format> scales[kHeight];
  PackedTile<format> packed[kHeight];
  uint32_t a[2][kHeight][2][4];
  const auto panel = [&](int h) { return (warpgroup * kHeight + h) * 4 + warp; };
  const auto tile = [&](int h) { return memory.weights[ring.stage] + panel(h) * Memory::kTileBytes; };
  const auto load_first_half = [&](int k) {
#pragma unroll
    for (int h = 0; h < kHeight; ++h) {
      packed[h].template load<0>(tile(h), lane);
      if constexpr (Memory::kScaleBytes > 0) {
        scales[h].advance();
        if (k % 4 == 0) scales[h].load(memory.scales[ring.stage] + panel(h) * Memory::kScaleBytes, lane);
      }
    }
  };

  barrier_wait(&memory.full[ring.stage], ring.parity);
  load_first_half(0);
#pragma unroll
  for (int h = 0; h < kHeight; ++h) packed[h].template decode<0>(scales[h].words.x, a[0][h]);

  int previous_stage = 0;
  for (int k = 0; k < shape.k_tiles; ++k) {
    const uint64_t b = swizzled_tile(memory.tokens[ring.stage]);
    products_begin();
#pragma unroll
    for (int step = 0; step < 2; ++step) {
#pragma unroll
      for (int h = 0; h < kHeight; ++h) multiply_add<n>(d[h], a[0][h][step], b + 2 * step, k + step);
    }
    products_commit();
#pragma unroll
    for (int h = 0; h < kHeight; ++h) packed[h].template load<1>(tile(h), lane);
    products_wait<1>();
    if (k > 0 && lane == 0) barrier_arrive(&memory.empty[previous_stage]);
#pragma unroll
    for (int h = 0; h < kHeight; ++h) packed[h].template decode<1>(scales[h].words.x, a[1][h]);

    products_begin();
#pragma unroll
    for (int step = 0; step < 2; ++step) {
#pragma unroll
      for (int h = 0; h < kHeight; ++h) multiply_add<n>(d[h], a[1][h][step], b + 4 + 2 * step, 1);
    }
    products_commit();
    previous_stage = ring.stage;
    ring.advance();
    if (k + 1 == shape.k_tiles) break;
    barrier_wait(&memory.full[ring.stage], ring.parity);
    load_first_half(k + 1);
    products_wait<1>();
#pragma unroll
    for (int h = 0; h < kHeight; ++h) packed[h].template decode<0>(scales[h].words.x, a[0][h]);
  }
  products_wait<0>();
  if (lane == 0) barrier_arrive(&memory.empty[previous_stage]);
#pragma unroll
  for (int h = 0; h < kHeight; ++h) {
#pragma unroll
    for (int i = 0; i < n / 2; ++i) asm volatile("" : "+f"(d[h][i])::"memory");
  }
}

// The narrowest product that holds the item's tokens: of n, 2 n, .. 64, then in steps of 32.
template <int n, WeightFormat format, int kHeight, int kTokens, int kStages, class Memory>
__device__ __forceinline__ void multiply_narrow(float (&d)[kHeight][kTokens / 2], Memory& memory, Ring<kStages>& ring,
                                                const Item& item, const Shape& shape, int warpgroup) {
  if constexpr (n < kTokens) {
    if (item.tokens > n)
      return multiply_narrow<(n < 64 ? 2 * n : n + 32), format, kHeight, kTokens>(d, memory, ring, item, shape,
                                                                                  warpgroup);
  }
  multiply_item<n, format, kHeight, kTokens>(d, memory, ring, item, shape, warpgroup);
}

// ---- results ----

__device__ inline float swiglu(float gate, float up, float limit) {
  const float a = fminf(gate, limit);
  return __fdividef(a, 1.0F + __expf(-a)) * fminf(fmaxf(up, -limit), limit);
}

__device__ inline uint32_t bf16_pair(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

__device__ inline void store_four(float* to, float4 v, int room, bool wide) {
  if (wide && room >= 4) {
    *reinterpret_cast<float4*>(to) = v;
    return;
  }
  if (room > 0) to[0] = v.x;
  if (room > 1) to[1] = v.y;
  if (room > 2) to[2] = v.z;
  if (room > 3) to[3] = v.w;
}

__device__ inline void store_eight(__nv_bfloat16* to, const float (&v)[8], int room, bool wide) {
  if (wide && room >= 8) {
    *reinterpret_cast<uint4*>(to) =
        make_uint4(bf16_pair(v[0], v[1]), bf16_pair(v[2], v[3]), bf16_pair(v[4], v[5]), bf16_pair(v[6], v[7]));
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (i < room) to[i] = __float2bfloat16(v[i]);
  }
}

// Rounds 8 values of a group of 32 that this lane holds with lanes 8, 16 and 24 further on.
__device__ inline void round_group(float (&v)[8]) {
  float most = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) most = fmaxf(most, fabsf(v[i]));
  most = fmaxf(most, __shfl_xor_sync(~0U, most, 8));
  most = fmaxf(most, __shfl_xor_sync(~0U, most, 16));
  const uint32_t scale = q8_scale(most);
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = q8_round(v[i], scale);
}

// The sums of 64 rows and 32 tokens into shared memory, transposed.
template <Output output, class Out>
__device__ __forceinline__ void put_chunk(Out& out, const float* d, float factor, float limit) {
  const int warp = static_cast<int>(threadIdx.x) % 128 / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int j = 0; j < kChunk / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float* row = out[8 * j + 2 * t + i];
      const float low = d[4 * j + i] * factor, high = d[4 * j + 2 + i] * factor;
      if constexpr (output == Output::swiglu) {
        row[8 * warp + g] = swiglu(low, high, limit);
      } else {
        row[16 * warp + g] = low;
        row[16 * warp + g + 8] = high;
      }
    }
  }
}

// One token's outputs from shared memory to y; four lanes share a token.
template <Output output, int kOutRows>
__device__ __forceinline__ void write_token(const float* out, float weight, void* y, int room, bool wide) {
  const int quarter = static_cast<int>(threadIdx.x) % 32 / 8;
  if constexpr (output == Output::f32) {
#pragma unroll
    for (int column = 4 * quarter; column < kOutRows; column += 16) {
      store_four(static_cast<float*>(y) + column, *reinterpret_cast<const float4*>(out + column), room - column, wide);
    }
  } else {
#pragma unroll
    for (int column = 8 * quarter; column < kOutRows; column += 32) {
      const float4 low = *reinterpret_cast<const float4*>(out + column);
      const float4 high = *reinterpret_cast<const float4*>(out + column + 4);
      float v[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
      if constexpr (output == Output::swiglu) {
#pragma unroll
        for (float& value : v) value *= weight;
      }
      if constexpr (output != Output::bf16) round_group(v);
      store_eight(static_cast<__nv_bfloat16*>(y) + column, v, room - column, wide);
    }
  }
}

template <Output output, int kHeight, int kTokens, class Memory>
__device__ __forceinline__ void write_item(const float (&d)[kHeight][kTokens / 2], Memory& memory, const Item& item,
                                           const Shape& shape, int warpgroup) {
  constexpr int64_t kElement = output == Output::f32 ? sizeof(float) : sizeof(__nv_bfloat16);
  const int warp = static_cast<int>(threadIdx.x) % 128 / 32, lane = static_cast<int>(threadIdx.x) % 32;
  int buffer = 0;
#pragma unroll
  for (int h = 0; h < kHeight; ++h) {
    const int first_output = item.first_output + (warpgroup * kHeight + h) * Memory::kOutRows;
#pragma unroll
    for (int chunk = 0; chunk < kTokens / kChunk; ++chunk) {
      if (chunk * kChunk >= item.tokens) break;
      auto& out = memory.out[warpgroup][buffer];
      buffer ^= 1;
      put_chunk<output>(out, d[h] + chunk * kChunk / 2, item.factor, shape.limit);
      sync_warpgroup(1 + warpgroup);
      const int in_chunk = 8 * warp + lane % 8, token = chunk * kChunk + in_chunk;
      const bool real = token < item.tokens;
      const int64_t row = real ? memory.output_rows[warpgroup][token] : 0;
      const float weight = output == Output::swiglu && real ? memory.row_weights[warpgroup][token] : 1.0F;
      std::byte* y = static_cast<std::byte*>(shape.y) + (row * shape.y_stride + first_output) * kElement;
      write_token<output, Memory::kOutRows>(out[in_chunk], weight, y, real ? item.end_output - first_output : 0,
                                            shape.wide_stores);
    }
  }
}

// ---- warpgroups ----

template <WeightFormat format, Output output, int kHeight, int kTokens, int kStages, class Source, class Memory>
__device__ __forceinline__ void multiply_items(Memory& memory, const Source& source, const Shape& shape) {
  const int warpgroup = static_cast<int>(threadIdx.x) / 128, thread = static_cast<int>(threadIdx.x) % 128;
  Ring<kStages> ring;
  const int items = source.items();
  for (int index = static_cast<int>(blockIdx.x); index < items; index += static_cast<int>(gridDim.x)) {
    const Item item = source.item(index);
    sync_warpgroup(1 + warpgroup);  // the item before has been written
    for (int i = thread; i < item.tokens; i += 128) {
      memory.output_rows[warpgroup][i] = static_cast<int>(source.output_row(item.first + i));
      if constexpr (output == Output::swiglu) memory.row_weights[warpgroup][i] = source.row_weight(item.first + i);
    }
    float d[kHeight][kTokens / 2];
    if constexpr (Source::kTensorMaps) {
      multiply_item<kTokens, format, kHeight, kTokens>(d, memory, ring, item, shape, warpgroup);
    } else {
      multiply_narrow<16, format, kHeight, kTokens>(d, memory, ring, item, shape, warpgroup);
    }
    write_item<output, kHeight, kTokens>(d, memory, item, shape, warpgroup);
  }
}

// Stages by tensor maps: one thread does it all.
template <int kStages, class Source, class Memory>
__device__ __forceinline__ void bring_boxes(Memory& memory, const Source& source, const Shape& shape) {
  if (threadIdx.x % 128 != 0) return;
  Ring<kStages> ring;
  const int items = source.items();
  for (int index = static_cast<int>(blockIdx.x); index < items; index += static_cast<int>(gridDim.x)) {
    const Item item = source.item(index);
    for (int k = 0; k < shape.k_tiles; ++k, ring.advance()) {
      const int stage = ring.stage;
      uint64_t* full = &memory.full[stage];
      const bool with_scales = Memory::kScaleBytes > 0 && k % 4 == 0;
      barrier_wait(&memory.empty[stage], ring.parity ^ 1);
      barrier_arrive_expecting(
          full, Memory::kTokenBytes + Memory::kWeightBytes + (with_scales ? Memory::kPanels * Memory::kScaleBytes : 0));
      copy_box(memory.tokens[stage], &source.input, k * static_cast<int>(kTileCols), item.group, item.first, full);
      copy_box(memory.weights[stage], &source.codes, k * Memory::kTileBytes / 8, item.panel, full);
      if (with_scales) {
        const int group = shape.k_tiles * Memory::kTileBytes + k / 4 * Memory::kScaleBytes;
        copy_box(memory.scales[stage], &source.scales, group / 8, item.panel, full);
      }
    }
  }
}

// Stages by copies of 16 bytes, token rows from anywhere. A stage is reported full kLag stages later, when its copies
// have arrived.
template <int kTokens, int kStages, class Source, class Memory>
__device__ __forceinline__ void bring_rows(Memory& memory, const Source& source, const Shape& shape) {
  constexpr int kLag = kStages - 2;  // multipliers give a stage back when they have begun the next
  constexpr int kRows = (kTokens + 15) / 16;
  constexpr int kTileChunks = Memory::kTileBytes / 16, kScaleChunks = Memory::kScaleBytes / 16;
  constexpr int kWeightCopies = Memory::kPanels * kTileChunks / 128;
  static_assert(Memory::kPanels * kScaleChunks == 128);
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const int chunk = thread % 8, first_row = thread / 8;  // of the tokens' rows
  Ring<kStages> ring, landed;
  int in_flight = 0;
  const auto report = [&] {
    fence_async_proxy();
    __syncwarp();
    if (thread % 32 == 0) barrier_arrive(&memory.full[landed.stage]);
    landed.advance();
  };

  const int items = source.items();
  for (int index = static_cast<int>(blockIdx.x); index < items; index += static_cast<int>(gridDim.x)) {
    const Item item = source.item(index);
    const __nv_bfloat16* x = shape.x + 8 * chunk;
    const int rows = (item.tokens - first_row + 15) / 16;  // real ones of this thread
    const int padded = (item.tokens + 15) / 16;            // with the zeros that fill the product
    uint32_t offsets[kRows];                               // in 16 bytes
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int64_t row = i < rows ? source.input_row(item.first + first_row + 16 * i) : 0;
      offsets[i] = static_cast<uint32_t>(row * shape.x_stride / 8);
    }
    const auto panel = [&](int p) { return item.panels + min(p, item.panel_count - 1) * shape.panel_bytes; };
    const std::byte* codes[kWeightCopies];
#pragma unroll
    for (int i = 0; i < kWeightCopies; ++i) {
      const int place = thread + 128 * i;
      codes[i] = panel(place / kTileChunks) + place % kTileChunks * 16;
    }
    const std::byte* scales =
        panel(thread / kScaleChunks) + shape.k_tiles * Memory::kTileBytes + thread % kScaleChunks * 16;

    for (int k = 0; k < shape.k_tiles; ++k, ring.advance()) {
      barrier_wait(&memory.empty[ring.stage], ring.parity ^ 1);
#pragma unroll
      for (int i = 0; i < kWeightCopies; ++i) {
        copy_async_16(memory.weights[ring.stage] + (thread + 128 * i) * 16, codes[i]);
        codes[i] += Memory::kTileBytes;
      }
      if (k % 4 == 0) {
        copy_async_16(memory.scales[ring.stage] + thread * 16, scales);
        scales += Memory::kScaleBytes;
      }
      const bool inside = k * static_cast<int>(kTileCols) + 8 * chunk < shape.cols;
      std::byte* to = memory.tokens[ring.stage] + first_row * 128 + (chunk ^ first_row % 8) * 16;
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        if (i >= padded) break;
        copy_async_16(to + i * 2048, reinterpret_cast<const uint4*>(x) + offsets[i], inside && i < rows);
      }
      x += kTileCols;
      commit_copies();
      if (in_flight < kLag) {
        ++in_flight;
      } else {
        wait_copies<kLag>();
        report();
      }
    }
  }
  wait_copies<0>();
  for (; in_flight > 0; --in_flight) report();
}

template <WeightFormat format, Output output, int kHeight, int kTokens, int kStages, class Source>
__global__ void __launch_bounds__(kThreads, 1)
    multiply(const __grid_constant__ Source source, const __grid_constant__ Shape shape) {
  using Memory = Layout<format, output, kHeight, kTokens, kStages>;
  extern __shared__ std::byte raw_memory[];
  auto& memory = *reinterpret_cast<Memory*>(raw_memory + (1024 - shared_address(raw_memory) % 1024) % 1024);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      barrier_init(&memory.full[stage], Source::kTensorMaps ? 1 : 4);
      barrier_init(&memory.empty[stage], kMultipliers * 4);
    }
    barrier_init_done();
  }
  __syncthreads();
  // 224 x 256 + 56 x 128 registers are what 384 threads have.
  if (threadIdx.x >= kMultipliers * 128) {
    give_registers<56>();
    if constexpr (Source::kTensorMaps) {
      bring_boxes<kStages>(memory, source, shape);
    } else {
      bring_rows<kTokens, kStages>(memory, source, shape);
    }
  } else {
    take_registers<224>();
    multiply_items<format, output, kHeight, kTokens, kStages>(memory, source, shape);
  }
}

// ---- host ----

int multiprocessors();

template <WeightFormat format, Output output, int kHeight, int kTokens, int kStages, class Source>
void launch(cudaStream_t stream, const Source& source, const Shape& shape, int64_t most_items) {
  constexpr auto kBytes = static_cast<int>(sizeof(Layout<format, output, kHeight, kTokens, kStages>)) + 1024;
  static_assert(kBytes <= 227 * 1024);
  const auto kernel = multiply<format, output, kHeight, kTokens, kStages, Source>;
  static const bool once = [&] {
    GANNET_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
    return true;
  }();
  static_cast<void>(once);
  const auto blocks = static_cast<unsigned>(most_items < multiprocessors() ? most_items : multiprocessors());
  kernel<<<blocks, kThreads, kBytes, stream>>>(source, shape);
  GANNET_CUDA_LAUNCHED();
}

}  // namespace gannet::ops::cuda::many_rows

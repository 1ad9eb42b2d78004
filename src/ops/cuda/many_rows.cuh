#pragma once

#include <cuda_bf16.h>

#include <cstddef>
#include <cstdint>

#include "ops/cuda/fragment.cuh"
#include "ops/cuda/packed_matrix.h"
#include "ops/cuda/vectors.cuh"
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

inline constexpr int kChunk = 32;  // tokens that go through shared memory at a time on their way out

// Form of a block. Products of several widths in one kernel share their sums' registers only as long as the compiler
// finds few of them (it warns that products are serialized otherwise): hence the steps of multiply_narrow.
template <WeightFormat format_, Output output_, int groups, int height, int tokens, int stages, int narrowest = tokens>
struct Form {
  static constexpr WeightFormat format = format_;
  static constexpr Output output = output_;
  static constexpr int kGroups = groups;  // warpgroups that multiply
  static constexpr int kHeight = height;  // each 64 rows so many times
  static constexpr int kTokens = tokens;
  static constexpr int kStages = stages;
  static constexpr int kNarrowest = narrowest;  // tokens of the narrowest product

  static constexpr int kThreads = 128 * (kGroups + 1);
  static constexpr int kPanels = kGroups * kHeight * 4;
  static constexpr int kTileBytes = static_cast<int>(tile_bytes(format));
  static constexpr int kScaleBytes = format == WeightFormat::mxfp4 ? 128 : format == WeightFormat::fp8 ? 16 : 0;
  static constexpr int kOutRows = output == Output::swiglu ? 32 : 64;
  // Registers of a thread; together those with which the threads begin.
  static constexpr int kMultiplyRegisters = kGroups == 2 ? 224 : kGroups == 3 ? 152 : 104;
  static constexpr int kCopyRegisters = kGroups == 4 ? 64 : 56;
};

// Shared memory of a block. A warpgroup's part of the output is transposed in `out`.
template <class F>
struct Layout {
  static constexpr int kOutBuffers = F::kGroups == 2 ? 2 : 1;
  static constexpr int kOutStride = F::kOutRows + 4;  // neither writing rows nor reading tokens meets a bank twice
  static constexpr int kStageScales = (F::kPanels * F::kScaleBytes + 127) / 128 * 128;

  alignas(1024) std::byte tokens[F::kStages][F::kTokens * 128];
  alignas(128) std::byte weights[F::kStages][F::kPanels * F::kTileBytes];
  alignas(128) std::byte scales[F::kStages][kStageScales > 0 ? kStageScales : 128];  // in every fourth, for four tiles
  alignas(16) float out[F::kGroups][kOutBuffers][kChunk][kOutStride];
  int output_rows[F::kGroups][F::kTokens];
  float row_weights[F::kGroups][F::kTokens];
  uint64_t full[F::kStages];
  uint64_t empty[F::kStages];
};

// A place in the ring of stages. `full` ends a phase when the stage's bytes are there (one arrival announces those of
// tensor maps; of other copies each of the 128 threads' arrives for itself), `empty` when each multiplying warp has
// released it; each phase of one needs the one before of the other, so that one bit of parity tells them apart.
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
  uint4 words[format == WeightFormat::bf16 ? 4 : format == WeightFormat::fp8 ? 2 : 1];

  template <int half>
  __device__ void load(const std::byte* tile, int lane) {
    const auto* vectors = reinterpret_cast<const uint4*>(tile) + lane;
    if constexpr (format == WeightFormat::mxfp4) {
      if constexpr (half == 0) words[0] = vectors[0];
    } else if constexpr (format == WeightFormat::fp8) {
      words[half] = vectors[32 * half];
    } else {
      words[2 * half] = vectors[64 * half];
      words[2 * half + 1] = vectors[64 * half + 32];
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
      decode_fp8(words[half].x, low, a[0][0], a[0][2]);
      decode_fp8(words[half].y, high, a[0][1], a[0][3]);
      decode_fp8(words[half].z, low, a[1][0], a[1][2]);
      decode_fp8(words[half].w, high, a[1][1], a[1][3]);
    } else {
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        a[step][0] = words[2 * half + step].x;
        a[step][1] = words[2 * half + step].y;
        a[step][2] = words[2 * half + step].z;
        a[step][3] = words[2 * half + step].w;
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

// d[h][..] = the sums of this warpgroup's 64 rows h for n tokens. Weights are decoded into one half of `a` while
// products read the other.
template <int n, bool kTensorMaps, class F>
__device__ __forceinline__ void multiply_item(float (&d)[F::kHeight][F::kTokens / 2], Layout<F>& memory,
                                              Ring<F::kStages>& ring, const Shape& shape, int warpgroup) {
  constexpr int kHeight = F::kHeight;
  const int warp = static_cast<int>(threadIdx.x) % 128 / 32, lane = static_cast<int>(threadIdx.x) % 32;
  Scales<F::format> scales[kHeight];
  PackedTile<F::format> packed[kHeight];
  uint32_t a[2][kHeight][2][4];
  int k = 0, previous_stage = 0;

  const auto panel = [&](int h) { return (warpgroup * kHeight + h) * 4 + warp; };
  const auto wait_for_stage = [&] {
    wait_barrier(&memory.full[ring.stage], ring.parity);
    if constexpr (!kTensorMaps) fence_async_proxy();
  };
  // Always behind a wait for the stage's products. These have taken what every lane of the warp had decoded, so that
  // its loads too have ended, and lane 0 may speak for all.
  const auto release = [&](int stage) {
    if (lane == 0) arrive(&memory.empty[stage]);
  };
  const auto load = [&]<int half>() {
#pragma unroll
    for (int h = 0; h < kHeight; ++h) {
      packed[h].template load<half>(memory.weights[ring.stage] + panel(h) * F::kTileBytes, lane);
      if constexpr (half == 0 && F::kScaleBytes > 0) {
        scales[h].advance();
        if (k % 4 == 0) scales[h].load(memory.scales[ring.stage] + panel(h) * F::kScaleBytes, lane);
      }
    }
  };
  // What needs no decoding would be loaded into the registers that products still read.
  const auto load_and_wait = [&]<int half>() {
    if constexpr (F::format != WeightFormat::bf16) load.template operator()<half>();
    products_wait<1>();
    if constexpr (F::format == WeightFormat::bf16) load.template operator()<half>();
  };
  const auto decode = [&]<int half>(int buffer) {
#pragma unroll
    for (int h = 0; h < kHeight; ++h) packed[h].template decode<half>(scales[h].words.x, a[buffer][h]);
  };
  const auto multiply = [&](int buffer, int first_step) {
    const uint64_t b = swizzled_operand(shared_address(memory.tokens[ring.stage])) + 2 * first_step;
    products_begin();
#pragma unroll
    for (int step = 0; step < 2; ++step) {
#pragma unroll
      for (int h = 0; h < kHeight; ++h) multiply_add<n>(d[h], a[buffer][h][step], b + 2 * step, k + first_step + step);
    }
    products_commit();
  };

  wait_for_stage();
  load.template operator()<0>();
  decode.template operator()<0>(0);
  while (true) {
    multiply(0, 0);
    load_and_wait.template operator()<1>();
    if (k > 0) release(previous_stage);
    decode.template operator()<1>(1);

    multiply(1, 2);
    previous_stage = ring.stage;
    ring.advance();
    if (++k == shape.k_tiles) break;
    wait_for_stage();
    load_and_wait.template operator()<0>();
    decode.template operator()<0>(0);
  }
  products_wait<0>();
  release(previous_stage);
#pragma unroll
  for (int h = 0; h < kHeight; ++h) pin_registers(d[h]);
}

// The narrowest product that holds the item's tokens, from n on.
template <int n, class F>
__device__ __forceinline__ void multiply_narrow(float (&d)[F::kHeight][F::kTokens / 2], Layout<F>& memory,
                                                Ring<F::kStages>& ring, int tokens, const Shape& shape, int warpgroup) {
  if constexpr (n < F::kTokens) {
    constexpr int kNext = n < 64 ? 2 * n : n + 32;
    if (tokens > n) return multiply_narrow<kNext, F>(d, memory, ring, tokens, shape, warpgroup);
  }
  multiply_item<n, false, F>(d, memory, ring, shape, warpgroup);
}

// ---- results ----

__device__ inline float swiglu(float gate, float up, float limit) {
  const float a = fminf(gate, limit);
  return __fdividef(a, 1.0F + __expf(-a)) * fminf(fmaxf(up, -limit), limit);
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
    *reinterpret_cast<uint4*>(to) = make_uint4(pack_channels(v[0], v[1]), pack_channels(v[2], v[3]),
                                               pack_channels(v[4], v[5]), pack_channels(v[6], v[7]));
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

template <class F>
__device__ __forceinline__ void write_item(const float (&d)[F::kHeight][F::kTokens / 2], Layout<F>& memory,
                                           const Item& item, const Shape& shape, int warpgroup) {
  constexpr int64_t kElement = F::output == Output::f32 ? sizeof(float) : sizeof(__nv_bfloat16);
  const int warp = static_cast<int>(threadIdx.x) % 128 / 32, lane = static_cast<int>(threadIdx.x) % 32;
  int buffer = 0;
#pragma unroll
  for (int h = 0; h < F::kHeight; ++h) {
    const int first_output = item.first_output + (warpgroup * F::kHeight + h) * F::kOutRows;
#pragma unroll
    for (int chunk = 0; chunk < F::kTokens / kChunk; ++chunk) {
      if (chunk * kChunk >= item.tokens) break;
      if constexpr (Layout<F>::kOutBuffers == 1) sync_warpgroup(1 + warpgroup);
      auto& out = memory.out[warpgroup][buffer];
      buffer = (buffer + 1) % Layout<F>::kOutBuffers;
      put_chunk<F::output>(out, d[h] + chunk * kChunk / 2, item.factor, shape.limit);
      sync_warpgroup(1 + warpgroup);
      const int in_chunk = 8 * warp + lane % 8, token = chunk * kChunk + in_chunk;
      const bool real = token < item.tokens;
      const int64_t row = real ? memory.output_rows[warpgroup][token] : 0;
      const float weight = F::output == Output::swiglu && real ? memory.row_weights[warpgroup][token] : 1.0F;
      std::byte* y = static_cast<std::byte*>(shape.y) + (row * shape.y_stride + first_output) * kElement;
      write_token<F::output, F::kOutRows>(out[in_chunk], weight, y, real ? item.end_output - first_output : 0,
                                          shape.wide_stores);
    }
  }
}

// ---- warpgroups ----

template <class F, class Source>
__device__ __forceinline__ void multiply_items(Layout<F>& memory, const Source& source, const Shape& shape) {
  constexpr int kRounds = (F::kTokens + 127) / 128;
  const int warpgroup = static_cast<int>(threadIdx.x) / 128, thread = static_cast<int>(threadIdx.x) % 128;
  Ring<F::kStages> ring;
  const int items = source.items();
  int index = static_cast<int>(blockIdx.x);
  if (index >= items) return;
  Item item = source.item(index);
  while (true) {
    // On their way while the products run.
    int rows[kRounds];
    float weights[kRounds];
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      const int token = thread + 128 * i;
      if (token >= item.tokens) break;
      rows[i] = static_cast<int>(source.output_row(item.first + token));
      if constexpr (F::output == Output::swiglu) weights[i] = source.row_weight(item.first + token);
    }
    float d[F::kHeight][F::kTokens / 2];
    if constexpr (Source::kTensorMaps) {
      multiply_item<F::kTokens, true, F>(d, memory, ring, shape, warpgroup);
    } else {
      // All are set, so that the products of all widths find them in the same registers.
#pragma unroll
      for (int h = 0; h < F::kHeight; ++h) {
#pragma unroll
        for (int i = 0; i < F::kTokens / 2; ++i) asm volatile("mov.f32 %0, 0f00000000;" : "=f"(d[h][i]));
      }
      multiply_narrow<F::kNarrowest, F>(d, memory, ring, item.tokens, shape, warpgroup);
    }
    index += static_cast<int>(gridDim.x);
    const Item next = index < items ? source.item(index) : Item{};
    sync_warpgroup(1 + warpgroup);  // the item before has been written
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      const int token = thread + 128 * i;
      if (token >= item.tokens) break;
      memory.output_rows[warpgroup][token] = rows[i];
      if constexpr (F::output == Output::swiglu) memory.row_weights[warpgroup][token] = weights[i];
    }
    write_item<F>(d, memory, item, shape, warpgroup);
    if (index >= items) return;
    item = next;
  }
}

// Stages by tensor maps: one thread does it all.
template <class F, class Source>
__device__ __forceinline__ void bring_boxes(Layout<F>& memory, const Source& source, const Shape& shape) {
  if (threadIdx.x % 128 != 0) return;
  Ring<F::kStages> ring;
  const int items = source.items();
  for (int index = static_cast<int>(blockIdx.x); index < items; index += static_cast<int>(gridDim.x)) {
    const Item item = source.item(index);
    for (int k = 0; k < shape.k_tiles; ++k, ring.advance()) {
      const int stage = ring.stage;
      uint64_t* full = &memory.full[stage];
      const bool with_scales = F::kScaleBytes > 0 && k % 4 == 0;
      wait_barrier(&memory.empty[stage], ring.parity ^ 1);
      arrive_expecting(full,
                       F::kTokens * 128 + F::kPanels * F::kTileBytes + (with_scales ? F::kPanels * F::kScaleBytes : 0));
      copy_box(memory.tokens[stage], &source.input, k * static_cast<int>(kTileCols), item.group, item.first, full);
      copy_box(memory.weights[stage], &source.codes, k * F::kTileBytes / 8, item.panel, full);
      if (with_scales) {
        const int group = shape.k_tiles * F::kTileBytes + k / 4 * F::kScaleBytes;
        copy_box(memory.scales[stage], &source.scales, group / 8, item.panel, full);
      }
    }
  }
}

// Stages by copies of 16 bytes, token rows from anywhere. Each thread's copies arrive on the stage's barrier for it.
template <class F, class Source>
__device__ __forceinline__ void bring_rows(Layout<F>& memory, const Source& source, const Shape& shape) {
  constexpr int kRows = (F::kTokens + 15) / 16;
  constexpr int kTileChunks = F::kTileBytes / 16, kScaleChunks = F::kScaleBytes / 16;
  constexpr int kWeightCopies = F::kPanels * kTileChunks / 128;
  constexpr int kScaleCopies = (F::kPanels * kScaleChunks + 127) / 128;
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const int chunk = thread % 8, first_row = thread / 8;  // of the tokens' rows
  Ring<F::kStages> ring;

  const int items = source.items();
  for (int index = static_cast<int>(blockIdx.x); index < items; index += static_cast<int>(gridDim.x)) {
    const Item item = source.item(index);
    const __nv_bfloat16* x = shape.x + 8 * chunk;
    const int rows = (item.tokens - first_row + 15) / 16;  // real ones of this thread
    const int padded = (item.tokens + 15) / 16;            // with zeros
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
    const std::byte* scales[kScaleCopies];
#pragma unroll
    for (int i = 0; i < kScaleCopies; ++i) {
      const int place = thread + 128 * i;
      scales[i] = panel(place / kScaleChunks) + shape.k_tiles * F::kTileBytes + place % kScaleChunks * 16;
    }

    for (int k = 0; k < shape.k_tiles; ++k, ring.advance()) {
      wait_barrier(&memory.empty[ring.stage], ring.parity ^ 1);
#pragma unroll
      for (int i = 0; i < kWeightCopies; ++i) {
        copy_async_16(memory.weights[ring.stage] + (thread + 128 * i) * 16, codes[i]);
        codes[i] += F::kTileBytes;
      }
#pragma unroll
      for (int i = 0; i < kScaleCopies; ++i) {
        if (k % 4 != 0 || thread + 128 * i >= F::kPanels * kScaleChunks) break;
        copy_async_16(memory.scales[ring.stage] + (thread + 128 * i) * 16, scales[i]);
        scales[i] += F::kScaleBytes;
      }
      const bool inside = k * static_cast<int>(kTileCols) + 8 * chunk < shape.cols;
      std::byte* to = memory.tokens[ring.stage] + first_row * 128 + (chunk ^ first_row % 8) * 16;
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        if (i >= padded) break;
        copy_async_16(to + i * 2048, reinterpret_cast<const uint4*>(x) + offsets[i], inside && i < rows);
      }
      x += kTileCols;
      arrive_after_copies(&memory.full[ring.stage]);
    }
  }
  wait_copies<0>();
}

template <class F, class Source>
__global__ void __launch_bounds__(F::kThreads, 1)
    multiply(const __grid_constant__ Source source, const __grid_constant__ Shape shape) {
  extern __shared__ std::byte raw_memory[];
  auto& memory = *reinterpret_cast<Layout<F>*>(raw_memory + (1024 - shared_address(raw_memory) % 1024) % 1024);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < F::kStages; ++stage) {
      init_barrier(&memory.full[stage], Source::kTensorMaps ? 1 : 128);
      init_barrier(&memory.empty[stage], F::kGroups * 4);
    }
    fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x >= F::kGroups * 128) {
    give_registers<F::kCopyRegisters>();
    if constexpr (Source::kTensorMaps) {
      bring_boxes<F>(memory, source, shape);
    } else {
      bring_rows<F>(memory, source, shape);
    }
  } else {
    take_registers<F::kMultiplyRegisters>();
    multiply_items<F>(memory, source, shape);
  }
}

// ---- host ----

int multiprocessors();

template <class F, class Source>
void launch(cudaStream_t stream, const Source& source, const Shape& shape, int64_t most_items) {
  constexpr auto kBytes = static_cast<int>(sizeof(Layout<F>)) + 1024;
  static_assert(kBytes <= 227 * 1024);
  const auto kernel = multiply<F, Source>;
  static const bool once = [&] {
    GANNET_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
    return true;
  }();
  static_cast<void>(once);
  const auto blocks = static_cast<unsigned>(most_items < multiprocessors() ? most_items : multiprocessors());
  kernel<<<blocks, F::kThreads, kBytes, stream>>>(source, shape);
  GANNET_CUDA_LAUNCHED();
}

}  // namespace gannet::ops::cuda::many_rows

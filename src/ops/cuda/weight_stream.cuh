#pragma once

#include <cuda_bf16.h>

#include <cstddef>
#include <cstdint>

#include "ops/cuda/bulk_copy.cuh"
#include "ops/cuda/fragment.cuh"
#include "ops/cuda/packed_matrix.h"

// Products of few rows with weights that are streamed once. A block of ten warps: one copies packed weights into a ring
// of stages in shared memory, one the rows' columns beside them, eight decode and multiply. A stage holds a few tiles
// of a group of panels; the eight warps share its panels, and split its tiles (the sum over columns) among them. What
// they have summed is added up in a fixed order.
namespace gannet::ops::cuda {

inline constexpr int kMostStages = 8;

// Shared memory that each of `resident` blocks of a multiprocessor can have.
constexpr size_t shared_of_block(int resident) {
  constexpr size_t kOfMultiprocessor = 228 * 1024, kReservedOfBlock = 1024;
  return (kOfMultiprocessor / resident - kReservedOfBlock) / 16 * 16;
}

// How a block works: `panels` panels at a time, `warp_panels` of them to a product warp, `tiles` tiles to a stage.
template <WeightFormat format_, int panels_, int warp_panels_, int tiles_, int product_warps_>
struct StreamShape {
  static constexpr WeightFormat format = format_;
  static constexpr int panels = panels_;
  static constexpr int warp_panels = warp_panels_;
  static constexpr int tiles = tiles_;
  static constexpr int product_warps = product_warps_;
  static constexpr int product_threads = 32 * product_warps;
  static constexpr int weight_warp = product_warps;  // and the row warp behind it
  static constexpr int threads = product_threads + 64;
  static constexpr int splits = product_warps / (panels / warp_panels);
  static constexpr int outputs = panels * static_cast<int>(kPanelRows);
  static constexpr int tile_codes = static_cast<int>(tile_bytes(format));
  static constexpr int panel_codes = tiles * tile_codes;
  static constexpr int unit_scales = static_cast<int>(panel_scale_bytes(format, 4 * kTileCols));  // of four tiles
  static constexpr int panel_scales = tiles / 4 * unit_scales;
  static constexpr int weight_bytes = panels * (panel_codes + panel_scales);
  // 16 bytes more than the columns, so that the eight rows that a warp loads lie in different banks.
  static constexpr int row_bytes = tiles * 128 + 16;
  // Rows that a stage has room for: all those that products of up to `rows` rows, in 1, 2, 4, .. tiles of 8, read. What
  // lies in rows that do not exist does not matter, but it must lie in the stage.
  static constexpr int stage_rows(int rows) {
    int row_tiles = 1;
    while (row_tiles * 8 < rows) row_tiles *= 2;
    return rows < 8 ? rows : row_tiles * 8;
  }
  static constexpr int stage_bytes(int rows) { return weight_bytes + stage_rows(rows) * row_bytes; }
  // Partial sums: [split][8 rows][partial_stride]; the stride spreads a warp's sums over all banks.
  static constexpr int partial_stride = outputs + 4;
  static constexpr int partial_floats = splits * 8 * partial_stride;
  static_assert(tiles % 4 == 0 && tiles % splits == 0 && panels <= 16);
};

// A group of panels times a block of rows, over a range of tiles that begins at a multiple of 4.
struct StreamTask {
  const std::byte* weight = nullptr;  // the first panel
  int64_t panel_bytes = 0;
  int64_t scales_at = 0;  // of a panel's scales, in the panel
  int panels = 0;         // of the group's that exist
  int cols = 0;
  int first_tile = 0, end_tile = 0;
};

// Stages in turn. The order of what happens to one:
//  - The copying warps wait for `empty`. Every lane does so itself before it copies anything.
//  - `full` has 33 arrivals: the weight warp's, which announces the bytes before any lane copies them, and one of each
//    lane of the row warp when its copies are there. The product warps' lanes all wait for it.
//  - `empty` has one arrival of each product warp. __syncwarp puts the reads of all its lanes before lane 0's arrival,
//    which releases them to whoever waits. (Tools that follow each thread's own arrivals report a race here.)
// Neither barrier can be a phase ahead: each phase of `full` needs the one of `empty` before it, which needs all
// product warps to have seen the last phase of `full`; so one bit of parity tells the phases apart.
struct StreamRing {
  uint64_t* full = nullptr;   // [stages]
  uint64_t* empty = nullptr;  // [stages]
  std::byte* data = nullptr;
  int stages = 0;
  int stage_bytes = 0;
  int rows = 0;  // StreamShape::stage_rows
  int slot = 0;
  uint32_t parity = 0;

  __device__ std::byte* stage() const { return data + slot * stage_bytes; }
  __device__ void advance() {
    if (++slot == stages) {
      slot = 0;
      parity ^= 1;
    }
  }
};

// By one thread, before the block synchronises.
__device__ inline void init_ring(const StreamRing& ring, int product_warps) {
  for (int i = 0; i < ring.stages; ++i) {
    init_barrier(ring.full + i, 33);  // the weight warp once, the row warp's lanes
    init_barrier(ring.empty + i, product_warps);
  }
  fence_barrier_init();
}

// By the weight warp.
template <class Shape>
__device__ void stream_weights(StreamRing& ring, const StreamTask& task, uint64_t policy) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int tile = task.first_tile; tile < task.end_tile; tile += Shape::tiles) {
    const int count = min(Shape::tiles, task.end_tile - tile);
    const int codes = count * Shape::tile_codes, scales = (count + 3) / 4 * Shape::unit_scales;
    wait_barrier(ring.empty + ring.slot, ring.parity ^ 1);
    if (lane == 0) arrive_expecting(ring.full + ring.slot, task.panels * (codes + scales));
    __syncwarp();
    std::byte* stage = ring.stage();
    if (lane < task.panels) {
      copy_bulk(stage + lane * Shape::panel_codes,
                task.weight + lane * task.panel_bytes + static_cast<int64_t>(tile) * Shape::tile_codes, codes,
                ring.full + ring.slot, policy);
    }
    const int panel = lane - 16;
    if (Shape::unit_scales > 0 && panel >= 0 && panel < task.panels) {
      copy_bulk(stage + Shape::panels * Shape::panel_codes + panel * Shape::panel_scales,
                task.weight + panel * task.panel_bytes + task.scales_at + tile / 4 * Shape::unit_scales, scales,
                ring.full + ring.slot, policy);
    }
    ring.advance();
  }
}

// By the warp after it: row_at(i) gives the address of row i; all lanes call it together.
template <class Shape, class RowAt>
__device__ void stream_rows(StreamRing& ring, const StreamTask& task, int rows, const RowAt& row_at) {
  constexpr int kRowCopies = Shape::tiles / 4;  // of the warp, 16 bytes a lane
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int tile = task.first_tile; tile < task.end_tile; tile += Shape::tiles) {
    const int col = tile * static_cast<int>(kTileCols) + lane * 8;
    const int end_col = min(task.cols, task.end_tile * static_cast<int>(kTileCols));
    wait_barrier(ring.empty + ring.slot, ring.parity ^ 1);
    std::byte* stage = ring.stage() + Shape::weight_bytes + lane * 16;
#pragma unroll 4
    for (int i = 0; i < rows; ++i) {
      const __nv_bfloat16* row = row_at(i) + col;
#pragma unroll
      for (int c = 0; c < kRowCopies; ++c) {
        if (col + c * 256 < end_col) copy_async_16(stage + i * Shape::row_bytes + c * 512, row + c * 256);
      }
    }
    arrive_after_copies(ring.full + ring.slot);
    ring.advance();
  }
}

__device__ inline uint4 load_shared_16(const std::byte* shared) {
  return *reinterpret_cast<const uint4*>(shared);
}
__device__ inline uint32_t load_shared_4(const std::byte* shared) {
  return *reinterpret_cast<const uint32_t*>(shared);
}

// A lane's words of a tile, and its scales for 32 columns each.
template <WeightFormat format>
struct RawTile {
  uint4 words[tile_bytes(format) / 512];
  uint32_t scales;
};

// `scales` are those of the tile's unit of four tiles.
template <WeightFormat format>
__device__ RawTile<format> load_tile(const std::byte* codes, const std::byte* scales, int tile, int lane) {
  RawTile<format> raw;
#pragma unroll
  for (int i = 0; i < tile_bytes(format) / 512; ++i) raw.words[i] = load_shared_16(codes + i * 512 + lane * 16);
  if constexpr (format == WeightFormat::fp8) raw.scales = load_shared_4(scales + tile % 4 * 4);
  if constexpr (format == WeightFormat::mxfp4) raw.scales = load_shared_4(scales + lane / 4 * 16 + tile % 4 * 4);
  return raw;
}

__device__ inline uint32_t byte_of(uint32_t word, int i) {
  return __byte_perm(word, 0, 0x4440 | static_cast<uint32_t>(i));
}

// The operands of both steps of 32 columns.
template <WeightFormat format>
__device__ void decode_half(const RawTile<format>& raw, int half, uint32_t a[2][4]) {
  if constexpr (format == WeightFormat::fp8) {
    const uint4 words = raw.words[half];
    const uint32_t low = scale_factors(byte_of(raw.scales, 2 * half));
    const uint32_t high = scale_factors(byte_of(raw.scales, 2 * half + 1));
    decode_fp8(words.x, low, a[0][0], a[0][2]);
    decode_fp8(words.y, high, a[0][1], a[0][3]);
    decode_fp8(words.z, low, a[1][0], a[1][2]);
    decode_fp8(words.w, high, a[1][1], a[1][3]);
  } else if constexpr (format == WeightFormat::mxfp4) {
    const uint32_t low = scale_factors(byte_of(raw.scales, half));
    const uint32_t high = scale_factors(byte_of(raw.scales, half + 2));
    decode_mxfp4(half == 0 ? raw.words[0].x : raw.words[0].z, low, high, a[0]);
    decode_mxfp4(half == 0 ? raw.words[0].y : raw.words[0].w, low, high, a[1]);
  } else {
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      const uint4 words = raw.words[2 * half + step];
      a[step][0] = words.x;
      a[step][1] = words.y;
      a[step][2] = words.z;
      a[step][3] = words.w;
    }
  }
}

// One stage, of which a warp takes every split-th tile. A whole one needs no checks, so that the instructions of its
// tiles overlap.
template <class Shape, int row_tiles, bool whole>
__device__ __forceinline__ void multiply_stage(float (&sums)[Shape::warp_panels][row_tiles][4], const std::byte* codes,
                                               const std::byte* scales, const std::byte* rows, int split, int lane,
                                               int tiles, int cols) {
#pragma unroll(whole ? Shape::tiles / Shape::splits : 1)
  for (int i = 0; i < Shape::tiles / Shape::splits; ++i) {
    const int tile = split + i * Shape::splits;
    if (!whole && tile >= tiles) break;
    RawTile<Shape::format> raw[Shape::warp_panels];
#pragma unroll
    for (int p = 0; p < Shape::warp_panels; ++p) {
      raw[p] = load_tile<Shape::format>(codes + p * Shape::panel_codes + tile * Shape::tile_codes,
                                        scales + p * Shape::panel_scales + tile / 4 * Shape::unit_scales, tile, lane);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // Behind the last column nothing was copied.
      if (!whole && tile * static_cast<int>(kTileCols) + half * 32 >= cols) break;
      uint32_t a[Shape::warp_panels][2][4];
#pragma unroll
      for (int p = 0; p < Shape::warp_panels; ++p) decode_half(raw[p], half, a[p]);
#pragma unroll
      for (int n = 0; n < row_tiles; ++n) {
        uint32_t b[4];
        load_matrices(b, rows + n * 8 * Shape::row_bytes + tile * 128 + half * 64);
#pragma unroll
        for (int p = 0; p < Shape::warp_panels; ++p) {
          mma_16x8x16(sums[p][n], a[p][0], b[0], b[1]);
          mma_16x8x16(sums[p][n], a[p][1], b[2], b[3]);
        }
      }
    }
  }
}

// By the product warps: sums[panel][n-tile] of the warp's panels over its tiles.
template <class Shape, int row_tiles>
__device__ void multiply(StreamRing& ring, const StreamTask& task, float (&sums)[Shape::warp_panels][row_tiles][4]) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int first_panel = warp / Shape::splits * Shape::warp_panels, split = warp % Shape::splits;
#pragma unroll
  for (int p = 0; p < Shape::warp_panels; ++p) {
#pragma unroll
    for (int n = 0; n < row_tiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[p][n][i] = 0;
    }
  }
  const int codes_at = first_panel * Shape::panel_codes;
  const int scales_at = Shape::panels * Shape::panel_codes + first_panel * Shape::panel_scales;
  // Columns of the product without a row take any row's values.
  const int rows_at = Shape::weight_bytes + min(lane % 8, ring.rows - 1) * Shape::row_bytes + lane / 8 * 16;
  for (int first = task.first_tile; first < task.end_tile; first += Shape::tiles) {
    wait_barrier(ring.full + ring.slot, ring.parity);
    const std::byte* stage = ring.stage();
    const int tiles = task.end_tile - first, cols = task.cols - first * static_cast<int>(kTileCols);
    if (tiles >= Shape::tiles && cols >= Shape::tiles * static_cast<int>(kTileCols)) {
      multiply_stage<Shape, row_tiles, true>(sums, stage + codes_at, stage + scales_at, stage + rows_at, split, lane,
                                             tiles, cols);
    } else {
      multiply_stage<Shape, row_tiles, false>(sums, stage + codes_at, stage + scales_at, stage + rows_at, split, lane,
                                              tiles, cols);
    }
    __syncwarp();
    if (lane == 0) arrive(ring.empty + ring.slot);
    ring.advance();
  }
}

// By the product warps: shows the partial sums of rows 8 n .. 8 n + 7 to all of them.
template <class Shape, int row_tiles>
__device__ void share_sums(float* partial, const float (&sums)[Shape::warp_panels][row_tiles][4], int n) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int first_panel = warp / Shape::splits * Shape::warp_panels, split = warp % Shape::splits;
  float* at = partial + (split * 8 + lane % 4 * 2) * Shape::partial_stride + first_panel * 16 + lane / 4;
#pragma unroll
  for (int m = 0; m < row_tiles; ++m) {
    if (m != n) continue;  // registers have no run-time index
#pragma unroll
    for (int p = 0; p < Shape::warp_panels; ++p) {
      at[p * 16] = sums[p][m][0];
      at[p * 16 + Shape::partial_stride] = sums[p][m][1];
      at[p * 16 + 8] = sums[p][m][2];
      at[p * 16 + 8 + Shape::partial_stride] = sums[p][m][3];
    }
  }
  sync_threads(1, Shape::product_threads);
}

// The whole sum of output `output` of the group for row `row` of the eight.
template <class Shape>
__device__ float add_splits(const float* partial, int row, int output) {
  float sum = 0;
#pragma unroll
  for (int split = 0; split < Shape::splits; ++split) {
    sum += partial[(split * 8 + row) * Shape::partial_stride + output];
  }
  return sum;
}

}  // namespace gannet::ops::cuda

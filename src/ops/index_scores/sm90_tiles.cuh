#pragma once

#include "ops/index_scores/sm90_best.cuh"
#include "ops/index_scores/sm90_scores.cuh"

// Selection for tiles of rows of one sequence, which share the decoded keys. Scores go through shared memory to one
// warp for each row, which keeps its list of the best.
namespace gannet::ops::cuda {

inline constexpr int kTileThreads = 256;
inline constexpr int kTileGroups = kTileThreads / 128;
inline constexpr int kTileUnits = 16;  // of a segment
inline constexpr int kTileKeys = kTileUnits * kUnitKeys;
inline constexpr int kBestCapacity = 1024;
inline constexpr int kBlockCapacity = 2816;

template <int heads, int row_tile>
struct TileShared {
  static constexpr int kColumns = heads * row_tile;
  static constexpr int kScoreStride = kTileKeys + 4;

  alignas(1024) char queries[kColumns * kChannels * 2];
  float weights[kColumns];
  float2 angles[row_tile][kRotated / 2];
  float scores[2][row_tile][kScoreStride];
  uint32_t best[row_tile][2][kBestCapacity];
  // Only there when candidates are made.
  uint32_t blocks[row_tile][2][kBlockCapacity];

  static size_t bytes(bool make_candidates) {
    return 1024 + (make_candidates ? sizeof(TileShared) : offsetof(TileShared, blocks));
  }
};

// The best of one stretch as the merge wants them.
__device__ inline void hand_over(BestList& list, const StretchLists& lists, int64_t stretch, int active, int lane) {
  list.cut(kSlack, lane);
  __syncwarp();
  for (int i = lane; i < list.count; i += 32) {
    lists.codes[stretch * lists.capacity + i] = list.codes[i];
    lists.entries[stretch * lists.capacity + i] = list.entries[i];
  }
  const int share = (list.k + active - 1) / active;
  uint32_t bound = 0;
  if (list.count >= share) bound = list.find(share, share / 4, lane).code;
  if (lane == 0) {
    lists.counts[stretch] = list.count;
    lists.bounds[stretch] = bound;
  }
}

template <int heads, int row_tile>
struct TileBlock {
  using Shared = TileShared<heads, row_tile>;

  const SelectArguments& a;
  Shared& shared;
  int first_row;  // of the tile
  int rows;
  int stretch;  // of `stretches`
  int stretches;

  __device__ RowInfo info(int r) const { return {a, first_row + min(r, rows - 1)}; }

  __device__ void prepare_queries() {
    const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
    for (int i = thread; i < row_tile * (kRotated / 2); i += kTileThreads) {
      const int r = i / (kRotated / 2), pair = i % (kRotated / 2);
      shared.angles[r][pair] = rotation(a, info(r).row, pair);
    }
    const int given = static_cast<int>(a.p.heads);
    for (int i = thread; i < Shared::kColumns; i += kTileThreads) {
      const int r = i / heads, h = i % heads;
      const bool there = r < rows && h < given;
      shared.weights[i] = there ? __fmul_rn(a.p.weights[(first_row + r) * given + h], a.weight_scale) : 0.0F;
    }
    __syncthreads();
#pragma unroll 4
    for (int column = thread / 32; column < Shared::kColumns; column += kTileThreads / 32) {
      const int r = column / heads, h = column % heads;
      float4 q = make_float4(0, 0, 0, 0);
      if (r < rows && h < given) {
        const int64_t head = static_cast<int64_t>(first_row + r) * given + h;
        q = *reinterpret_cast<const float4*>(a.p.q + head * kChannels + 4 * lane);
      }
      store_query<Shared::kColumns>(shared.queries, column, q, shared.angles[r], lane);
    }
    fence_async_proxy();
    __syncthreads();
  }

  // Scores of a unit of keys to column `first` of out.
  __device__ void score_unit(KeyStream<1>& stream, int unit, float (&out)[row_tile][Shared::kScoreStride], int first) {
    constexpr int kChunkRows = Shared::kColumns <= 128 ? row_tile : 128 / heads;
    uint32_t left[2][16];
    stream.take<0>(unit, left);
    float sum[2][row_tile];
    multiply<Shared::kColumns>(left, shared.queries, [&](int chunk, const auto& d) {
#pragma unroll
      for (int r = 0; r < kChunkRows; ++r) {
        const int row = chunk * kChunkRows + r;
        weigh<heads>(d, r * heads, shared.weights + row * heads, stream.t, sum[0][row], sum[1][row]);
      }
    });
    float total[row_tile / 2];
    sum_quads<row_tile>(sum, total, stream.t);
    const int half = (stream.t >> 1) * (row_tile / 2);
#pragma unroll
    for (int r = 0; r < row_tile / 2; ++r) out[half + r][first + stream.own()] = total[r];
  }

  __device__ static void offer_entries(BestList& list, const float* scores, int size, int n,
                                       const SegmentNumbers& numbers, int lane) {
    for (int i = lane; i < size; i += 4 * 32) {
      list.reserve(4 * 32, lane);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (i - lane + 32 * j >= size) break;
        const int entry = numbers(i + 32 * j);
        list.offer(scores[i + 32 * j], entry, entry < n, lane);
      }
    }
  }

  // Blocks of a segment's keys, each with its largest score; the newest is better than all.
  __device__ static void offer_blocks(BestList& list, const float* scores, int size, int n,
                                      const SegmentNumbers& numbers, int lane) {
    const int blocks = size / numbers.size;
    for (int base = 0; base < blocks; base += 32) {
      list.reserve(32, lane);
      const int i = base + lane;
      const int number = i < blocks ? numbers(i) : 0;
      const int end = i < blocks ? min(numbers.size, n - number * numbers.size) : 0;
      float best = -INFINITY;
      for (int j = 0; j < end; ++j) best = fmaxf(best, scores[i * numbers.size + j]);
      if (number == (n - 1) / numbers.size) best = INFINITY;
      list.offer(best, number, end > 0, lane);
    }
  }

  // The only stretch's lists are the result.
  __device__ void write_best(BestList& list, const RowInfo& row, int lane) {
    list.cut(0, lane);
    __syncwarp();
    for (int i = lane; i < list.count; i += 32) row.selected()[i] = static_cast<int32_t>(list.entries[i]);
    if (lane == 0) a.p.selected_counts[row.row] = list.count;
  }

  __device__ void run() {
    int most = 0;
    for (int r = 0; r < rows; ++r) {
      const int n = info(r).number();
      info(r).take_all(n, stretch, stretches);
      if (info(r).needs_scores(n)) most = max(most, n);
    }
    const int units = (most + kUnitKeys - 1) / kUnitKeys;
    if (stretch >= units) return;
    const int active = min(stretches, units);
    const int own_units = (units - stretch + active - 1) / active;

    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int group = static_cast<int>(threadIdx.x) / 128;
    const int slot = a.p.rows.sequences[a.p.rows.sequence_of[first_row]].slot;
    const KeyReader reader{.a = a,
                           .block_table = a.p.keys.block_tables + slot * a.p.keys.table_stride,
                           .candidates = nullptr,
                           .count = most};
    KeyStream<1> stream(reader, group * active + stretch, kTileGroups * active);
    prepare_queries();

    // One warp keeps a row's best entries, another one its best blocks.
    const bool of_blocks = row_tile <= 4 && warp >= 4;
    const int own = warp % (row_tile == 8 ? 8 : 4);
    const RowInfo row = info(own);
    const int n = row.number();
    const bool dense = active > 1 && n <= kDenseEntries;
    const bool keeps =
        own < min(rows, row_tile) && row.needs_scores(n) && (!of_blocks || (row.makes_blocks(n) && !dense));
    BestList list;
    list.k = static_cast<int>(of_blocks ? a.p.max_blocks : a.p.k);
    list.capacity = of_blocks ? kBlockCapacity : kBestCapacity;
    list.codes = of_blocks ? shared.blocks[own % row_tile][0] : shared.best[own % row_tile][0];
    list.entries = list.codes + list.capacity;
    if (keeps && !of_blocks && stretch == 0 && lane == 0 && a.active != nullptr) {
      a.active[row.row] = dense ? kDense : active > 1 ? active : kDone;
    }

    int parity = 0;
    for (int first = 0; first < own_units; first += kTileUnits, parity ^= 1) {
      const int in_segment = min(kTileUnits, own_units - first);
      for (int i = group; i < in_segment; i += kTileGroups) {
        score_unit(stream, (first + i) * active + stretch, shared.scores[parity], i * kUnitKeys);
      }
      __syncthreads();
      if (!keeps) continue;
      const float* row_scores = shared.scores[parity][own % row_tile];
      const int size = in_segment * kUnitKeys;
      const SegmentNumbers numbers{first, active, stretch, of_blocks ? static_cast<int>(a.p.block_size) : 1};
      if (of_blocks) {
        offer_blocks(list, row_scores, size, n, numbers, lane);
        continue;
      }
      if (!dense) offer_entries(list, row_scores, size, n, numbers, lane);
      write_scores(row.row, row_scores, size, n, numbers, dense, lane);
    }
    if (!keeps || dense) return;
    if (active > 1) {
      const int64_t number = static_cast<int64_t>(row.row) * a.stretches + stretch;
      hand_over(list, of_blocks ? a.blocks : a.best, number, active, lane);
    } else if (of_blocks) {
      list.cut(0, lane);
      __syncwarp();
      write_blocks(a, row.row, list.entries, list.count, n, lane, 32);
    } else {
      write_best(list, row, lane);
    }
  }

  __device__ void write_scores(int row, const float* row_scores, int size, int n, const SegmentNumbers& numbers,
                               bool dense, int lane) const {
    if (!dense && a.scores == nullptr) return;
    for (int i = lane; i < size; i += 32) {
      const int entry = numbers(i);
      if (entry >= n) continue;
      if (dense) a.dense[static_cast<int64_t>(row) * kDenseEntries + entry] = score_code(row_scores[i]);
      if (a.scores != nullptr) a.scores[row * a.scores_stride + entry] = row_scores[i];
    }
  }
};

// Grid: stretches, tiles of rows. The tiles with most keys, which are the last of a sequence, begin first.
template <int heads, int row_tile>
__global__ void __launch_bounds__(kTileThreads, 1) score_tiles(const __grid_constant__ SelectArguments a) {
  extern __shared__ char memory[];
  wait_for_previous_launch();
  allow_next_launch();
  const uint32_t address = shared_address(memory);
  auto& shared = *reinterpret_cast<TileShared<heads, row_tile>*>(memory + (1024 - address % 1024) % 1024);
  const int count = *a.p.rows.count;
  const int first = static_cast<int>(gridDim.y - 1 - blockIdx.y) * row_tile;
  if (first >= count || !one_sequence(a.p.rows, first, min(first + row_tile, count))) return;
  TileBlock<heads, row_tile> block{.a = a,
                                   .shared = shared,
                                   .first_row = first,
                                   .rows = min(row_tile, count - first),
                                   .stretch = static_cast<int>(blockIdx.x),
                                   .stretches = static_cast<int>(gridDim.x)};
  block.run();
}

template <int heads, int row_tile>
void launch_index_tiles(cudaStream_t stream, const SelectArguments& a, int stretches) {
  using Shared = TileShared<heads, row_tile>;
  static const cudaError_t prepared =
      cudaFuncSetAttribute(score_tiles<heads, row_tile>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(Shared::bytes(row_tile <= 4)));
  GANNET_CUDA_CHECK(prepared);
  const auto tiles = static_cast<unsigned>((a.p.rows.most + row_tile - 1) / row_tile);
  launch_overlapping(
      stream, score_tiles<heads, row_tile>,
      {.grid = dim3(stretches, tiles), .threads = kTileThreads, .shared_bytes = Shared::bytes(a.p.make_candidates)}, a);
}

}  // namespace gannet::ops::cuda

#pragma once

#include "ops/index_scores/sm90_block.cuh"
#include "ops/index_scores/sm90_scores.cuh"

// Selection for single rows. The warpgroups of a block score their keys without waiting for one another: into scratch
// memory when the row is dense, otherwise into a segment in shared memory, out of which, and the best so far, the block
// then chooses the best.
namespace gannet::ops::cuda {

inline constexpr int kRowThreads = 512;
inline constexpr int kRowGroups = kRowThreads / 128;
inline constexpr int kSegmentUnits = 128;
inline constexpr int kSegmentKeys = kSegmentUnits * kUnitKeys;
inline constexpr int kMostBest = 512;
inline constexpr int kMostBlocks = 2048;

// The best elements so far, rising, then a segment's new ones; 0 is none.
template <int most, int fresh>
struct Contest {
  uint32_t codes[most + fresh];
  uint32_t entries[most];
  uint32_t next_codes[most];
  uint32_t next_entries[most];
};

template <int heads>
struct RowShared {
  alignas(1024) char queries[heads * kChannels * 2];
  float weights[heads];
  float2 angles[kRotated / 2];
  BlockSelect<kRowThreads>::Shared select;
  Contest<kMostBest, kSegmentKeys> entries;
  // Only there when candidates are made.
  Contest<kMostBlocks, kSegmentKeys> blocks;

  static size_t bytes(bool make_candidates) {
    return 1024 + (make_candidates ? sizeof(RowShared) : offsetof(RowShared, blocks));
  }
};

template <int heads>
struct RowBlock {
  using Select = BlockSelect<kRowThreads>;

  const SelectArguments& a;
  RowShared<heads>& shared;
  int row;
  int stretch;
  int stretches;

  using Stream = KeyStream<2>;

  __device__ RowInfo info() const { return {a, row}; }

  // Queries of this warp's heads; nothing else has to be known before they are loaded.
  static constexpr int kOwnHeads = (heads + kRowThreads / 32 - 1) / (kRowThreads / 32);
  struct Queries {
    float4 q[kOwnHeads];
  };
  __device__ Queries load_queries() const {
    Queries own;
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < kOwnHeads; ++i) {
      const int h = warp + i * (kRowThreads / 32);
      own.q[i] = make_float4(0, 0, 0, 0);
      if (h < a.p.heads) {
        own.q[i] = *reinterpret_cast<const float4*>(a.p.q + (row * a.p.heads + h) * kChannels + 4 * lane);
      }
    }
    return own;
  }
  __device__ void prepare_queries(const Queries& own) {
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < kRotated / 2) shared.angles[thread] = rotation(a, row, thread);
    if (thread >= 128 && thread < 128 + heads) {
      const int h = thread - 128;
      shared.weights[h] = h < a.p.heads ? __fmul_rn(a.p.weights[row * a.p.heads + h], a.weight_scale) : 0.0F;
    }
    for (int i = thread; i < kMostBest; i += kRowThreads) shared.entries.codes[i] = 0;
    if (a.p.make_candidates) {
      for (int i = thread; i < kMostBlocks; i += kRowThreads) shared.blocks.codes[i] = 0;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kOwnHeads; ++i) {
      const int h = thread / 32 + i * (kRowThreads / 32);
      if (h < heads) store_query<heads>(shared.queries, h, own.q[i], shared.angles, thread % 32);
    }
    fence_async_proxy();
    __syncthreads();
  }

  // The score of key `stream.own()` of the unit; lanes whose t is 2 or 3 have the same as those with 0 and 1.
  template <int stage>
  __device__ float score_unit(Stream& stream, int unit) {
    uint32_t left[2][16];
    stream.take<stage>(unit, left);
    float sum[2][1], total[1];
    multiply<heads>(left, shared.queries,
                    [&](int, const auto& d) { weigh<heads>(d, 0, shared.weights, stream.t, sum[0][0], sum[1][0]); });
    sum_quads<1>(sum, total, stream.t);
    return total[0];
  }

  __device__ void write_score(int entry, int n, float score) const {
    if (a.scores != nullptr && entry < n) a.scores[row * a.scores_stride + entry] = score;
  }

  template <int stage>
  __device__ void score_dense(Stream& stream, int unit, int n) {
    const float score = score_unit<stage>(stream, unit);
    const int entry = unit * kUnitKeys + stream.own();
    if (stream.t >= 2 || entry >= n) return;
    a.dense[static_cast<int64_t>(row) * kDenseEntries + entry] = score_code(score);
    write_score(entry, n, score);
  }
  __device__ void run_dense(Stream& stream, int units, int unit, int n) {
    for (; unit < units; unit += 2 * stream.step) {
      score_dense<0>(stream, unit, n);
      if (unit + stream.step < units) score_dense<1>(stream, unit + stream.step, n);
    }
  }

  // Calls use(rank, code, number) for each element that is admitted, in rising order; returns how many there are.
  template <int most, int fresh, class Use>
  __device__ int each_admitted(const Contest<most, fresh>& contest, int size, const Threshold& threshold,
                               const SegmentNumbers& numbers, const Use& use) {
    const int each = (size + kRowThreads - 1) / kRowThreads | 1;  // odd: no bank conflicts
    const int first = min(static_cast<int>(threadIdx.x) * each, size), end = min(first + each, size);
    uint32_t mine = 0, total = 0;
    for (int i = first; i < end; ++i) mine += static_cast<uint32_t>(threshold.admits(contest.codes[i], i));
    __syncthreads();
    uint32_t rank = Select{shared.select}.sum_before(mine, total);
    if (mine > 0) {
      for (int i = first; i < end; ++i) {
        if (!threshold.admits(contest.codes[i], i)) continue;
        use(static_cast<int>(rank++), contest.codes[i], i < most ? contest.entries[i] : numbers(i - most));
      }
    }
    __syncthreads();
    return static_cast<int>(total);
  }

  template <int most, int fresh>
  __device__ Threshold find(const Contest<most, fresh>& contest, int size, int wanted) {
    return Select{shared.select}.find(
        size, wanted, [&](int i) { return contest.codes[i]; }, [](int i) { return static_cast<uint32_t>(i); });
  }

  // The best of a segment and of those before to the front.
  template <int most, int fresh>
  __device__ void keep_best(Contest<most, fresh>& contest, int size, int wanted, const SegmentNumbers& numbers) {
    const Threshold threshold = find(contest, size, wanted);
    const int kept = each_admitted(contest, size, threshold, numbers, [&](int rank, uint32_t code, uint32_t number) {
      contest.next_codes[rank] = code;
      contest.next_entries[rank] = number;
    });
    for (int i = threadIdx.x; i < most; i += kRowThreads) {
      contest.codes[i] = i < kept ? contest.next_codes[i] : 0;
      contest.entries[i] = contest.next_entries[i];
    }
    __syncthreads();
  }

  template <int most, int fresh>
  __device__ void hand_over(Contest<most, fresh>& contest, int size, int wanted, const SegmentNumbers& numbers,
                            const StretchLists& lists, int active) {
    const int64_t list = static_cast<int64_t>(row) * a.stretches + stretch;
    const Threshold threshold = find(contest, size, wanted);
    const int count = each_admitted(contest, size, threshold, numbers, [&](int rank, uint32_t code, uint32_t number) {
      lists.codes[list * lists.capacity + rank] = code;
      lists.entries[list * lists.capacity + rank] = number;
    });
    const uint32_t bound = Select{shared.select}.lower_bound(size, (wanted + active - 1) / active,
                                                             [&](int i) { return contest.codes[i]; });
    if (threadIdx.x == 0) {
      lists.counts[list] = count;
      lists.bounds[list] = bound;
    }
  }

  __device__ void score_blocks(int units, int n, const SegmentNumbers& numbers) {
    const int size = static_cast<int>(a.p.block_size);
    const int newest = (n - 1) / size;
    for (int i = threadIdx.x; i < units * kUnitKeys / size; i += kRowThreads) {
      uint32_t best = 0;
      for (int j = 0; j < size; ++j) best = max(best, shared.entries.codes[kMostBest + i * size + j]);
      shared.blocks.codes[kMostBlocks + i] = numbers(i) == newest ? ordered(INFINITY) : best;
    }
    __syncthreads();
  }

  __device__ void finish_entries(int size, const SegmentNumbers& numbers, int active) {
    const int wanted = static_cast<int>(a.p.k);
    if (active > 1) return hand_over(shared.entries, size, wanted, numbers, a.best, active);
    int32_t* selected = info().selected();
    const int32_t* candidates = a.p.use_candidates ? info().candidates() : nullptr;
    const int count = each_admitted(shared.entries, size, find(shared.entries, size, wanted), numbers,
                                    [&](int rank, uint32_t, uint32_t number) {
                                      selected[rank] = candidates != nullptr ? candidates[number] : number;
                                    });
    if (threadIdx.x == 0) a.p.selected_counts[row] = count;
  }
  __device__ void finish_blocks(int size, const SegmentNumbers& numbers, int active, int n) {
    const int wanted = static_cast<int>(a.p.max_blocks);
    if (active > 1) return hand_over(shared.blocks, size, wanted, numbers, a.blocks, active);
    keep_best(shared.blocks, size, wanted, numbers);
    int count = 0;
    for (int i = 0; i < kMostBlocks; i += kRowThreads) {
      count += __syncthreads_count(shared.blocks.codes[i + threadIdx.x] != 0);
    }
    write_blocks(a, row, shared.blocks.entries, count, n, threadIdx.x, kRowThreads);
  }

  // Unit i of a segment.
  template <int stage>
  __device__ void score_fresh(Stream& stream, int i, int unit, int n) {
    const float score = score_unit<stage>(stream, unit);
    const int entry = unit * kUnitKeys + stream.own();
    if (stream.t >= 2) return;
    shared.entries.codes[kMostBest + i * kUnitKeys + stream.own()] = entry < n ? score_code(score) : 0;
    write_score(entry, n, score);
  }
  __device__ void run_segments(Stream& stream, int units, int active, int n) {
    const bool makes_blocks = info().makes_blocks(n);
    const int group = static_cast<int>(threadIdx.x) / 128;
    const int own_units = (units - stretch + active - 1) / active;
    for (int first = 0; first < own_units; first += kSegmentUnits) {
      const int in_segment = min(kSegmentUnits, own_units - first);
      for (int i = group; i < in_segment; i += 2 * kRowGroups) {
        score_fresh<0>(stream, i, (first + i) * active + stretch, n);
        if (i + kRowGroups >= in_segment) break;
        score_fresh<1>(stream, i + kRowGroups, (first + i + kRowGroups) * active + stretch, n);
      }
      __syncthreads();
      const bool last = first + kSegmentUnits >= own_units;
      const SegmentNumbers numbers{first, active, stretch, 1};
      const int size = kMostBest + in_segment * kUnitKeys;
      if (makes_blocks) {
        const int block = static_cast<int>(a.p.block_size);
        const SegmentNumbers blocks{first, active, stretch, block};
        score_blocks(in_segment, n, blocks);
        const int block_count = kMostBlocks + in_segment * kUnitKeys / block;
        if (last) {
          finish_blocks(block_count, blocks, active, n);
        } else {
          keep_best(shared.blocks, block_count, static_cast<int>(a.p.max_blocks), blocks);
        }
      }
      if (last) {
        finish_entries(size, numbers, active);
      } else {
        keep_best(shared.entries, size, static_cast<int>(a.p.k), numbers);
      }
    }
  }

  // n: visible entries or candidates.
  __device__ void run(const Queries& queries, int n, int sequence) {
    info().take_all(n, stretch, stretches);
    if (!info().needs_scores(n)) return;
    const int units = (n + kUnitKeys - 1) / kUnitKeys;
    if (stretch >= units) return;
    const int active = min(stretches, units);
    const bool dense = active > 1 && n <= kDenseEntries;
    if (stretch == 0 && threadIdx.x == 0 && a.active != nullptr) {
      a.active[row] = dense ? kDense : active > 1 ? active : kDone;
    }
    const int slot = a.p.rows.sequences[sequence].slot;
    const KeyReader reader{.a = a,
                           .block_table = a.p.keys.block_tables + slot * a.p.keys.table_stride,
                           .candidates = a.p.use_candidates ? info().candidates() : nullptr,
                           .count = n};
    const int unit = static_cast<int>(threadIdx.x) / 128 * active + stretch;
    Stream stream(reader, unit, kRowGroups * active);
    prepare_queries(queries);
    if (dense) {
      run_dense(stream, units, unit, n);
    } else {
      run_segments(stream, units, active, n);
    }
  }
};

// Grid: stretches, groups of block_rows rows, which the block takes one after the other; without those that are left to
// the kernel for tiles.
template <int heads>
__global__ void __launch_bounds__(kRowThreads, 1) score_rows(const __grid_constant__ SelectArguments a) {
  extern __shared__ char memory[];
  wait_for_previous_launch();
  allow_next_launch();
  const uint32_t address = shared_address(memory);
  auto& shared = *reinterpret_cast<RowShared<heads>*>(memory + (1024 - address % 1024) % 1024);
  const int first = static_cast<int>(blockIdx.y) * a.block_rows;
  const int most = static_cast<int>(a.p.rows.most);
  for (int row = first; row < min(first + a.block_rows, most); ++row) {
    RowBlock<heads> block{.a = a,
                          .shared = shared,
                          .row = row,
                          .stretch = static_cast<int>(blockIdx.x),
                          .stretches = static_cast<int>(gridDim.x)};
    const auto queries = block.load_queries();
    const int count = load_early(a.p.rows.count);
    const int length = load_early(row_length(a, row));
    const int sequence = load_early(a.p.rows.sequence_of + row);
    if (row >= count) return;
    if (a.tile_rows > 0) {
      const int tile = row / a.tile_rows * a.tile_rows;
      if (one_sequence(a.p.rows, tile, min(tile + a.tile_rows, count))) return;
    }
    block.run(queries, row_number(a, length), sequence);
    __syncthreads();
  }
}

template <int heads>
void launch_index_rows(cudaStream_t stream, const SelectArguments& a, int stretches) {
  static const cudaError_t prepared = cudaFuncSetAttribute(
      score_rows<heads>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(RowShared<heads>::bytes(true)));
  GANNET_CUDA_CHECK(prepared);
  const auto groups = static_cast<unsigned>((a.p.rows.most + a.block_rows - 1) / a.block_rows);
  launch_overlapping(stream, score_rows<heads>,
                     {.grid = dim3(stretches, groups),
                      .threads = kRowThreads,
                      .shared_bytes = RowShared<heads>::bytes(a.p.make_candidates)},
                     a);
}

}  // namespace gannet::ops::cuda

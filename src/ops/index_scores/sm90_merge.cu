#include <cuda_runtime.h>

#include "ops/cuda/bulk_copy.cuh"
#include "ops/cuda/check.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/ordered.cuh"
#include "ops/index_scores/sm90_block.cuh"
#include "ops/index_scores/sm90_kernels.h"

// The best of all stretches' lists of a row, in rising order of entries.
namespace gannet::ops::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kMostWanted = 2048;  // best entries or blocks of a row
constexpr int kMostStretches = 132;
constexpr int kCapacity = 8192;  // elements of lists that are looked at together
constexpr int kWindow = 2 * kCapacity * 32;

using Select = BlockSelect<kThreads>;

struct MergeShared {
  union {
    uint32_t dense[kDenseEntries];
    struct {
      uint32_t codes[kCapacity];
      uint32_t places[kCapacity];  // in the row's lists
    };
    uint32_t bitmap[kWindow / 32];
  };
  Select::Shared select;
  uint32_t chosen[kMostWanted];
  uint32_t sorted[kMostWanted];
  uint32_t counts[kMostStretches];
  uint32_t bounds[32];
  int size;
};

struct Merge {
  const SelectArguments& a;
  const StretchLists& lists;
  MergeShared& shared;
  int64_t row;
  int active;
  int wanted;
  uint32_t floor = 0;  // codes below do not matter

  __device__ int64_t base() const { return row * a.stretches * lists.capacity; }
  __device__ uint32_t entry(uint32_t place) const { return lists.entries[base() + place]; }

  __device__ void load_counts() {
    uint32_t bound = 0xffffffffU;
    if (static_cast<int>(threadIdx.x) < active) {
      shared.counts[threadIdx.x] = lists.counts[row * a.stretches + threadIdx.x];
      bound = lists.bounds[row * a.stretches + threadIdx.x];
    }
    if (threadIdx.x == 0) shared.size = 0;
    bound = __reduce_min_sync(0xffffffffU, bound);
    if (threadIdx.x % 32 == 0) shared.bounds[threadIdx.x / 32] = bound;
    __syncthreads();
    floor = __reduce_min_sync(0xffffffffU, shared.bounds[threadIdx.x % 32]);
  }

  // Appends what matters of the stretches first .. end - 1; counts on when there is no more room.
  __device__ void gather(int first, int end) {
    constexpr int kLoads = 4;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int parts = lists.capacity / 128;
    for (int item = warp; item < (end - first) * parts; item += kThreads / 32 * kLoads) {
      uint4 codes[kLoads];
      uint32_t places[kLoads];
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const int mine = item + i * (kThreads / 32);
        const int stretch = first + mine / parts, at = mine % parts * 128 + 4 * lane;
        const int left = mine < (end - first) * parts ? static_cast<int>(shared.counts[stretch]) - at : 0;
        places[i] = stretch * lists.capacity + at;
        codes[i] = make_uint4(0, 0, 0, 0);
        if (left > 0) codes[i] = *reinterpret_cast<const uint4*>(lists.codes + base() + places[i]);
        if (left < 2) codes[i].y = 0;
        if (left < 3) codes[i].z = 0;
        if (left < 4) codes[i].w = 0;
      }
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        append(codes[i].x, places[i]);
        append(codes[i].y, places[i] + 1);
        append(codes[i].z, places[i] + 2);
        append(codes[i].w, places[i] + 3);
      }
    }
    __syncthreads();
  }
  __device__ void append(uint32_t code, uint32_t place) {
    const bool matters = code != 0 && code >= floor;
    const uint32_t mask = __ballot_sync(0xffffffffU, matters);
    if (mask == 0) return;
    const int lane = threadIdx.x % 32;
    int at = 0;
    if (lane == 0) at = atomicAdd(&shared.size, __popc(mask));
    at = __shfl_sync(0xffffffffU, at, 0) + __popc(mask & ((1U << lane) - 1));
    if (matters && at < kCapacity) {
      shared.codes[at] = code;
      shared.places[at] = place;
    }
  }

  __device__ Threshold threshold() {
    const int size = shared.size;
    if (size <= wanted) return {1, 0xffffffffU};
    return Select{shared.select}.find(
        size, wanted, [this](int i) { return shared.codes[i]; }, [this](int i) { return entry(shared.places[i]); });
  }
  __device__ bool is_chosen(int i, const Threshold& limit) const {
    if (shared.codes[i] != limit.code) return shared.codes[i] > limit.code;
    return limit.tie == 0xffffffffU || entry(shared.places[i]) <= limit.tie;
  }

  // Of more elements than there is room for: stretch by stretch, cut down to the best in between.
  __device__ void gather_with_cuts() {
    __syncthreads();
    if (threadIdx.x == 0) shared.size = 0;
    __syncthreads();
    for (int stretch = 0; stretch < active; ++stretch) {
      const bool full = shared.size + static_cast<int>(shared.counts[stretch]) > kCapacity;
      __syncthreads();
      if (full) cut();
      gather(stretch, stretch + 1);
    }
  }
  __device__ void cut() {
    const Threshold limit = threshold();
    const int size = shared.size;
    __syncthreads();
    if (threadIdx.x == 0) shared.size = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < size; i += kThreads) {
      if (!is_chosen(i, limit)) continue;
      const int at = atomicAdd(&shared.size, 1);
      shared.chosen[at] = shared.places[i];
      shared.sorted[at] = shared.codes[i];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < shared.size; i += kThreads) {
      shared.places[i] = shared.chosen[i];
      shared.codes[i] = shared.sorted[i];
    }
    floor = max(floor, limit.code);
    __syncthreads();
  }

  // Entries of the best to `chosen`; returns their number.
  __device__ int choose() {
    load_counts();
    gather(0, active);
    if (shared.size > kCapacity) gather_with_cuts();
    const Threshold limit = threshold();
    const int size = shared.size;
    __syncthreads();
    if (threadIdx.x == 0) shared.size = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < size; i += kThreads) {
      if (is_chosen(i, limit)) shared.chosen[atomicAdd(&shared.size, 1)] = entry(shared.places[i]);
    }
    __syncthreads();
    return shared.size;
  }

  // `chosen`, whose numbers are below `extent`, to `sorted`.
  __device__ void sort(int count, int extent) {
    uint32_t rank = 0;
    for (int begin = 0; begin < extent; begin += kWindow) {
      const int words = (min(extent - begin, kWindow) + 31) / 32;
      __syncthreads();
      for (int i = threadIdx.x; i < words; i += kThreads) shared.bitmap[i] = 0;
      __syncthreads();
      for (int i = threadIdx.x; i < count; i += kThreads) {
        const int number = static_cast<int>(shared.chosen[i]) - begin;
        if (number >= 0 && number < kWindow) atomicOr(&shared.bitmap[number / 32], 1U << (number % 32));
      }
      __syncthreads();
      const int each = (words + kThreads - 1) / kThreads | 1;  // odd: no bank conflicts
      const int first = min(static_cast<int>(threadIdx.x) * each, words), end = min(first + each, words);
      uint32_t mine = 0, all = 0;
      for (int i = first; i < end; ++i) mine += __popc(shared.bitmap[i]);
      uint32_t at = rank + Select{shared.select}.sum_before(mine, all);
      for (int i = first; i < end; ++i) {
        for (uint32_t bits = shared.bitmap[i]; bits != 0; bits &= bits - 1) {
          shared.sorted[at++] = begin + 32 * i + __ffs(static_cast<int>(bits)) - 1;
        }
      }
      rank += all;
    }
    __syncthreads();
  }
};

__device__ void write_entries(const SelectArguments& a, int row, const uint32_t* sorted, int count) {
  const int32_t* candidates = a.p.candidates + row * a.p.max_blocks * a.p.block_size;
  int32_t* out = a.p.selected + row * a.p.selected_stride;
  for (int i = threadIdx.x; i < count; i += kThreads) {
    const auto entry = static_cast<int32_t>(sorted[i]);
    out[i] = a.p.use_candidates ? candidates[entry] : entry;
  }
  if (threadIdx.x == 0) a.p.selected_counts[row] = count;
}

// Numbers of the best of `size` codes in `dense` to `sorted`; returns how many there are.
__device__ int choose_dense(MergeShared& shared, int size, int wanted) {
  __syncthreads();
  const Threshold threshold = Select{shared.select}.find(
      size, wanted, [&](int i) { return shared.dense[i]; }, [](int i) { return static_cast<uint32_t>(i); });
  const int each = (size + kThreads - 1) / kThreads | 1;  // odd: no bank conflicts
  const int first = min(static_cast<int>(threadIdx.x) * each, size), end = min(first + each, size);
  uint32_t mine = 0, total = 0;
  for (int i = first; i < end; ++i) mine += static_cast<uint32_t>(threshold.admits(shared.dense[i], i));
  uint32_t rank = Select{shared.select}.sum_before(mine, total);
  for (int i = first; mine > 0 && i < end; ++i) {
    if (threshold.admits(shared.dense[i], i)) shared.sorted[rank++] = i;
  }
  __syncthreads();
  return static_cast<int>(total);
}

// `first`: the first codes, four of each thread.
__device__ void select_dense(const SelectArguments& a, MergeShared& shared, int row, int n, bool of_blocks,
                             const uint4& first) {
  const uint32_t* codes = a.dense + static_cast<int64_t>(row) * kDenseEntries;
  if (!of_blocks) {
    *reinterpret_cast<uint4*>(shared.dense + 4 * threadIdx.x) = first;
    for (int i = 4 * (threadIdx.x + kThreads); i < n; i += 4 * kThreads) {
      *reinterpret_cast<uint4*>(shared.dense + i) = *reinterpret_cast<const uint4*>(codes + i);
    }
    write_entries(a, row, shared.sorted, choose_dense(shared, n, static_cast<int>(a.p.k)));
    return;
  }
  const int size = static_cast<int>(a.p.block_size), blocks = (n + size - 1) / size;
  for (int i = threadIdx.x; i < blocks; i += kThreads) {
    uint32_t best = i == blocks - 1 ? ordered(INFINITY) : 0;
    for (int j = i * size; j < min((i + 1) * size, n); ++j) best = max(best, codes[j]);
    shared.dense[i] = best;
  }
  const int count = choose_dense(shared, blocks, static_cast<int>(a.p.max_blocks));
  write_blocks(a, row, shared.sorted, count, n, threadIdx.x, kThreads);
}

__device__ void merge_lists(const SelectArguments& a, MergeShared& shared, int row, int n, int active, bool of_blocks) {
  Merge merge{.a = a,
              .lists = of_blocks ? a.blocks : a.best,
              .shared = shared,
              .row = row,
              .active = active,
              .wanted = static_cast<int>(of_blocks ? a.p.max_blocks : a.p.k)};
  const int count = merge.choose();
  merge.sort(count, of_blocks ? (n + static_cast<int>(a.p.block_size) - 1) / static_cast<int>(a.p.block_size) : n);
  if (of_blocks) {
    write_blocks(a, row, shared.sorted, count, n, threadIdx.x, kThreads);
  } else {
    write_entries(a, row, shared.sorted, count);
  }
}

// Grid: rows; entries and, when candidates are made, blocks.
__global__ void __launch_bounds__(kThreads, 1) merge_stretches(const __grid_constant__ SelectArguments a) {
  extern __shared__ __align__(16) char memory[];
  auto& shared = *reinterpret_cast<MergeShared*>(memory);
  wait_for_previous_launch();
  allow_next_launch();
  const int row = static_cast<int>(blockIdx.x);
  // All at once, whatever may turn out to be wanted.
  const auto* dense = reinterpret_cast<const uint4*>(a.dense + static_cast<int64_t>(row) * kDenseEntries);
  const uint4 first = __ldcg(dense + threadIdx.x);
  const int count = __ldcg(a.p.rows.count), active = __ldcg(a.active + row), length = __ldcg(row_length(a, row));
  if (row >= count || active == kDone) return;
  const int n = row_number(a, length);
  const bool of_blocks = blockIdx.y == 1;
  if (of_blocks && n <= a.p.max_blocks * a.p.block_size) return;
  if (active == kDense) {
    select_dense(a, shared, row, n, of_blocks, first);
  } else {
    merge_lists(a, shared, row, n, active, of_blocks);
  }
}

}  // namespace

void launch_index_merge(cudaStream_t stream, const SelectArguments& a) {
  static const cudaError_t prepared = cudaFuncSetAttribute(merge_stretches, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                           static_cast<int>(sizeof(MergeShared)));
  GANNET_CUDA_CHECK(prepared);
  const dim3 grid(static_cast<unsigned>(a.p.rows.most), a.p.make_candidates ? 2 : 1);
  launch_overlapping(stream, merge_stretches, {.grid = grid, .threads = kThreads, .shared_bytes = sizeof(MergeShared)},
                     a);
}

}  // namespace gannet::ops::cuda

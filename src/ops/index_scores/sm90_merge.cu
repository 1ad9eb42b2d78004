#include <cuda_runtime.h>

#include "ops/cuda/check.h"
#include "ops/index_scores/sm90_kernels.h"

// The best of all stretches' lists of a row, in rising order of entries.
namespace gannet::ops::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kBins = 2 * kThreads;
constexpr int kCapacity = 8192;      // elements that are looked at together
constexpr int kMostWanted = 2048;    // best entries or blocks of a row
constexpr int kMostStretches = 132;  // of a row
constexpr int kWindow = 2 * kCapacity * 32;

struct MergeShared {
  union {
    struct {
      uint32_t codes[kCapacity];
      uint32_t places[kCapacity];  // in the row's lists
    };
    uint32_t bitmap[kWindow / 32];
  };
  uint32_t bins[kBins];
  uint32_t chosen[kMostWanted];
  uint32_t sorted[kMostWanted];
  uint32_t counts[kMostStretches];
  uint32_t warps[32];
  int size;
  int bin, above, population;
};

__device__ inline uint32_t warp_scan(uint32_t value) {
  for (int step = 1; step < 32; step *= 2) {
    const uint32_t other = __shfl_up_sync(0xffffffffU, value, step);
    if (static_cast<int>(threadIdx.x) % 32 >= step) value += other;
  }
  return value;
}

// What is chosen: codes above `code`; of those equal to it all, or those with entries up to `last_entry`.
struct Threshold {
  uint32_t code = 0;
  uint32_t last_entry = 0xffffffffU;
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

  __device__ uint32_t sum_before(uint32_t value, uint32_t* total = nullptr) {
    const uint32_t inclusive = warp_scan(value);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    __syncthreads();
    if (lane == 31) shared.warps[warp] = inclusive;
    __syncthreads();
    const uint32_t warps = warp_scan(shared.warps[lane]);
    const uint32_t before = __shfl_sync(0xffffffffU, warps, max(warp - 1, 0));
    if (total != nullptr) *total = __shfl_sync(0xffffffffU, warps, 31);
    return (warp > 0 ? before : 0) + inclusive - value;
  }
  __device__ uint32_t least(uint32_t value) {
    value = __reduce_min_sync(0xffffffffU, value);
    __syncthreads();
    if (threadIdx.x % 32 == 0) shared.warps[threadIdx.x / 32] = value;
    __syncthreads();
    return __reduce_min_sync(0xffffffffU, shared.warps[threadIdx.x % 32]);
  }

  __device__ void load_counts() {
    uint32_t bound = 0xffffffffU;
    if (static_cast<int>(threadIdx.x) < active) {
      shared.counts[threadIdx.x] = lists.counts[row * a.stretches + threadIdx.x];
      bound = lists.bounds[row * a.stretches + threadIdx.x];
    }
    if (threadIdx.x == 0) shared.size = 0;
    floor = least(bound);
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

  // The largest code of which `needed` elements are at or above; `ties` when not all of the equal ones are needed: how
  // many are. key(i) is element i's code, 0 leaves it out.
  template <class Key>
  __device__ uint32_t find(int size, int needed, int& ties, const Key& key) {
    uint32_t low = 0xffffffffU, high = 0;
    for (int i = threadIdx.x; i < size; i += kThreads) {
      const uint32_t code = key(i);
      if (code == 0) continue;
      low = min(low, code);
      high = max(high, code);
    }
    low = least(low);
    high = ~least(~high);
    while (true) {
      const int shift = high == low ? 0 : max(0, 21 - __clz(high - low));
      count_bins(size, low, high, shift, key);
      find_bin(needed);
      needed -= shared.above;
      const uint32_t code = low + (static_cast<uint32_t>(shared.bin) << shift);
      ties = shared.population == needed ? 0 : needed;
      if (ties == 0 || shift == 0) return code;
      low = code;
      high = min(high, code + ((1U << shift) - 1));
    }
  }
  template <class Key>
  __device__ void count_bins(int size, uint32_t low, uint32_t high, int shift, const Key& key) {
    __syncthreads();
    shared.bins[threadIdx.x] = 0;
    shared.bins[threadIdx.x + kThreads] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < size; i += kThreads) {
      const uint32_t code = key(i);
      if (code >= low && code <= high && code != 0) atomicAdd(&shared.bins[(code - low) >> shift], 1U);
    }
    __syncthreads();
  }
  // The bin, from the top, in which the element number `needed` lies.
  __device__ void find_bin(int needed) {
    const int upper = kBins - 1 - 2 * static_cast<int>(threadIdx.x);
    const int n_upper = static_cast<int>(shared.bins[upper]), n_lower = static_cast<int>(shared.bins[upper - 1]);
    const int above = static_cast<int>(sum_before(n_upper + n_lower));
    if (above < needed && needed <= above + n_upper) {
      shared.bin = upper;
      shared.above = above;
      shared.population = n_upper;
    } else if (above + n_upper < needed && needed <= above + n_upper + n_lower) {
      shared.bin = upper - 1;
      shared.above = above + n_upper;
      shared.population = n_lower;
    }
    __syncthreads();
  }

  __device__ Threshold threshold() {
    Threshold result;
    const int size = shared.size;
    if (size <= wanted) return result;
    int ties = 0;
    result.code = find(size, wanted, ties, [this](int i) { return shared.codes[i]; });
    if (ties == 0) return result;
    int none = 0;
    result.last_entry = ~find(size, ties, none, [this, &result](int i) {
      return shared.codes[i] == result.code ? ~entry(shared.places[i]) : 0U;
    });
    return result;
  }
  __device__ bool is_chosen(int i, const Threshold& limit) const {
    if (shared.codes[i] != limit.code) return shared.codes[i] > limit.code;
    return limit.last_entry == 0xffffffffU || entry(shared.places[i]) <= limit.last_entry;
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
      const int each = (words + kThreads - 1) / kThreads;
      const int first = min(static_cast<int>(threadIdx.x) * each, words), end = min(first + each, words);
      uint32_t mine = 0, all = 0;
      for (int i = first; i < end; ++i) mine += __popc(shared.bitmap[i]);
      uint32_t at = rank + sum_before(mine, &all);
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

__device__ void write_entries(const SelectArguments& a, int64_t row, const uint32_t* sorted, int count) {
  const int32_t* candidates = a.p.candidates + row * a.p.max_blocks * a.p.block_size;
  int32_t* out = a.p.selected + row * a.p.selected_stride;
  for (int i = threadIdx.x; i < count; i += kThreads) {
    const auto entry = static_cast<int32_t>(sorted[i]);
    out[i] = a.p.use_candidates ? candidates[entry] : entry;
  }
  if (threadIdx.x == 0) a.p.selected_counts[row] = count;
}

__device__ void write_blocks(const SelectArguments& a, int64_t row, const uint32_t* sorted, int count, int visible) {
  const int size = static_cast<int>(a.p.block_size);
  int32_t* out = a.p.candidates + row * a.p.max_blocks * a.p.block_size;
  // The newest block, the last one, is the only one that may be shorter.
  const int total = count * size - ((visible + size - 1) / size * size - visible);
  for (int i = threadIdx.x; i < total; i += kThreads) out[i] = static_cast<int32_t>(sorted[i / size]) * size + i % size;
  if (threadIdx.x == 0) a.p.candidate_counts[row] = total;
}

// Grid: rows; entries and, when candidates are made, blocks.
__global__ void __launch_bounds__(kThreads, 1) merge_stretches(const __grid_constant__ SelectArguments a) {
  extern __shared__ __align__(16) char memory[];
  const int row = static_cast<int>(blockIdx.x);
  if (row >= *a.p.rows.count) return;
  const int active = a.active[row];
  if (active == 0) return;
  const int n =
      a.p.use_candidates ? a.p.candidate_counts[row] : (a.p.rows.positions[row] + 1) / static_cast<int>(a.p.ratio);
  const bool of_blocks = blockIdx.y == 1;
  if (of_blocks && n <= a.p.max_blocks * a.p.block_size) return;
  auto& shared = *reinterpret_cast<MergeShared*>(memory);
  Merge merge{.a = a,
              .lists = of_blocks ? a.blocks : a.best,
              .shared = shared,
              .row = row,
              .active = active,
              .wanted = static_cast<int>(of_blocks ? a.p.max_blocks : a.p.k)};
  const int count = merge.choose();
  merge.sort(count, of_blocks ? (n + static_cast<int>(a.p.block_size) - 1) / static_cast<int>(a.p.block_size) : n);
  if (of_blocks) {
    write_blocks(a, row, shared.sorted, count, n);
  } else {
    write_entries(a, row, shared.sorted, count);
  }
}

}  // namespace

void launch_index_merge(cudaStream_t stream, const SelectArguments& a) {
  static const cudaError_t prepared = cudaFuncSetAttribute(merge_stretches, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                           static_cast<int>(sizeof(MergeShared)));
  GANNET_CUDA_CHECK(prepared);
  const dim3 grid(static_cast<unsigned>(a.p.rows.most), a.p.make_candidates ? 2 : 1);
  merge_stretches<<<grid, kThreads, sizeof(MergeShared), stream>>>(a);
  GANNET_CUDA_LAUNCHED();
}

}  // namespace gannet::ops::cuda

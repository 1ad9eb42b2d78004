#pragma once

#include <cuda_runtime.h>

#include <cstdint>

// Selection by a whole block: the code of the n-th best of some thousand elements in shared memory.
namespace gannet::ops::cuda {

// What is chosen: larger codes, and of the elements with this code those whose tie-breaker is no larger.
struct Threshold {
  uint32_t code;
  uint32_t tie;

  __device__ bool admits(uint32_t other, uint32_t other_tie) const {
    return other > code || (other == code && other_tie <= tie);
  }
};

template <int threads>
struct BlockSelect {
  static constexpr int kBins = 2048;
  static constexpr int kWarps = threads / 32;
  static constexpr int kNear = 128;

  struct Shared {
    uint32_t bins[kBins];
    uint64_t near_elements[kNear];  // code, then the tie-breaker's complement
    uint32_t sums[32];
    uint32_t least[32];
    uint32_t largest[32];
    int near;
    int bin, above, population;
    Threshold found;
  };
  Shared& shared;

  __device__ static uint32_t warp_scan(uint32_t value) {
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const uint32_t other = __shfl_up_sync(0xffffffffU, value, step);
      if (static_cast<int>(threadIdx.x) % 32 >= step) value += other;
    }
    return value;
  }
  // The sum of the values of all threads before; `total` of all.
  __device__ uint32_t sum_before(uint32_t value, uint32_t& total) {
    const uint32_t inclusive = warp_scan(value);
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    if (lane == 31) shared.sums[warp] = inclusive;
    __syncthreads();
    const uint32_t warps = warp_scan(lane < kWarps ? shared.sums[lane] : 0);
    const uint32_t before = __shfl_sync(0xffffffffU, warps, max(warp - 1, 0));
    total = __shfl_sync(0xffffffffU, warps, 31);
    return (warp > 0 ? before : 0) + inclusive - value;
  }

  // Of the `size` elements code(i), 0 standing for none: the threshold that admits the `wanted` best, of equal ones
  // those with the least tie(i), which is different for each of them; or all when there are no more. Begins and ends
  // with all threads together.
  template <class Code, class Tie>
  __device__ Threshold find(int size, int wanted, const Code& code, const Tie& tie) {
    int ties = 0;
    Threshold result = search(size, wanted, code, tie, ties);
    if (ties == 0) return result;
    const auto tie_code = [&](int i) { return code(i) == result.code ? ~tie(i) : 0U; };
    int none = 0;
    const auto no_tie = [](int) { return 0U; };
    result.tie = ~search(size, ties, tie_code, no_tie, none).code;
    return result;
  }

  // A code that `wanted` elements reach, or not many more; 0 when there are no more than that.
  template <class Code>
  __device__ uint32_t lower_bound(int size, int wanted, const Code& code) {
    uint32_t low = 0, high = 0;
    range(size, code, low, high);
    if (high == 0) return 0;
    const int shift = high == low ? 0 : max(0, 21 - __clz(high - low));
    count(size, code, low, high, shift);
    if (!find_bin(wanted)) return 0;
    return low + (static_cast<uint32_t>(shared.bin) << shift);
  }

 private:
  // Leaves it open when more equal codes remain than fit into the list of near elements: then `ties` of them are
  // wanted.
  template <class Code, class Tie>
  __device__ Threshold search(int size, int wanted, const Code& code, const Tie& tie, int& ties) {
    uint32_t low = 0, high = 0;
    range(size, code, low, high);
    if (high == 0) return {1, 0xffffffffU};
    while (true) {
      const int shift = high == low ? 0 : max(0, 21 - __clz(high - low));
      count(size, code, low, high, shift);
      if (!find_bin(wanted)) return {1, 0xffffffffU};
      wanted -= shared.above;
      low += static_cast<uint32_t>(shared.bin) << shift;
      high = min(high, low + ((1U << shift) - 1));
      const int population = shared.population;
      if (population == wanted) return {low, 0xffffffffU};
      if (population <= kNear) return find_near(size, wanted, code, tie, low, high);
      if (shift == 0) {
        ties = wanted;
        return {low, 0};
      }
      __syncthreads();
      clear();
      __syncthreads();
    }
  }

  __device__ void clear() {
    for (int i = threadIdx.x; i < kBins; i += threads) shared.bins[i] = 0;
    if (threadIdx.x == 0) shared.near = 0;
  }
  template <class Code>
  __device__ void range(int size, const Code& code, uint32_t& low, uint32_t& high) {
    low = 0xffffffffU;
    high = 0;
    __syncthreads();
    clear();
    for (int i = threadIdx.x; i < size; i += threads) {
      const uint32_t c = code(i);
      if (c == 0) continue;
      low = min(low, c);
      high = max(high, c);
    }
    low = __reduce_min_sync(0xffffffffU, low);
    high = __reduce_max_sync(0xffffffffU, high);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if (lane == 0) {
      shared.least[threadIdx.x / 32] = low;
      shared.largest[threadIdx.x / 32] = high;
    }
    __syncthreads();
    low = __reduce_min_sync(0xffffffffU, lane < kWarps ? shared.least[lane] : 0xffffffffU);
    high = __reduce_max_sync(0xffffffffU, lane < kWarps ? shared.largest[lane] : 0);
  }
  template <class Code>
  __device__ void count(int size, const Code& code, uint32_t low, uint32_t high, int shift) {
    for (int i = threadIdx.x; i < size; i += threads) {
      const uint32_t c = code(i);
      if (c >= low && c <= high && c != 0) atomicAdd(&shared.bins[(c - low) >> shift], 1U);
    }
    __syncthreads();
  }
  // The bin, from the top, in which the element number `needed` lies; false when there is no such element.
  __device__ bool find_bin(int needed) {
    constexpr int kEach = kBins / threads;
    const int top = kBins - 1 - kEach * static_cast<int>(threadIdx.x);
    int n[kEach], sum = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      n[i] = static_cast<int>(shared.bins[top - i]);
      sum += n[i];
    }
    uint32_t total = 0;
    int above = static_cast<int>(sum_before(sum, total));
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (above < needed && needed <= above + n[i]) {
        shared.bin = top - i;
        shared.above = above;
        shared.population = n[i];
      }
      above += n[i];
    }
    __syncthreads();
    return static_cast<int>(total) >= needed;
  }
  // The threshold among the few elements from low to high.
  template <class Code, class Tie>
  __device__ Threshold find_near(int size, int wanted, const Code& code, const Tie& tie, uint32_t low, uint32_t high) {
    for (int i = threadIdx.x; i < size; i += threads) {
      const uint32_t c = code(i);
      if (c < low || c > high) continue;
      shared.near_elements[atomicAdd(&shared.near, 1)] = static_cast<uint64_t>(c) << 32 | ~tie(i);
    }
    __syncthreads();
    constexpr int kShare = threads / kNear;  // threads that rank an element
    const int near = shared.near, element = static_cast<int>(threadIdx.x) / kShare;
    const uint64_t mine = element < near ? shared.near_elements[element] : 0;
    int rank = 0;
#pragma unroll 4
    for (int j = static_cast<int>(threadIdx.x) % kShare; j < near; j += kShare) {
      rank += static_cast<int>(shared.near_elements[j] >= mine);
    }
#pragma unroll
    for (int lanes = 1; lanes < kShare; lanes *= 2) rank += __shfl_xor_sync(0xffffffffU, rank, lanes);
    if (rank == wanted && element < near) {
      shared.found = {static_cast<uint32_t>(mine >> 32), ~static_cast<uint32_t>(mine)};
    }
    __syncthreads();
    return shared.found;
  }
};

}  // namespace gannet::ops::cuda

#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "ops/cuda/ordered.cuh"

// A warp's list of the best scores that it has seen.
namespace gannet::ops::cuda {

// How many more than k elements a list may keep, which saves most of the search for the exact bound.
inline constexpr int kSlack = 128;

// Scores are offered in rising order of their entries. Those above `bound` are appended; when the list is nearly full
// it is cut down to its k best or a few more, and `bound` rises: k elements before are no worse, and of equal ones the
// earlier win. So the k best of the list, the first of equal ones, are the k best of all that was offered, in rising
// order of entries. All members are the same in all lanes.
struct BestList {
  uint32_t* codes = nullptr;  // [capacity], shared memory, 16-byte aligned; capacity a multiple of 128
  uint32_t* entries = nullptr;
  int capacity = 0;
  int k = 0;
  int count = 0;
  float bound = -INFINITY;

  __device__ void offer(float score, uint32_t entry, bool valid, int lane) {
    const bool better = valid && score > bound;
    const uint32_t mask = __ballot_sync(0xffffffffU, better);
    if (mask == 0) return;
    if (better) {
      const int at = count + __popc(mask & ((1U << lane) - 1));
      codes[at] = ordered(score);
      entries[at] = entry;
    }
    count += __popc(mask);
  }

  // Makes room for `more` elements.
  __device__ void reserve(int more, int lane) {
    if (count + more > capacity) cut(kSlack, lane);
  }

  // Leaves between k and k + slack elements.
  __device__ void cut(int slack, int lane) {
    if (count <= k + slack) return;
    __syncwarp();
    const Bound b = find(k, slack, lane);
    const bool ties = b.at_least > k + slack;  // of which only the first `equal` fit
    int equal = ties ? k - b.above : 0;
    int kept = 0;
    for (int base = 0; base < count; base += 32) {
      const bool inside = base + lane < count;
      const uint32_t code = inside ? codes[base + lane] : 0;
      const uint32_t entry = inside ? entries[base + lane] : 0;
      bool keep = code >= b.code;
      if (ties) {
        const bool is_equal = code == b.code;
        const uint32_t mask = __ballot_sync(0xffffffffU, is_equal);
        keep = code > b.code || (is_equal && __popc(mask & ((1U << lane) - 1)) < equal);
        equal = max(0, equal - __popc(mask));
      }
      const uint32_t mask = __ballot_sync(0xffffffffU, keep);
      if (keep) {
        const int at = kept + __popc(mask & ((1U << lane) - 1));
        codes[at] = code;
        entries[at] = entry;
      }
      kept += __popc(mask);
      __syncwarp();
    }
    count = kept;
    bound = unordered(b.code);
  }

  struct Bound {
    uint32_t code;
    int at_least;  // elements >= code: at least `wanted`, and no more than wanted + slack, but for ties:
    int above;     // then this many are > code, fewer than wanted
  };
  // count >= wanted > 0.
  __device__ Bound find(int wanted, int slack, int lane) const {
    uint32_t low = 0xffffffffU, high = 0;
    for (int i = lane; i < (count + 127) / 128 * 128; i += 32) {
      if (i < count) {
        low = min(low, codes[i]);
        high = max(high, codes[i]);
      } else {
        codes[i] = 0;
      }
    }
    low = __reduce_min_sync(0xffffffffU, low);
    high = __reduce_max_sync(0xffffffffU, high) + 1;
    __syncwarp();
    Bound b{.code = low, .at_least = count, .above = 0};
    while (b.at_least > wanted + slack && high - b.code > 1) {
      const uint32_t middle = b.code + (high - b.code) / 2;
      const int n = count_from(middle, lane);
      if (n >= wanted) {
        b.code = middle;
        b.at_least = n;
      } else {
        high = middle;
        b.above = n;
      }
    }
    return b;
  }
  __device__ int count_from(uint32_t code, int lane) const {
    int n = 0;
#pragma unroll 4
    for (int i = 4 * lane; i < count; i += 128) {
      const uint4 c = *reinterpret_cast<const uint4*>(codes + i);
      n += static_cast<int>(c.x >= code) + static_cast<int>(c.y >= code) + static_cast<int>(c.z >= code) +
           static_cast<int>(c.w >= code);
    }
    return __reduce_add_sync(0xffffffffU, n);
  }
};

}  // namespace gannet::ops::cuda

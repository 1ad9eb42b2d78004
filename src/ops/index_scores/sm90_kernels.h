#pragma once

#include "ops/index_scores/sm90.h"

// What the parts of index_select share.
//
// The keys of a row, or of a tile of rows, are dealt out to some blocks: each has a stretch of them. Where one block
// has them all it finishes the row. Otherwise a second kernel does: from the scores of all keys when these are few
// (dense), or from each stretch's best.
namespace gannet::ops::cuda {

// index_select, which also writes the scores of each row that needs any: scores [most, stride], up to the row's number
// of visible entries or candidates. For tests.
void index_select_with_scores(cudaStream_t stream, const IndexSelectParams& params, float* scores, int64_t stride);

// Rows with no more entries or candidates are dense.
inline constexpr int kDenseEntries = 16384;

// What one kind of list, the best entries or the best blocks of entries, hands from the scoring blocks to the merge.
// Stretch s of row r has its list at (r * stretches + s) * capacity.
struct StretchLists {
  uint32_t* codes = nullptr;    // ordered scores
  uint32_t* entries = nullptr;  // numbers of entries, candidates or blocks; rising
  uint32_t* counts = nullptr;   // [most, stretches]
  uint32_t* bounds = nullptr;   // [most, stretches]: k / active elements of the list are at or above this code, so that
                                // k elements of all lists are at or above the least of these bounds
  int capacity = 0;
};

enum RowState : int { kDone = 0, kDense = -1 };  // otherwise the number of active stretches

struct SelectArguments {
  IndexSelectParams p;
  float weight_scale = 0;
  int block_shift = -1;       // log2 of keys.block_records, -1 when that is no power of two
  int stretches = 1;          // of the lists in scratch, at least those of either kernel
  int tile_rows = 0;          // rows that share keys in the kernel for tiles; 0 without it
  int block_rows = 1;         // rows that a block of the kernel for single rows takes in turn
  int* active = nullptr;      // [most]: RowState; null when no row is merged
  uint32_t* dense = nullptr;  // [most, kDenseEntries]: codes
  StretchLists best;          // entries
  StretchLists blocks;        // blocks of entries, when candidates are made
  float* scores = nullptr;
  int64_t scores_stride = 0;
};

// Of a list in scratch.
inline int list_capacity(int64_t k) {
  return static_cast<int>((k + 255) / 128 * 128);
}

// Kernels for single rows and for tiles of rows; `stretches` is how many blocks share a row or tile.
template <int heads>
void launch_index_rows(cudaStream_t stream, const SelectArguments& arguments, int stretches);
template <int heads, int row_tile>
void launch_index_tiles(cudaStream_t stream, const SelectArguments& arguments, int stretches);
void launch_index_merge(cudaStream_t stream, const SelectArguments& arguments);

#ifdef __CUDACC__
// Where a row's position or number of candidates is, and its visible entries or candidates by that.
__device__ inline const int32_t* row_length(const SelectArguments& a, int row) {
  return (a.p.use_candidates ? a.p.candidate_counts : a.p.rows.positions) + row;
}
__device__ inline int row_number(const SelectArguments& a, int length) {
  if (a.p.use_candidates) return length;
  return static_cast<int>(static_cast<unsigned>(length + 1) / static_cast<unsigned>(a.p.ratio));
}

// The entries of a list of rising blocks, of which the row's newest is the last and the only one that may be shorter.
__device__ inline void write_blocks(const SelectArguments& a, int row, const uint32_t* blocks, int count, int visible,
                                    int thread, int threads) {
  const int size = static_cast<int>(a.p.block_size);
  int32_t* out = a.p.candidates + row * a.p.max_blocks * size;
  const int total = count * size - ((visible + size - 1) / size * size - visible);
  for (int i = thread; i < total; i += threads) out[i] = static_cast<int32_t>(blocks[i / size]) * size + i % size;
  if (thread == 0) a.p.candidate_counts[row] = total;
}
#endif

}  // namespace gannet::ops::cuda

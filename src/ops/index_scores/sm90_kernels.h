#pragma once

#include "ops/index_scores/sm90.h"

// What the parts of index_select share.
namespace gannet::ops::cuda {

// index_select, which also writes the scores of each row that needs any: scores [most, stride], up to the row's number
// of visible entries or candidates. For tests.
void index_select_with_scores(cudaStream_t stream, const IndexSelectParams& params, float* scores, int64_t stride);

// What one kind of list, the best entries or the best blocks of entries, hands from the scoring blocks to the merge.
// Stretch s of row r has its list at (r * stretches + s) * capacity, in no particular order.
struct StretchLists {
  uint32_t* codes = nullptr;    // ordered scores
  uint32_t* entries = nullptr;  // numbers of entries, candidates or blocks
  uint32_t* counts = nullptr;   // [most, stretches]
  uint32_t* bounds = nullptr;   // [most, stretches]: when all stretches have k / stretches elements at or above some
                                // code, k elements are; the others need not be looked at
  int capacity = 0;
};

struct SelectArguments {
  IndexSelectParams p;
  float weight_scale = 0;
  int block_shift = -1;   // log2 of keys.block_records, -1 when that is no power of two
  int stretches = 1;      // of the lists in scratch, at least those of either kernel
  int tile_rows = 0;      // rows that share keys in the kernel for many rows; 0 without it
  int block_rows = 1;     // rows that a block of the kernel for single rows takes in turn
  int* active = nullptr;  // [most]: stretches to be merged; 0: the row is done
  StretchLists best;      // entries
  StretchLists blocks;    // blocks of entries, when candidates are made
  float* scores = nullptr;
  int64_t scores_stride = 0;
};

// Scratch memory of each kind of list.
inline int list_capacity(int64_t k) {
  return static_cast<int>((k + 255) / 128 * 128);
}

// One kernel for single rows (row_tile 1) and for tiles of rows; `stretches` is the grid's share of a row.
template <int heads, int row_tile>
void launch_index_scores(cudaStream_t stream, const SelectArguments& arguments, int stretches);
void launch_index_merge(cudaStream_t stream, const SelectArguments& arguments);

}  // namespace gannet::ops::cuda

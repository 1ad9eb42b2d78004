#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/cuda/rows.h"

namespace gannet::ops::cuda {

// The whole selection of an index source: rotates and rounds the index queries (Q4mx), scores the visible keys, or the
// candidates, and keeps the k best as entry numbers in rising order, of equal scores the lowest entries; NaN and
// -infinity are never chosen (ops/index_scores, index_candidates, top_k: the results are those of the three in a row).
// Where a row has few keys (sm90_kernels.h), blocks that share them leave the scores in the scratch; otherwise a block
// keeps the best of its stretch of keys, and stretches are merged. q is aligned to 16 bytes, keys to 4.
struct IndexSelectParams {
  const float* q = nullptr;        // [most, heads, 128], the output of the indexer's wq_b
  const float* weights = nullptr;  // [most, heads], the output of weights_proj; times 128^-1/2 heads^-1/2 here
  Rows rows;
  int64_t heads = 0;                   // a multiple of 4, at most 64
  int64_t ratio = 1;                   // visible entries of a row at position p: (p + 1) / ratio
  const float* frequencies = nullptr;  // [32], table C: rotates the last 64 of a head's 128 channels
  Records keys;                        // 68 bytes
  int64_t k = 0;                       // at most 512

  // The candidate set: made here from the visible entries' scores when make_candidates, used in place of the visible
  // entries when use_candidates. A list holds max_blocks * block_size entries at most, rising.
  bool make_candidates = false;
  bool use_candidates = false;
  int64_t block_size = 0;               // 8 (a power of two, at most 32)
  int64_t max_blocks = 0;               // at most 2048
  int32_t* candidates = nullptr;        // [most, max_blocks * block_size]
  int32_t* candidate_counts = nullptr;  // [most]

  std::byte* scratch = nullptr;  // index_select_scratch(..) bytes, aligned to 256, whatever the context's length
  int32_t* selected = nullptr;   // [most, selected_stride]
  int64_t selected_stride = 0;
  int32_t* selected_counts = nullptr;  // [most]
};
void index_select(cudaStream_t stream, const IndexSelectParams& params);
// Enough for any number of rows up to `most`.
int64_t index_select_scratch(int64_t most, int64_t k, int64_t max_blocks);

}  // namespace gannet::ops::cuda

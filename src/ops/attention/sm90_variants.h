#pragma once

#include "ops/attention/sm90.h"

namespace gannet::ops::cuda {

// Tiles of 16 heads; the keys of a row are spread over the `splits` (1, 2, 4, 8 or 16) blocks of a cluster.
void attention_few(cudaStream_t stream, const AttentionParams& params, int splits);

// At most 64 heads, all in one block. With 1 split a block goes from row to row; with 2 the blocks of a cluster share a
// row.
void attention_many(cudaStream_t stream, const AttentionParams& params, int splits);

}  // namespace gannet::ops::cuda

#pragma once

#include "ops/attention/sm90.h"

namespace gannet::ops::cuda {

// Tiles of 16 heads; the keys of a row are spread over the `splits` (1, 2, 4, 8 or 16) blocks of a cluster.
void attention_few(cudaStream_t stream, const AttentionParams& params, int splits);

}  // namespace gannet::ops::cuda

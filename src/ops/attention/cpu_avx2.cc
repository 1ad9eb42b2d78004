#include "ops/attention/tile.h"

namespace gannet::ops {

const AttentionKernels kAttentionAvx2 = {
    .softmax = softmax, .combine = combine, .restore_order = restore_order, .round_to_bf16 = round_all_to_bf16};

}  // namespace gannet::ops

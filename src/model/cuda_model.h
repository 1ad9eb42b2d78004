#pragma once

#include <memory>
#include <optional>

#include "cache/block_pool.h"
#include "checkpoint/checkpoint.h"
#include "model/engram_hash.h"
#include "model/forward_pass.h"
#include "model/model.h"

namespace gannet {

// The forward pass on the first GPU. Refuses, by name, a config that its kernels cannot run, options that it does not
// have, and a machine without a usable GPU.
Result<std::unique_ptr<ForwardPass>> create_cuda_forward(const Checkpoint& checkpoint, const BlockPool& pool,
                                                         const ModelOptions& options, std::optional<EngramHash> hash);

}  // namespace gannet

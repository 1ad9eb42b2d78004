#pragma once

#include <cstdint>

#include "base/error.h"
#include "checkpoint/config.h"

namespace gannet {

// What the CUDA kernels are written for, in channels.
inline constexpr int64_t kHeadDim = 512;
inline constexpr int64_t kIndexDim = 128;

// What the CUDA variants of the ops cannot run, by name; empty otherwise.
Status check_cuda_config(const Config& config);

}  // namespace gannet

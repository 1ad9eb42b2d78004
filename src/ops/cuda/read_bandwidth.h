#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace gannet::ops::cuda {

// Reads `bytes` (a multiple of 16) once and adds them up into sum [1].
void read_all(cudaStream_t stream, const std::byte* data, int64_t bytes, uint32_t* sum);

}  // namespace gannet::ops::cuda

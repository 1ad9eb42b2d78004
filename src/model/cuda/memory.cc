#include "model/cuda/memory.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "ops/cuda/check.h"

namespace gannet {
namespace {

constexpr int64_t kAlignment = 256;
constexpr int64_t kChunk = int64_t{64} << 20;

}  // namespace

template <MemoryPlace place>
CudaBuffer<place>::CudaBuffer(int64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  auto** const data = reinterpret_cast<void**>(&data_);
  const auto size = static_cast<size_t>(bytes);
  GANNET_CUDA_CHECK(place == MemoryPlace::device ? cudaMalloc(data, size) : cudaMallocHost(data, size));
}

template <MemoryPlace place>
CudaBuffer<place>::~CudaBuffer() {
  place == MemoryPlace::device ? cudaFree(data_) : cudaFreeHost(data_);
}

template class CudaBuffer<MemoryPlace::device>;
template class CudaBuffer<MemoryPlace::pinned>;

std::byte* DeviceArena::bytes_of(int64_t bytes) {
  const int64_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (measure_) {
    bytes_ += rounded;
    return nullptr;
  }
  if (chunks_.empty() || used_ + rounded > chunks_.back().bytes()) {
    DeviceBuffer& chunk = chunks_.emplace_back(std::max(rounded, kChunk));
    GANNET_CUDA_CHECK(cudaMemset(chunk.data(), 0, static_cast<size_t>(chunk.bytes())));
    used_ = 0;
  }
  std::byte* const data = chunks_.back().data() + used_;
  used_ += rounded;
  bytes_ += rounded;
  return data;
}

}  // namespace gannet

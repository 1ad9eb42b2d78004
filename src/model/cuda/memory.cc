#include "model/cuda/memory.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "ops/cuda/check.h"

namespace gannet {
namespace {

constexpr int64_t kAlignment = 256;
constexpr int64_t kChunk = int64_t{64} << 20;

}  // namespace

DeviceBuffer::DeviceBuffer(int64_t bytes) : bytes_(bytes) {
  if (bytes > 0) GANNET_CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&data_), static_cast<size_t>(bytes)));
}

DeviceBuffer::~DeviceBuffer() {
  cudaFree(data_);
}

PinnedBuffer::PinnedBuffer(int64_t bytes) : bytes_(bytes) {
  if (bytes > 0) GANNET_CUDA_CHECK(cudaMallocHost(reinterpret_cast<void**>(&data_), static_cast<size_t>(bytes)));
}

PinnedBuffer::~PinnedBuffer() {
  cudaFreeHost(data_);
}

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

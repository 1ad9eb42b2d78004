#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

namespace gannet {

enum class MemoryPlace {
  device,  // of the current CUDA device
  pinned,  // of the host, which the device reads and writes without the processor's help
};

// Memory that is given back with the object.
template <MemoryPlace place>
class CudaBuffer {
 public:
  CudaBuffer() = default;
  explicit CudaBuffer(int64_t bytes);
  ~CudaBuffer();
  CudaBuffer(CudaBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  CudaBuffer& operator=(CudaBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

using DeviceBuffer = CudaBuffer<MemoryPlace::device>;
using PinnedBuffer = CudaBuffer<MemoryPlace::pinned>;

// All device memory of one purpose, taken in large chunks: counts what it gives out, and frees it at once.
class DeviceArena {
 public:
  // `measure`: only counts, and gives out addresses that nobody may use.
  explicit DeviceArena(bool measure = false) : measure_(measure) {}

  // Zeroed; aligned to 256 bytes.
  template <class T>
  T* get(int64_t n) {
    return reinterpret_cast<T*>(bytes_of(n * static_cast<int64_t>(sizeof(T))));
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* bytes_of(int64_t bytes);

  bool measure_;
  std::deque<DeviceBuffer> chunks_;
  int64_t used_ = 0;  // of the last chunk
  int64_t bytes_ = 0;
};

}  // namespace gannet

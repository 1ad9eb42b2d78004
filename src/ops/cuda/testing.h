#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "ops/cuda/check.h"
#include "ops/testing.h"

// What the tests of the CUDA variants share; they run in gannet-gpu-test.
namespace gannet::ops::cuda::test {

// Device memory with guard bytes behind it. Every byte begins as 0xff, which is NaN in every format used here.
template <class T>
class Array {
 public:
  explicit Array(int64_t n) : size_(n) {
    GANNET_CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&data_), bytes() + kGuard));
    poison();
  }
  explicit Array(const std::vector<T>& values) : Array(static_cast<int64_t>(values.size())) { set(values); }
  ~Array() { cudaFree(data_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  Array(Array&& other) noexcept : data_(std::exchange(other.data_, nullptr)), size_(other.size_) {}

  T* get() const { return data_; }
  int64_t size() const { return size_; }
  int64_t bytes() const { return size_ * static_cast<int64_t>(sizeof(T)); }
  void poison() { GANNET_CUDA_CHECK(cudaMemset(data_, 0xff, bytes() + kGuard)); }
  void set(std::span<const T> values) {
    GANNET_CUDA_CHECK(cudaMemcpy(data_, values.data(), values.size_bytes(), cudaMemcpyHostToDevice));
  }
  std::vector<T> host() const {
    std::vector<T> values(size_);
    GANNET_CUDA_CHECK(cudaDeviceSynchronize());
    GANNET_CUDA_CHECK(cudaMemcpy(values.data(), data_, bytes(), cudaMemcpyDeviceToHost));
    return values;
  }
  // Nothing was written behind the end.
  bool guard_intact() const {
    std::vector<unsigned char> guard(kGuard);
    GANNET_CUDA_CHECK(
        cudaMemcpy(guard.data(), reinterpret_cast<const char*>(data_) + bytes(), kGuard, cudaMemcpyDeviceToHost));
    return std::all_of(guard.begin(), guard.end(), [](unsigned char b) { return b == 0xff; });
  }

 private:
  static constexpr size_t kGuard = 1024;
  T* data_ = nullptr;
  int64_t size_;
};

inline std::vector<__nv_bfloat16> to_bf16(std::span<const float> values) {
  std::vector<__nv_bfloat16> result(values.size());
  std::transform(values.begin(), values.end(), result.begin(), [](float v) { return __float2bfloat16(v); });
  return result;
}
inline std::vector<float> to_float(std::span<const __nv_bfloat16> values) {
  std::vector<float> result(values.size());
  std::transform(values.begin(), values.end(), result.begin(), [](__nv_bfloat16 v) { return __bfloat162float(v); });
  return result;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// Microseconds of one launch: `repeats` of it in a captured graph, the median of five replays. `launch(stream, i)` may
// take other inputs for each i, so that they do not come out of the cache.
double time_launch(const std::function<void(cudaStream_t, int)>& launch, int repeats = 20);

// Prints "what: 12.3 us, 1234 GB/s (27 % of reading), 45 TFLOP/s"; zero bytes or operations are left out. Benchmarks
// are tests named Benchmark.*, which gannet-gpu-test runs only with --bench.
void report(const char* what, double microseconds, double bytes, double operations);

}  // namespace gannet::ops::cuda::test

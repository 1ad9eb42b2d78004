#pragma once

#include "ops/cuda/testing.h"
#include "ops/linear/sm90.h"
#include "ops/linear/test_weight.h"

// Packed weights for the tests of the CUDA variants.
namespace gannet::ops::cuda::test {

using ops::test::Random;
using ops::test::TestWeight;

inline constexpr WeightFormat kPackedFormats[] = {WeightFormat::fp8, WeightFormat::mxfp4, WeightFormat::bf16};

// A weight's codes and scales in device memory, as a loader would put them there.
class UploadedWeight {
 public:
  explicit UploadedWeight(const WeightMatrix& host) : matrix_(host), data_(bytes(host)), scale_(scales(host)) {
    data_.set({static_cast<const uint8_t*>(host.data), static_cast<size_t>(data_.size())});
    scale_.set({host.scale, static_cast<size_t>(scale_.size())});
    matrix_.data = data_.get();
    matrix_.scale = scale_.get();
  }
  const WeightMatrix& matrix() const { return matrix_; }

 private:
  static int64_t bytes(const WeightMatrix& m) {
    const int64_t n = m.rows * m.cols;
    return m.format == WeightFormat::mxfp4 ? n / 2 : m.format == WeightFormat::fp8 ? n : 2 * n;
  }
  static int64_t scales(const WeightMatrix& m) {
    if (m.format == WeightFormat::bf16) return 0;
    return (m.format == WeightFormat::fp8 ? (m.rows + 31) / 32 : m.rows) * ((m.cols + 31) / 32);
  }

  WeightMatrix matrix_;
  Array<uint8_t> data_;
  Array<uint8_t> scale_;
};

class PackedWeight {
 public:
  explicit PackedWeight(const TestWeight& weight, int32_t exponent = 0)
      : packed_(packed_bytes(weight.matrix().format, weight.matrix().rows, weight.matrix().cols)) {
    const UploadedWeight uploaded(weight.matrix());
    describe(weight.matrix(), weight.matrix().rows, exponent);
    pack_matrix(nullptr, uploaded.matrix(), exponent, packed_.get());
    GANNET_CUDA_CHECK(cudaDeviceSynchronize());
  }
  PackedWeight(const TestWeight& w1, const TestWeight& w3, int32_t exponent = 0)
      : packed_(packed_bytes(w1.matrix().format, 2 * w1.matrix().rows, w1.matrix().cols)) {
    const UploadedWeight gate(w1.matrix()), up(w3.matrix());
    describe(w1.matrix(), 2 * w1.matrix().rows, exponent);
    pack_gate_up(nullptr, gate.matrix(), up.matrix(), exponent, packed_.get());
    GANNET_CUDA_CHECK(cudaDeviceSynchronize());
  }
  // Random; for benchmarks.
  PackedWeight(WeightFormat format, int64_t rows, int64_t cols, uint64_t seed)
      : packed_(packed_bytes(format, rows, cols)) {
    describe({.format = format, .rows = rows, .cols = cols}, rows, 0);
    fill_packed(nullptr, format, rows, cols, seed, -6, packed_.get());
    GANNET_CUDA_CHECK(cudaDeviceSynchronize());
  }

  const PackedMatrix& matrix() const { return matrix_; }
  const Array<std::byte>& bytes() const { return packed_; }

 private:
  void describe(const WeightMatrix& weight, int64_t rows, int32_t exponent) {
    matrix_ = {.format = weight.format, .rows = rows, .cols = weight.cols, .data = packed_.get(), .exponent = exponent};
  }

  Array<std::byte> packed_;
  PackedMatrix matrix_;
};

}  // namespace gannet::ops::cuda::test

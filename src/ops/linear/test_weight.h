#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/number_oracle.h"
#include "ops/linear/op.h"
#include "ops/testing.h"

// Weight matrices for the unit tests of linear and experts.
namespace gannet::ops::test {

inline const char* name_of(WeightFormat format) {
  static constexpr const char* kNames[] = {"fp8", "mxfp4", "bf16", "f32"};
  return kNames[static_cast<int>(format)];
}

inline constexpr WeightFormat kWeightFormats[] = {WeightFormat::fp8, WeightFormat::mxfp4, WeightFormat::bf16,
                                                  WeightFormat::f32};

// Bytes that end one byte before a page that nobody may read, as a mapped file's may: off any alignment if their number
// is a multiple of it.
class GuardedBytes {
 public:
  explicit GuardedBytes(int64_t size) : size_(size) {
    const int64_t page = ::sysconf(_SC_PAGESIZE);
    const int64_t pages = (size + 1 + page - 1) / page * page;
    void* at =
        ::mmap(nullptr, static_cast<size_t>(pages + page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) std::abort();
    mapped_ = std::shared_ptr<void>(at, [=](void* p) { ::munmap(p, static_cast<size_t>(pages + page)); });
    data_ = static_cast<uint8_t*>(at) + pages - 1 - size;
    if (::mprotect(data_ + size + 1, static_cast<size_t>(page), PROT_NONE) != 0) std::abort();
  }
  GuardedBytes(const GuardedBytes& other) : GuardedBytes(other.size_) { std::copy_n(other.data_, size_, data_); }
  GuardedBytes(GuardedBytes&&) = default;
  GuardedBytes& operator=(GuardedBytes&&) = default;
  uint8_t* data() const { return data_; }

 private:
  int64_t size_;
  std::shared_ptr<void> mapped_;
  uint8_t* data_ = nullptr;
};

// A matrix of which nothing behind its end may be read.
class TestWeight {
 public:
  TestWeight(WeightFormat format, int64_t rows, int64_t cols)
      : format_(format), rows_(rows), cols_(cols), data_(data_bytes()), scale_(scale_rows() * blocks(cols)) {}

  // Every finite code; scales around 1 / sqrt(cols), so that outputs are near the inputs' size.
  static TestWeight random(WeightFormat format, int64_t rows, int64_t cols, Random& random) {
    TestWeight weight(format, rows, cols);
    const int base = 124 - static_cast<int>(std::log2(static_cast<double>(cols + 1)) / 2);
    for (int64_t i = 0; i < weight.scale_rows() * blocks(cols); ++i) {
      weight.scale_.data()[i] = static_cast<uint8_t>(random.integer(base - 4, base + 1));
    }
    for (int64_t i = 0; i < rows * cols; ++i) weight.randomise(i, random);
    return weight;
  }

  // The same, of FP8 only codes that are neither zero nor subnormal, as nearly all of a model's are.
  static TestWeight usual(WeightFormat format, int64_t rows, int64_t cols, Random& random) {
    TestWeight weight = TestWeight::random(format, rows, cols, random);
    for (int64_t i = 0; format == WeightFormat::fp8 && i < rows * cols; ++i) {
      const int64_t size = random.integer(8, 0x7e);
      weight.set(i, static_cast<uint32_t>(size | random.integer(0, 1) << 7));
    }
    return weight;
  }

  WeightMatrix matrix() const {
    return {.format = format_, .rows = rows_, .cols = cols_, .data = data_.data(), .scale = scale_.data()};
  }

  // The code of element (row, col): 8 bits, 4 bits, 16 bits or a float's bits.
  void set(int64_t row, int64_t col, uint32_t code) { set(row * cols_ + col, code); }
  void set_scale(int64_t row, int64_t col, uint8_t code) { scale_.data()[scale_index(row, col)] = code; }

  double value(int64_t row, int64_t col) const {
    const uint8_t* at = data_.data();
    const int64_t i = row * cols_ + col;
    if (format_ == WeightFormat::fp8) return oracle::e4m3_value(at[i]) * scale_value(row, col);
    if (format_ == WeightFormat::mxfp4) {
      return oracle::e2m1_value(i % 2 == 0 ? at[i / 2] & 15 : at[i / 2] >> 4) * scale_value(row, col);
    }
    if (format_ == WeightFormat::bf16) return oracle::bf16_value(at[2 * i] | at[2 * i + 1] << 8);
    float number = 0;
    std::memcpy(&number, at + 4 * i, 4);
    return static_cast<double>(number);
  }

 private:
  static int64_t blocks(int64_t n) { return (n + 31) / 32; }
  int64_t scale_rows() const { return format_ == WeightFormat::fp8 ? blocks(rows_) : rows_; }
  int64_t scale_index(int64_t row, int64_t col) const {
    return (format_ == WeightFormat::fp8 ? row / 32 : row) * blocks(cols_) + col / 32;
  }
  double scale_value(int64_t row, int64_t col) const {
    return oracle::e8m0_value(scale_.data()[scale_index(row, col)]);
  }
  int64_t data_bytes() const {
    const int64_t n = rows_ * cols_;
    if (format_ == WeightFormat::fp8) return n;
    if (format_ == WeightFormat::mxfp4) return n / 2;
    return format_ == WeightFormat::bf16 ? 2 * n : 4 * n;
  }
  void set(int64_t i, uint32_t code) {
    uint8_t* at = data_.data();
    if (format_ == WeightFormat::fp8) at[i] = static_cast<uint8_t>(code);
    if (format_ == WeightFormat::mxfp4) {
      const int shift = i % 2 == 0 ? 0 : 4;
      at[i / 2] = static_cast<uint8_t>((at[i / 2] & ~(15 << shift)) | static_cast<int>(code & 15) << shift);
    }
    if (format_ == WeightFormat::bf16) std::memcpy(at + 2 * i, &code, 2);
    if (format_ == WeightFormat::f32) std::memcpy(at + 4 * i, &code, 4);
  }
  void randomise(int64_t i, Random& random) {
    if (format_ == WeightFormat::fp8) {
      const int64_t code = random.integer(0, 253);  // 0x7f and 0xff are NaN
      return set(i, static_cast<uint32_t>(code < 0x7f ? code : code + 1));
    }
    if (format_ == WeightFormat::mxfp4) return set(i, static_cast<uint32_t>(random.integer(0, 15)));
    const float value = random.normal() / std::sqrt(static_cast<float>(cols_));
    set(i, format_ == WeightFormat::bf16 ? float_to_bf16(value) : std::bit_cast<uint32_t>(value));
  }

  WeightFormat format_;
  int64_t rows_;
  int64_t cols_;
  GuardedBytes data_;
  GuardedBytes scale_;
};

}  // namespace gannet::ops::test

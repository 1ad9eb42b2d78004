#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/device.h"
#include "base/number_formats.h"
#include "base/number_oracle.h"
#include "base/thread_pool.h"

// What the ops' unit tests share: devices to run on, inputs, comparisons.
namespace gannet::ops::test {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();
// Relative distance of neighbouring bf16 values: sums that differ in their last fp32 bits may round to neighbours.
inline constexpr double kBf16Step = 0x1p-7;

// Output memory that nobody has written.
inline std::vector<float> poisoned(int64_t n) {
  return std::vector<float>(n, kPoison);
}

inline std::vector<Simd> usable_simd() {
  std::vector<Simd> levels;
  for (const Simd simd : {Simd::none, Simd::avx2, Simd::avx512, Simd::avx512_bf16}) {
    if (simd <= detect_simd()) levels.push_back(simd);
  }
  return levels;
}

// Runs `body(device)` with every instruction set of this machine, on one thread and on two.
template <class Body>
void on_each_device(const Body& body) {
  for (const int threads : {1, 2}) {
    ThreadPool pool(threads, false);
    for (const Simd simd : usable_simd()) {
      SCOPED_TRACE(std::string(name_of(simd)) + ", threads: " + std::to_string(threads));
      body(Device{.pool = &pool, .simd = simd});
    }
  }
}

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}

  float uniform(float low, float high) { return std::uniform_real_distribution<float>(low, high)(engine_); }
  int64_t integer(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(engine_); }
  float normal() { return std::normal_distribution<float>()(engine_); }
  std::vector<float> normals(int64_t n, float scale = 1) {
    std::vector<float> values(n);
    for (float& value : values) value = scale * normal();
    return values;
  }
  // Activations: fp32 that holds bf16 values.
  std::vector<float> activations(int64_t n, float scale = 1) {
    std::vector<float> values = normals(n, scale);
    for (float& value : values) value = round_to_bf16(value);
    return values;
  }
  // A norm's weights: bf16 codes around 1.
  std::vector<uint16_t> norm_weights(int64_t n) {
    std::vector<uint16_t> codes(n);
    for (uint16_t& code : codes) code = float_to_bf16(1 + 0.25F * normal());
    return codes;
  }

 private:
  std::mt19937 engine_;
};

inline std::vector<uint16_t> bf16_codes(std::span<const float> values) {
  std::vector<uint16_t> codes;
  for (const float value : values) codes.push_back(float_to_bf16(value));
  return codes;
}

inline std::vector<uint16_t> bf16_ones(int64_t n) {
  return std::vector<uint16_t>(n, float_to_bf16(1));
}

inline std::vector<double> doubles(std::span<const float> values) {
  return {values.begin(), values.end()};
}

// |actual - expected| <= relative * |expected| + absolute everywhere; shows the first element that is not.
inline void expect_close(std::span<const float> actual, std::span<const double> expected, double relative,
                         double absolute) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    const double error = std::fabs(static_cast<double>(actual[i]) - expected[i]);
    ASSERT_LE(error, relative * std::fabs(expected[i]) + absolute)
        << "element " << i << ": " << actual[i] << ", expected " << expected[i];
  }
}

// The same bits everywhere: tells -0 from 0, and a NaN equals itself.
inline void expect_same_bits(std::span<const float> actual, std::span<const float> expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(actual[i]), std::bit_cast<uint32_t>(expected[i]))
        << "element " << i << ": " << actual[i] << ", expected " << expected[i];
  }
}

inline void expect_bf16_values(std::span<const float> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(round_to_bf16(values[i]), values[i]) << "element " << i << " is no bf16 value";
  }
}

// The bf16 mode's result is the fp32 mode's, rounded.
inline void expect_rounding_of(std::span<const float> bf16, std::span<const float> fp32) {
  ASSERT_EQ(bf16.size(), fp32.size());
  for (size_t i = 0; i < bf16.size(); ++i) ASSERT_EQ(bf16[i], round_to_bf16(fp32[i])) << "element " << i;
}

// `run(device)` computes an op's outputs from scratch; a null device means the reference. Without SIMD the op is the
// reference's code and gives its bits on any number of threads; other instruction sets may sum in another order.
template <class Run>
void expect_devices_agree(const Run& run, double relative, double absolute) {
  const std::vector<float> reference = run(nullptr);
  on_each_device([&](const Device& device) {
    const std::vector<float> result = run(&device);
    if (device.simd == Simd::none) {
      expect_same_bits(result, reference);
    } else {
      expect_close(result, doubles(reference), relative, absolute);
    }
  });
}

// For ops that contain a `linear`, whose sums may have another order than the reference's on every device.
template <class Run>
void expect_devices_close(const Run& run, double relative, double absolute) {
  const std::vector<float> reference = run(nullptr);
  on_each_device([&](const Device& device) { expect_close(run(&device), doubles(reference), relative, absolute); });
}

// Rotates the last 2 * frequencies.size() of `v` in double by fp32(position) * fp32(frequency), which the model takes
// as the exact angle (spec: model 3.1, "RoPE"); `direction` -1 rotates back.
inline void rotate_in_double(std::span<double> v, int64_t position, const std::vector<float>& frequencies,
                             int direction = 1) {
  double* pair = v.data() + v.size() - 2 * frequencies.size();
  for (const float frequency : frequencies) {
    const double angle = direction * static_cast<double>(static_cast<float>(position) * frequency);
    const double a = pair[0];
    const double b = pair[1];
    pair[0] = a * std::cos(angle) - b * std::sin(angle);
    pair[1] = a * std::sin(angle) + b * std::cos(angle);
    pair += 2;
  }
}

// weight * x / sqrt(mean(x^2) + eps) in double.
inline std::vector<double> rms_norm_in_double(std::span<const double> x, std::span<const uint16_t> weight, double eps) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  const double factor = 1 / std::sqrt(sum / static_cast<double>(x.size()) + eps);
  std::vector<double> y;
  for (size_t i = 0; i < x.size(); ++i) y.push_back(oracle::bf16_value(weight[i]) * x[i] * factor);
  return y;
}

inline void round_all_to_bf16(std::span<double> values) {
  for (double& value : values) value = oracle::round_bf16(value);
}

}  // namespace gannet::ops::test

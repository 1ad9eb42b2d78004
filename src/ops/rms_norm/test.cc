#include <gtest/gtest.h>

#include "ops/rms_norm/op.h"
#include "ops/testing.h"

namespace gannet::ops::test {
namespace {

constexpr float kEps = 1e-20F;  // of the text model

std::vector<float> norm_row(const std::vector<float>& x, const std::vector<uint16_t>& weight,
                            Activations activations = Activations::fp32, float eps = kEps) {
  auto y = poisoned(std::ssize(x));
  rms_norm_row(x.data(), y.data(), std::ssize(x), weight.data(), eps, activations);
  return y;
}

TEST(RmsNorm, MatchesTheFormulaInDouble) {
  Random random(1);
  for (const int64_t size : {1, 2, 5, 16, 17, 32, 100, 512, 1280}) {
    SCOPED_TRACE(size);
    const auto x = random.normals(size, 3);
    const auto weight = random.norm_weights(size);
    const auto expected = rms_norm_in_double(doubles(x), weight, double{kEps});
    expect_close(norm_row(x, weight), expected, 1e-6, 0);
  }
}

TEST(RmsNorm, RoundsOnceAtTheEnd) {
  Random random(2);
  const auto x = random.activations(640);
  const auto weight = random.norm_weights(640);
  const auto rounded = norm_row(x, weight, Activations::bf16);
  expect_bf16_values(rounded);
  expect_rounding_of(rounded, norm_row(x, weight, Activations::fp32));
}

TEST(RmsNorm, NormalisesThePooledLatentOfTheSpecification) {  // model 7.6, compressor
  expect_close(norm_row({2.46211716F, -1.70199269F}, bf16_ones(2)), std::vector{1.16331892, -.80416982}, 1e-7, 0);
}

TEST(RmsNorm, ZeroRowGivesZeros) {
  for (const float value : norm_row(std::vector<float>(64), bf16_ones(64))) EXPECT_EQ(value, 0.0F);
}

// model 8, trap 3: an epsilon from a 16-bit type, or 1e-6, would swallow these.
TEST(RmsNorm, EpsilonIsTakenInFp32) {
  for (const float value : norm_row(std::vector<float>(64, 1e-6F), bf16_ones(64))) EXPECT_FLOAT_EQ(value, 1);
  for (const float value : norm_row(std::vector<float>(64, 1e-10F), bf16_ones(64))) {
    EXPECT_FLOAT_EQ(value, std::sqrt(0.5F));
  }
}

TEST(RmsNorm, LargeValuesStayFinite) {
  for (const float value : norm_row(std::vector<float>(5120, 1e16F), bf16_ones(5120))) EXPECT_NEAR(value, 1, 2e-6);
}

// Rows of 24 channels, 40 apart; what lies between belongs to others.
std::vector<float> run_strided(const Device* device, int64_t rows, bool in_place) {
  Random random(3);
  const int64_t size = 24;
  const int64_t stride = 40;
  auto x = random.activations(rows * stride);
  const auto weight = random.norm_weights(size);
  auto y = in_place ? x : poisoned(rows * stride);
  const RmsNormParams params{.x = in_place ? y.data() : x.data(),
                             .y = y.data(),
                             .stride = stride,
                             .rows = rows,
                             .size = size,
                             .weight = weight.data(),
                             .eps = kEps};
  if (device != nullptr) {
    rms_norm(*device, params);
  } else {
    rms_norm_reference(params, 0, rows);
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = size; i < stride; ++i) {
      const float left = y[r * stride + i];
      EXPECT_TRUE(in_place ? left == x[r * stride + i] : std::isnan(left)) << "row " << r << ", beside " << i;
      y[r * stride + i] = 0;
    }
  }
  return y;
}

TEST(RmsNorm, DevicesAgreeForAnyNumberOfRows) {
  for (const int64_t rows : {0, 1, 2, 7}) {
    for (const bool in_place : {false, true}) {
      expect_devices_agree([&](const Device* device) { return run_strided(device, rows, in_place); }, kBf16Step, 0);
    }
  }
}

TEST(RmsNorm, InPlaceGivesTheSame) {
  expect_same_bits(run_strided(nullptr, 5, true), run_strided(nullptr, 5, false));
}

}  // namespace
}  // namespace gannet::ops::test

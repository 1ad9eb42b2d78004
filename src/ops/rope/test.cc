#include <gtest/gtest.h>

#include "ops/rope/op.h"
#include "ops/testing.h"

namespace gannet::ops::test {
namespace {

const RopeParams kTableL{.theta = 10000, .dim = 64};
const RopeParams kTableC{
    .theta = 160000, .dim = 64, .factor = 16, .beta_fast = 32, .beta_slow = 1, .original_length = 65536};

TEST(Rope, TableLOfTheSpecification) {  // model 7.4
  const auto f = rope_frequencies(kTableL);
  ASSERT_EQ(f.size(), 32U);
  const std::vector picked{f[0], f[1], f[8], f[16], f[24], f[31]};
  expect_close(picked, std::vector{1., .749894209, .1, .01, .001, .000133352143}, 2e-7, 0);
}

TEST(Rope, TableCOfTheSpecification) {  // model 7.4
  const std::vector expected{1.,
                             .687656022,
                             .472870805,
                             .325172456,
                             .223606798,
                             .153764561,
                             .105737126,
                             .0727107717,
                             .05,
                             .0343828011,
                             .0236435402,
                             .0162586228,
                             .0111803399,
                             .00768822805,
                             .00528685632,
                             .00363553858,
                             .002265625,
                             .00139680129,
                             .000849689727,
                             .000508081963,
                             .000296977778,
                             .000168179989,
                             9.0867843e-05,
                             4.54442323e-05,
                             1.953125e-05,
                             5.37231267e-06,
                             3.69430316e-06,
                             2.54040981e-06,
                             1.74692811e-06,
                             1.20128563e-06,
                             8.260713e-07,
                             5.68052904e-07};
  expect_close(rope_frequencies(kTableC), expected, 3e-7, 0);
}

// model 3.1: correction dims 15 and 25; below, the plain frequency; above, a sixteenth of it.
TEST(Rope, InterpolationBeginsAndEndsAtTheCorrectionDims) {
  const auto f = rope_frequencies(kTableC);
  for (int i = 0; i < 32; ++i) {
    const double plain = std::pow(160000.0, -2.0 * i / 64);
    if (i <= 15) {
      EXPECT_NEAR(static_cast<double>(f[i]) / plain, 1, 1e-6) << i;
    } else if (i >= 25) {
      EXPECT_NEAR(static_cast<double>(f[i]) / plain, 1.0 / 16, 1e-7) << i;
    } else {
      EXPECT_LT(static_cast<double>(f[i]), plain * 0.999) << i;
      EXPECT_GT(static_cast<double>(f[i]), plain / 15.99) << i;
    }
  }
}

TEST(Rope, SmallDimensionsHaveFiniteTables) {
  for (const int64_t dim : {2, 4, 8, 16}) {
    for (const int64_t original : {0, 32, 64}) {
      const auto f = rope_frequencies({.theta = 10000, .dim = dim, .factor = 4, .original_length = original});
      ASSERT_EQ(std::ssize(f), dim / 2);
      for (const float value : f) EXPECT_TRUE(value > 0 && value <= 1) << "dim " << dim << ", length " << original;
    }
  }
}

// model 3.1: the angle itself is an fp32 product; at a million tokens it is a multiple of 1/16, and the cosine is that
// number's cosine.
TEST(Rope, AnglesAreExactCosinesOfTheFp32Product) {
  for (const RopeParams& table : {kTableL, kTableC}) {
    const auto frequencies = rope_frequencies(table);
    RopeAngle angle;
    for (const int64_t position : {0, 1, 2, 127, 4096, 65535, 65536, 1000003, 1048575}) {
      angle.set(position, frequencies);
      for (size_t i = 0; i < frequencies.size(); ++i) {
        const auto exact = static_cast<double>(static_cast<float>(position) * frequencies[i]);
        ASSERT_NEAR(static_cast<double>(angle.cosine[i]), std::cos(exact), 6e-8) << position << ", pair " << i;
        ASSERT_NEAR(static_cast<double>(angle.sine[i]), std::sin(exact), 6e-8) << position << ", pair " << i;
      }
    }
  }
}

TEST(Rope, AnAngleCanBeSetAgainForAnotherTable) {
  RopeAngle angle;
  angle.set(1000, rope_frequencies(kTableC));
  angle.set(7, {1.0F});
  ASSERT_EQ(angle.cosine.size(), 1U);
  EXPECT_FLOAT_EQ(angle.cosine[0], std::cos(7.0F));
}

// model 8, trap 6: pairs are neighbours, not halves.
TEST(Rope, QuarterTurnOfNeighbours) {
  const RopeAngle quarter{.cosine = {0, 0}, .sine = {1, 1}};
  std::vector<float> v{1, 2, 3, 4, 5, 6};
  rope_rotate(v.data(), quarter, false, Activations::fp32);
  EXPECT_EQ(v, (std::vector<float>{-2, 1, -4, 3, 5, 6}));
  rope_rotate(v.data(), quarter, true, Activations::fp32);
  EXPECT_EQ(v, (std::vector<float>{1, 2, 3, 4, 5, 6}));
}

TEST(Rope, PositionZeroChangesNothing) {
  RopeAngle angle;
  angle.set(0, rope_frequencies(kTableC));
  const auto original = Random(1).activations(64);
  auto v = original;
  rope_rotate(v.data(), angle, false, Activations::bf16);
  EXPECT_EQ(v, original);
}

TEST(Rope, RotatesAsInDouble) {
  const auto frequencies = rope_frequencies(kTableC);
  Random random(2);
  RopeAngle angle;
  for (const int64_t position : {1, 129, 5000, 1048575}) {
    for (const int direction : {1, -1}) {
      auto v = random.activations(64, 2);
      auto expected = doubles(v);
      rotate_in_double(expected, position, frequencies, direction);
      angle.set(position, frequencies);
      rope_rotate(v.data(), angle, direction < 0, Activations::fp32);
      expect_close(v, expected, 0, 1e-6);
    }
  }
}

TEST(Rope, InverseRestoresTheVector) {
  const auto frequencies = rope_frequencies(kTableL);
  RopeAngle angle;
  angle.set(1048575, frequencies);
  const auto original = Random(3).normals(64);
  auto v = original;
  rope_rotate(v.data(), angle, false, Activations::fp32);
  rope_rotate(v.data(), angle, true, Activations::fp32);
  expect_close(v, doubles(original), 0, 1e-6);
}

TEST(Rope, RoundsOnWriteBackOnly) {
  const auto frequencies = rope_frequencies(kTableC);
  RopeAngle angle;
  angle.set(333, frequencies);
  auto bf16 = Random(4).activations(64);
  auto fp32 = bf16;
  rope_rotate(bf16.data(), angle, false, Activations::bf16);
  rope_rotate(fp32.data(), angle, false, Activations::fp32);
  expect_bf16_values(bf16);
  expect_rounding_of(bf16, fp32);
}

// What rotary positions are for: a product of two rotated vectors depends on their distance alone.
TEST(Rope, ProductsDependOnTheDistanceOnly) {
  const auto frequencies = rope_frequencies(kTableL);
  Random random(5);
  const auto q = random.normals(64);
  const auto k = random.normals(64);
  const auto product = [&](int64_t q_position, int64_t k_position) {
    auto rotated_q = q;
    auto rotated_k = k;
    RopeAngle angle;
    angle.set(q_position, frequencies);
    rope_rotate(rotated_q.data(), angle, false, Activations::fp32);
    angle.set(k_position, frequencies);
    rope_rotate(rotated_k.data(), angle, false, Activations::fp32);
    double sum = 0;
    for (size_t i = 0; i < q.size(); ++i) sum += static_cast<double>(rotated_q[i]) * static_cast<double>(rotated_k[i]);
    return sum;
  };
  EXPECT_NEAR(product(17, 5), product(1012, 1000), 2e-3);
  EXPECT_NEAR(product(100, 100), product(0, 0), 1e-5);
  EXPECT_GT(std::fabs(product(17, 5) - product(17, 6)), 1e-2);
}

TEST(Rope, NoFrequenciesNoRotation) {
  RopeAngle angle;
  angle.set(9, {});
  rope_rotate(nullptr, angle, false, Activations::bf16);
  EXPECT_TRUE(angle.cosine.empty());
}

}  // namespace
}  // namespace gannet::ops::test

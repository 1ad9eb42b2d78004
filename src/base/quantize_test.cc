#include "base/quantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/number_formats.h"
#include "base/number_oracle.h"

namespace gannet {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

struct Packed {
  std::vector<uint8_t> codes;
  std::vector<uint8_t> scales;
};

// A block format's functions, channels of a group and channels of a code byte.
struct Format {
  const char* name;
  void (*pack)(std::span<const float>, uint8_t*, uint8_t*);
  void (*unpack)(const uint8_t*, const uint8_t*, std::span<float>);
  std::vector<double> (*expected)(std::span<const float>);
  int64_t (*bytes)(int64_t);
  size_t group;
  size_t channels_per_byte;
};
const Format kQ8{"q8", q8_pack, q8_unpack, oracle::q8, q8_bytes, 32, 1};
const Format kQ4mx{"q4mx", q4mx_pack, q4mx_unpack, oracle::q4mx, q4mx_bytes, 32, 2};
const Format kQ4nv{"q4nv", q4nv_pack, q4nv_unpack, oracle::q4nv, q4nv_bytes, 16, 2};
const Format* const kFormats[] = {&kQ8, &kQ4mx, &kQ4nv};

Packed pack(const Format& format, const std::vector<float>& x) {
  Packed packed{std::vector<uint8_t>(x.size() / format.channels_per_byte),
                std::vector<uint8_t>(x.size() / format.group)};
  format.pack(x, packed.codes.data(), packed.scales.data());
  return packed;
}

std::vector<float> through(const Format& format, const std::vector<float>& x) {
  const Packed packed = pack(format, x);
  std::vector<float> y(x.size(), std::numeric_limits<float>::quiet_NaN());
  format.unpack(packed.codes.data(), packed.scales.data(), y);
  return y;
}

void expect_like_oracle(const Format& format, const std::vector<float>& x) {
  SCOPED_TRACE(format.name);
  const auto expected = format.expected(x);
  const auto actual = through(format, x);
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(static_cast<double>(actual[i]), expected[i]) << "channel " << i << ", value " << x[i];
    ASSERT_EQ(std::signbit(actual[i]), std::signbit(x[i])) << "channel " << i << ", value " << x[i];
  }
}

// A group whose largest magnitude is amax, at a place of its own and negative.
std::vector<float> group_of(const Format& format, float amax) {
  std::vector<float> x(format.group, amax / 3);
  x[format.group / 2 + 1] = -amax;
  return x;
}

int scale_code(const Format& format, float amax) {
  return pack(format, group_of(format, amax)).scales[0];
}

TEST(Q8, ScaleCodesOfTheSpecification) {  // model 7.3
  EXPECT_EQ(scale_code(kQ8, 1), 119);
  EXPECT_EQ(scale_code(kQ8, 448), 127);
  EXPECT_EQ(scale_code(kQ8, 449), 128);
  EXPECT_EQ(scale_code(kQ8, 3.5F), 120);
  EXPECT_EQ(scale_code(kQ8, 0.875F), 118);
  EXPECT_EQ(scale_code(kQ8, 6), 121);
  EXPECT_EQ(scale_code(kQ8, 1e-5F), 105);
}

TEST(Q8, MagnitudesBelowTheClampShareItsScale) {
  EXPECT_EQ(scale_code(kQ8, 1e-4F), 105);
  EXPECT_EQ(scale_code(kQ8, 0), 105);
  EXPECT_EQ(scale_code(kQ8, std::numeric_limits<float>::denorm_min()), 105);
}

TEST(Q4mx, ScaleCodesOfTheSpecification) {  // model 7.3
  EXPECT_EQ(scale_code(kQ4mx, 1), 125);
  EXPECT_EQ(scale_code(kQ4mx, 0.875F), 125);
  EXPECT_EQ(scale_code(kQ4mx, 3.5F), 127);
  EXPECT_EQ(scale_code(kQ4mx, 6), 127);
  EXPECT_EQ(scale_code(kQ4mx, 6.1F), 128);
  EXPECT_EQ(scale_code(kQ4mx, 448), 134);
}

TEST(Q4mx, MagnitudesBelowTheClampShareItsScale) {
  EXPECT_EQ(scale_code(kQ4mx, 0), 1);
  EXPECT_EQ(scale_code(kQ4mx, 0x1p-140F), 1);
  EXPECT_EQ(scale_code(kQ4mx, 6 * 0x1p-126F), 1);
}

TEST(Q4nv, ScalesOfTheSpecification) {  // model 7.3: amax, scale, E4M3 byte
  const struct {
    float amax, scale;
    int code;
  } cases[] = {{0, 0x1p-9F, 1}, {1, 0.171875F, 35}, {2, 0.34375F, 43},
               {6, 1, 56},      {10, 1.625F, 61},   {22.6F, 3.75F, 71}};
  for (const auto& c : cases) {
    EXPECT_EQ(scale_code(kQ4nv, c.amax), c.code) << c.amax;
    EXPECT_EQ(e4m3_to_float(static_cast<uint8_t>(c.code)), c.scale) << c.amax;
  }
}

// model 3.1: a division. Beside six times the middle of two scales, a product with fp32(1/6) would go wrong.
TEST(Q4nv, ScaleIsADivisionByTheLimit) {
  for (int code = 1; code < 0x7e; ++code) {
    const double middle = (oracle::e4m3_value(code) + oracle::e4m3_value(code + 1)) / 2;
    const auto amax = static_cast<float>(6 * middle);
    ASSERT_EQ(static_cast<double>(amax), 6 * middle);
    EXPECT_EQ(scale_code(kQ4nv, std::nextafter(amax, 0.0F)), code) << amax;
    EXPECT_EQ(scale_code(kQ4nv, amax), code % 2 == 0 ? code : code + 1) << amax;
    EXPECT_EQ(scale_code(kQ4nv, std::nextafter(amax, 1e9F)), code + 1) << amax;
  }
}

TEST(Q4nv, ScaleSaturatesAtTheLargestE4m3) {
  EXPECT_EQ(scale_code(kQ4nv, 6 * 448), 0x7e);
  EXPECT_EQ(scale_code(kQ4nv, 1e6F), 0x7e);
  EXPECT_EQ(through(kQ4nv, group_of(kQ4nv, 1e6F))[9], -6 * 448.0F);
}

TEST(Q4nv, WholeGroupOfTheSpecification) {  // model 7.3: x_i = (-1)^i 0.25 (i + 1)
  std::vector<float> x;
  for (int i = 0; i < 16; ++i) x.push_back((i % 2 == 0 ? 0.25F : -0.25F) * static_cast<float>(i + 1));
  const Packed packed = pack(kQ4nv, x);
  EXPECT_THAT(packed.scales, ElementsAre(51));
  EXPECT_THAT(packed.codes, ElementsAre(0x91, 0xb2, 0xc4, 0xd5, 0xe5, 0xe6, 0xf6, 0xf7));
  EXPECT_THAT(through(kQ4nv, x), ElementsAre(.34375F, -.34375F, .6875F, -1.03125F, 1.375F, -1.375F, 2.0625F, -2.0625F,
                                             2.0625F, -2.75F, 2.75F, -2.75F, 2.75F, -4.125F, 4.125F, -4.125F));
}

TEST(BlockFormats, BytesOfTheReleasedRecords) {
  EXPECT_EQ(q8_bytes(512), 528);    // window record
  EXPECT_EQ(q4nv_bytes(512), 288);  // global KV entry
  EXPECT_EQ(q4mx_bytes(128), 68);   // index key
}

// Limits times powers of two are where the scale steps: on the power it holds, one float above it doubles.
TEST(BlockFormats, PowerOfTwoScaleStepsExactlyAtItsLimit) {
  for (int exponent = -40; exponent <= 40; ++exponent) {
    for (const float limit : {448.0F, 6.0F}) {
      const float edge = std::ldexp(limit, exponent);
      EXPECT_EQ(power_of_two_scale(edge, limit), 127 + exponent) << limit << " * 2^" << exponent;
      EXPECT_EQ(power_of_two_scale(edge * 1.001F, limit), 128 + exponent) << limit << " * 2^" << exponent;
      EXPECT_EQ(power_of_two_scale(edge * 0.999F, limit), 127 + exponent) << limit << " * 2^" << exponent;
    }
  }
}

// model 3.1: the scale comes from a product with fp32(1 / limit), not from a division; near an edge they differ.
TEST(BlockFormats, PowerOfTwoScaleUsesTheRoundedReciprocal) {
  for (const float limit : {448.0F, 6.0F}) {
    for (float edge : {limit, limit * 0x1p-9F, limit * 0x1p13F}) {
      for (int step = -8; step <= 8; ++step) {
        const float amax = std::bit_cast<float>(std::bit_cast<uint32_t>(edge) + static_cast<uint32_t>(step));
        EXPECT_EQ(static_cast<double>(e8m0_to_float(power_of_two_scale(amax, limit))),
                  oracle::power_of_two_scale(static_cast<double>(amax), static_cast<double>(limit)))
            << amax;
      }
    }
  }
}

TEST(BlockFormats, PowerOfTwoScaleNeverReachesTheNanCode) {
  EXPECT_EQ(power_of_two_scale(std::numeric_limits<float>::infinity(), kE4m3Max), 254);
  EXPECT_EQ(power_of_two_scale(std::numeric_limits<float>::max(), kE2m1Max), 253);
}

TEST(BlockFormats, ZerosKeepTheirSign) {
  for (const Format* format : kFormats) {
    SCOPED_TRACE(format->name);
    std::vector<float> x(format->group, 0.0F);
    for (size_t i = 1; i < x.size(); i += 2) x[i] = -0.0F;
    expect_like_oracle(*format, x);
    EXPECT_THAT(through(*format, x), Each(0.0F));
  }
}

TEST(BlockFormats, RandomGroupsOfAllMagnitudesMatchTheDefinition) {
  std::mt19937 random(1);
  for (const Format* format : kFormats) {
    for (int exponent = -20; exponent <= 20; ++exponent) {
      std::uniform_real_distribution<float> uniform(-std::ldexp(1.0F, exponent), std::ldexp(1.0F, exponent));
      std::vector<float> x(format->group * 40);
      for (float& value : x) value = uniform(random);
      expect_like_oracle(*format, x);
    }
  }
}

TEST(BlockFormats, RandomBf16ValuesMatchTheDefinition) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal(0, 2);
  for (const Format* format : kFormats) {
    std::vector<float> x(format->group * 500);
    for (float& value : x) value = round_to_bf16(normal(random));
    expect_like_oracle(*format, x);
  }
}

TEST(BlockFormats, OneOutlierLeavesTheOtherGroupsAlone) {
  for (const Format* format : kFormats) {
    SCOPED_TRACE(format->name);
    std::vector<float> x(format->group * 3, 0.75F);
    const auto plain = through(*format, x);
    x[format->group] = 1000;
    const auto mixed = through(*format, x);
    for (size_t i = 0; i < format->group; ++i) {
      EXPECT_EQ(mixed[i], plain[i]);
      EXPECT_EQ(mixed[2 * format->group + i], plain[2 * format->group + i]);
    }
  }
}

TEST(BlockFormatsDeathTest, PartOfAGroupIsRefused) {
  std::vector<float> x(20);
  std::vector<uint8_t> codes(20);
  uint8_t scale = 127;
  for (const Format* format : kFormats) {
    EXPECT_DEATH(format->pack(x, codes.data(), &scale), "size\\(\\) %");
    EXPECT_DEATH(format->unpack(codes.data(), &scale, x), "size\\(\\) %");
  }
}

TEST(BlockFormats, NoChannelsNothingToDo) {
  for (const Format* format : kFormats) {
    format->pack({}, nullptr, nullptr);
    format->unpack(nullptr, nullptr, {});
    EXPECT_EQ(format->bytes(0), 0);
  }
  q8_round({});
  q4mx_round({});
}

TEST(BlockFormats, RoundingInPlaceEqualsPackingAndUnpacking) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> x(32 * 100);
  for (float& value : x) value = normal(random);
  auto rounded = x;
  q8_round(rounded);
  EXPECT_THAT(rounded, ElementsAreArray(through(kQ8, x)));
  rounded = x;
  q4mx_round(rounded);
  EXPECT_THAT(rounded, ElementsAreArray(through(kQ4mx, x)));
}

TEST(BlockFormats, NanStaysInItsChannel) {
  std::vector<float> x(32, 1.0F);
  x[5] = std::numeric_limits<float>::quiet_NaN();
  const auto y = through(kQ8, x);
  EXPECT_TRUE(std::isnan(y[5]));
  EXPECT_EQ(y[4], 1.0F);
  EXPECT_EQ(y[6], 1.0F);
}

// model 7.2: first bytes of two tensors of the released checkpoint and what they mean. The rest of the group is zero.
TEST(CheckpointBytes, Fp8Weights) {
  const std::array<uint8_t, 32> codes{0xd8, 0x71, 0xf2, 0x79, 0x70, 0x69, 0xf0, 0xe5};
  const uint8_t scale = 0x73;
  std::vector<float> x(32);
  q8_unpack(codes.data(), &scale, x);
  x.resize(8);
  EXPECT_THAT(
      x, ElementsAre(-.00390625F, .03515625F, -.0390625F, .0703125F, .03125F, .017578125F, -.03125F, -.0126953125F));
}

TEST(CheckpointBytes, Mxfp4Weights) {
  const std::array<uint8_t, 16> codes{0xa0, 0xa8, 0xec, 0x4a, 0xad, 0xaf, 0x42, 0xaa};
  const uint8_t scale = 0x78;
  std::vector<float> x(32);
  q4mx_unpack(codes.data(), &scale, x);
  x.resize(16);
  EXPECT_TRUE(std::signbit(x[2]));
  EXPECT_THAT(x, ElementsAre(0.0F, -.0078125F, -0.0F, -.0078125F, -.015625F, -.03125F, -.0078125F, .015625F, -.0234375F,
                             -.0078125F, -.046875F, -.0078125F, .0078125F, .015625F, -.0078125F, -.0078125F));
}

}  // namespace
}  // namespace gannet

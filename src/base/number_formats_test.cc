#include "base/number_formats.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/number_oracle.h"

namespace gannet {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

uint32_t bits_of(float value) {
  return std::bit_cast<uint32_t>(value);
}

// Equal including the sign of zero; all NaN are equal.
void expect_value(float actual, double expected) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(actual)) << actual;
    return;
  }
  EXPECT_EQ(static_cast<double>(actual), expected);
  EXPECT_EQ(std::signbit(actual), std::signbit(expected));
}

// Between the neighbours low (code) and high (code + 1): the midpoint goes to the even code, its neighbours in fp32 to
// the nearer one; with the sign bit set, the same on the other side. Needs a midpoint that fp32 holds exactly.
template <class Encode>
void expect_nearest_even(const Encode& encode, int code, float low, float high, int sign_bit) {
  SCOPED_TRACE(code);
  const float middle = static_cast<float>((static_cast<double>(low) + static_cast<double>(high)) / 2);
  ASSERT_EQ(static_cast<double>(middle) * 2, static_cast<double>(low) + static_cast<double>(high));
  const int even = code % 2 == 0 ? code : code + 1;
  EXPECT_EQ(encode(middle), even);
  EXPECT_EQ(encode(std::nextafter(middle, 0.0F)), code);
  EXPECT_EQ(encode(std::nextafter(middle, kInfinity)), code + 1);
  EXPECT_EQ(encode(-middle), even | sign_bit);
  EXPECT_EQ(encode(-std::nextafter(middle, 0.0F)), code | sign_bit);
  EXPECT_EQ(encode(-std::nextafter(middle, kInfinity)), (code + 1) | sign_bit);
}

TEST(Bf16, DecodesEveryCode) {
  for (int code = 0; code < 0x10000; ++code) {
    expect_value(bf16_to_float(static_cast<uint16_t>(code)), oracle::bf16_value(code));
  }
}

TEST(Bf16, EveryCodeRoundTrips) {
  for (int code = 0; code < 0x10000; ++code) {
    const float value = bf16_to_float(static_cast<uint16_t>(code));
    if (!std::isnan(value)) {
      EXPECT_EQ(float_to_bf16(value), code);
      EXPECT_EQ(bits_of(round_to_bf16(value)), bits_of(value));
    }
  }
}

TEST(Bf16, RoundsToNearestEvenBetweenAllNeighbours) {
  for (int code = 0; code < 0x7f7f; ++code) {
    expect_nearest_even(float_to_bf16, code, bf16_to_float(static_cast<uint16_t>(code)),
                        bf16_to_float(static_cast<uint16_t>(code + 1)), 0x8000);
  }
}

TEST(Bf16, LargestFloatRoundsToInfinityAndInfinityStays) {
  const float largest = bf16_to_float(0x7f7f);
  const float half_step = 0x1p119F;
  EXPECT_EQ(round_to_bf16(std::nextafter(largest + half_step, 0.0F)), largest);
  EXPECT_EQ(round_to_bf16(largest + half_step), kInfinity);
  EXPECT_EQ(round_to_bf16(std::numeric_limits<float>::max()), kInfinity);
  EXPECT_EQ(round_to_bf16(std::numeric_limits<float>::lowest()), -kInfinity);
  EXPECT_EQ(round_to_bf16(kInfinity), kInfinity);
  EXPECT_EQ(round_to_bf16(-kInfinity), -kInfinity);
}

TEST(Bf16, NanStaysNanWhateverItsPayload) {
  for (const uint32_t bits : {0x7f800001U, 0x7fc00000U, 0x7fffffffU, 0xff800001U, 0xffc00000U, 0xffffffffU}) {
    EXPECT_TRUE(std::isnan(round_to_bf16(std::bit_cast<float>(bits)))) << bits;
  }
}

TEST(Bf16, KeepsTheSignOfZeroAndOfWhatRoundsToZero) {
  EXPECT_EQ(float_to_bf16(0.0F), 0);
  EXPECT_EQ(float_to_bf16(-0.0F), 0x8000);
  EXPECT_EQ(float_to_bf16(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(float_to_bf16(-std::numeric_limits<float>::denorm_min()), 0x8000);
}

TEST(E8m0, DecodesEveryCode) {
  for (int code = 0; code < 256; ++code)
    expect_value(e8m0_to_float(static_cast<uint8_t>(code)), oracle::e8m0_value(code));
}

TEST(E8m0, InverseIsExact) {
  for (int code = 0; code < 255; ++code) {
    const auto byte = static_cast<uint8_t>(code);
    EXPECT_EQ(e8m0_to_inverse(byte) * e8m0_to_float(byte), 1.0F) << code;
  }
}

TEST(E4m3, DecodesEveryCode) {
  for (int code = 0; code < 256; ++code)
    expect_value(e4m3_to_float(static_cast<uint8_t>(code)), oracle::e4m3_value(code));
}

TEST(E4m3, EveryCodeRoundTrips) {
  for (int code = 0; code < 256; ++code) {
    EXPECT_EQ(float_to_e4m3(e4m3_to_float(static_cast<uint8_t>(code))), code);
  }
}

TEST(E4m3, RoundsToNearestEvenBetweenAllNeighbours) {
  for (int code = 0; code < 126; ++code) {
    expect_nearest_even(float_to_e4m3, code, e4m3_to_float(static_cast<uint8_t>(code)),
                        e4m3_to_float(static_cast<uint8_t>(code + 1)), 0x80);
  }
}

TEST(E4m3, RoundingIsEncodingAndDecoding) {
  for (int code = 0; code < 0x10000; ++code) {
    const float value = bf16_to_float(static_cast<uint16_t>(code));
    expect_value(round_to_e4m3(value), static_cast<double>(e4m3_to_float(float_to_e4m3(value))));
  }
}

TEST(E4m3, SaturatesAtItsLargestValue) {
  for (const float value : {448.0F, 448.1F, 464.0F, 480.0F, 1e9F, std::numeric_limits<float>::max(), kInfinity}) {
    EXPECT_EQ(float_to_e4m3(value), 0x7e) << value;
    EXPECT_EQ(float_to_e4m3(-value), 0xfe) << value;
  }
}

TEST(E4m3, NanGivesNan) {
  EXPECT_TRUE(std::isnan(e4m3_to_float(float_to_e4m3(kNaN))));
  EXPECT_TRUE(std::isnan(e4m3_to_float(float_to_e4m3(-kNaN))));
}

TEST(E4m3, KeepsTheSignOfZeroAndOfWhatRoundsToZero) {
  EXPECT_EQ(float_to_e4m3(0.0F), 0);
  EXPECT_EQ(float_to_e4m3(-0.0F), 0x80);
  EXPECT_EQ(float_to_e4m3(0x1p-11F), 0);
  EXPECT_EQ(float_to_e4m3(-0x1p-11F), 0x80);
  EXPECT_EQ(float_to_e4m3(std::numeric_limits<float>::denorm_min()), 0);
}

// A dense sweep beside the midpoints: every bf16 value, which is what the engine encodes.
TEST(E4m3, EncodesEveryBf16ValueToTheNearest) {
  for (int code = 0; code < 0x7f80; ++code) {
    const float value = bf16_to_float(static_cast<uint16_t>(code));
    ASSERT_EQ(static_cast<double>(e4m3_to_float(float_to_e4m3(value))), oracle::round_e4m3(static_cast<double>(value)))
        << value;
  }
}

TEST(E2m1, DecodesEveryCode) {
  for (int code = 0; code < 16; ++code)
    expect_value(e2m1_to_float(static_cast<uint8_t>(code)), oracle::e2m1_value(code));
}

TEST(E2m1, EveryCodeRoundTrips) {
  for (int code = 0; code < 16; ++code) {
    EXPECT_EQ(float_to_e2m1(e2m1_to_float(static_cast<uint8_t>(code))), code);
  }
}

// model 3.1, "E2M1 round-to-nearest-even"; a wrong side here is what put foreign characters into another engine's text.
TEST(E2m1, TiesGoToTheEvenCode) {
  const float ties[7][2] = {{0.25F, 0}, {0.75F, 1}, {1.25F, 1}, {1.75F, 2}, {2.5F, 2}, {3.5F, 4}, {5, 4}};
  for (const auto& [tie, expected] : ties) {
    EXPECT_EQ(e2m1_to_float(float_to_e2m1(tie)), expected) << tie;
    EXPECT_EQ(e2m1_to_float(float_to_e2m1(-tie)), -expected) << tie;
  }
}

TEST(E2m1, RoundsToNearestEvenBetweenAllNeighbours) {
  for (int code = 0; code < 7; ++code) {
    expect_nearest_even(float_to_e2m1, code, e2m1_to_float(static_cast<uint8_t>(code)),
                        e2m1_to_float(static_cast<uint8_t>(code + 1)), 8);
  }
}

TEST(E2m1, SaturatesAtItsLargestValue) {
  for (const float value : {6.0F, 6.5F, 7.0F, 8.0F, 1e30F, kInfinity}) {
    EXPECT_EQ(float_to_e2m1(value), 7) << value;
    EXPECT_EQ(float_to_e2m1(-value), 15) << value;
  }
}

TEST(E2m1, EncodesEveryBf16ValueToTheNearest) {
  for (int code = 0; code < 0x7f80; ++code) {
    const float value = bf16_to_float(static_cast<uint16_t>(code));
    ASSERT_EQ(static_cast<double>(e2m1_to_float(float_to_e2m1(value))), oracle::round_e2m1(static_cast<double>(value)))
        << value;
  }
}

// kernels, fact 3: whatever a record or a weight decodes to is a bf16 value, so no later rounding can change it.
TEST(Formats, EveryProductOfCodeAndScaleIsABf16Value) {
  for (int code = 0; code < 256; ++code) {
    const float value = e4m3_to_float(static_cast<uint8_t>(code));
    if (std::isnan(value)) continue;
    for (int scale = 40; scale < 220; ++scale) {
      const float product = value * e8m0_to_float(static_cast<uint8_t>(scale));
      ASSERT_EQ(round_to_bf16(product), product);
    }
    for (int nibble = 0; nibble < 16; ++nibble) {
      const float product = value * e2m1_to_float(static_cast<uint8_t>(nibble));
      ASSERT_EQ(round_to_bf16(product), product);
    }
  }
}

}  // namespace
}  // namespace gannet

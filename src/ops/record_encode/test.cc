#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "base/number_formats.h"
#include "base/quantize.h"
#include "ops/record_encode/op.h"
#include "ops/testing.h"

namespace gannet::ops::test {
namespace {

constexpr int64_t kChannels = 96;

// Groups of all sizes, then ones with ties, infinities, NaN, zeros of both signs and subnormal numbers.
std::vector<std::vector<float>> inputs() {
  Random random(1);
  std::vector<std::vector<float>> result;
  for (int exponent = -148; exponent < 128; exponent += 3) {
    auto x = random.normals(kChannels, std::ldexp(1.0F, exponent));
    x[random.integer(0, kChannels - 1)] = std::ldexp(1.0F, exponent);
    result.push_back(x);
  }
  for (const float unit : {1.0F, 0x1p-10F, 3.0F, 448.0F}) {
    std::vector<float> steps(kChannels);
    for (int64_t i = 0; i < kChannels; ++i) steps[i] = unit * static_cast<float>(i - 48) / 8;
    result.push_back(steps);
  }
  for (const float special : {NAN, -NAN, kInfinity, -kInfinity, 0.0F, -0.0F, 1e-40F, -1e-45F}) {
    auto x = random.normals(kChannels);
    x[40] = special;
    result.push_back(x);
    result.push_back(std::vector<float>(kChannels, special));
  }
  return result;
}

using Encoder = EncodeRecord RecordEncoders::*;

void expect_bytes_of_reference(Encoder encoder, int64_t bytes) {
  for (const auto& x : inputs()) {
    std::vector<uint8_t> expected(bytes + 1, 0xaa);
    (kRecordEncodersReference.*encoder)(x.data(), kChannels, expected.data());
    for (const Simd simd : usable_simd()) {
      SCOPED_TRACE(name_of(simd));
      std::vector<uint8_t> record(bytes + 1, 0xaa);
      (record_encoders(simd).*encoder)(x.data(), kChannels, record.data());
      ASSERT_EQ(record, expected) << "with " << x[0] << ", " << x[40];
    }
  }
}

TEST(RecordEncode, BytesOfQ8) {
  expect_bytes_of_reference(&RecordEncoders::q8, q8_bytes(kChannels));
}

TEST(RecordEncode, BytesOfQ4nv) {
  expect_bytes_of_reference(&RecordEncoders::q4nv, q4nv_bytes(kChannels));
}

TEST(RecordEncode, BytesOfQ4mx) {
  expect_bytes_of_reference(&RecordEncoders::q4mx, q4mx_bytes(kChannels));
}

TEST(RecordEncode, RoundedThroughQ4mx) {
  for (const auto& x : inputs()) {
    auto expected = x;
    q4mx_round(expected);
    for (const Simd simd : usable_simd()) {
      auto rounded = x;
      record_encoders(simd).q4mx_round(rounded.data(), kChannels);
      expect_same_bits(rounded, expected);
    }
  }
}

// Every E4M3 value, every midpoint and the floats next to them, under a scale of one.
TEST(RecordEncode, RoundsAtEveryMidpointOfE4m3) {
  std::vector<float> values;
  for (uint8_t code = 0; code < 0x7e; ++code) {
    const float middle = (e4m3_to_float(code) + e4m3_to_float(static_cast<uint8_t>(code + 1))) / 2;
    for (const float v : {e4m3_to_float(code), middle, std::nextafter(middle, 0.0F), std::nextafter(middle, 1e3F)}) {
      values.push_back(v);
      values.push_back(-v);
    }
  }
  while (values.size() % 31 != 0) values.push_back(0);
  for (size_t i = 0; i < values.size(); i += 31) {
    std::vector<float> x(values.begin() + static_cast<int64_t>(i), values.begin() + static_cast<int64_t>(i) + 31);
    x.push_back(kE4m3Max);
    std::vector<uint8_t> expected(33);
    kRecordEncodersReference.q8(x.data(), 32, expected.data());
    for (const Simd simd : usable_simd()) {
      std::vector<uint8_t> record(33);
      record_encoders(simd).q8(x.data(), 32, record.data());
      ASSERT_EQ(record, expected);
    }
  }
}

}  // namespace
}  // namespace gannet::ops::test

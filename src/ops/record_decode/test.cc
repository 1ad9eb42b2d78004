#include <gtest/gtest.h>

#include "base/quantize.h"
#include "ops/record_decode/op.h"
#include "ops/testing.h"

namespace gannet::ops::test {
namespace {

constexpr int64_t kChannels = 96;

// The same bits but for NaN, of which there are many.
void expect_same_values(const std::vector<float>& actual, const std::vector<float>& expected) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::isnan(expected[i])) {
      ASSERT_TRUE(std::isnan(actual[i])) << "channel " << i;
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(actual[i]), std::bit_cast<uint32_t>(expected[i])) << "channel " << i;
    }
  }
}

std::vector<float> decode(DecodeRecord decode_record, const std::vector<uint8_t>& record) {
  auto values = poisoned(kChannels);
  decode_record(record.data() + 1, kChannels, values.data());  // no alignment
  return values;
}

using Decoder = DecodeRecord RecordDecoders::*;

// Every code with every scale, subnormals, NaN and infinity included.
void expect_like_reference(Decoder decoder, int64_t bytes, int64_t codes) {
  for (const Simd simd : usable_simd()) {
    SCOPED_TRACE(name_of(simd));
    std::vector<uint8_t> record(1 + bytes);
    for (int scale = 0; scale < 256; ++scale) {
      for (int64_t first = 0; first < 256; first += codes) {
        for (int64_t i = 0; i < codes; ++i) record[1 + i] = static_cast<uint8_t>(first + i);
        std::fill(record.begin() + 1 + codes, record.end(), static_cast<uint8_t>(scale));
        expect_same_values(decode(record_decoders(simd).*decoder, record),
                           decode(kRecordDecodersReference.*decoder, record));
      }
    }
  }
}

TEST(RecordDecode, AllCodesAndScalesOfQ8) {
  expect_like_reference(&RecordDecoders::q8, q8_bytes(kChannels), kChannels);
}

TEST(RecordDecode, AllCodesAndScalesOfQ4nv) {
  expect_like_reference(&RecordDecoders::q4nv, q4nv_bytes(kChannels), kChannels / 2);
}

TEST(RecordDecode, AllCodesAndScalesOfQ4mx) {
  expect_like_reference(&RecordDecoders::q4mx, q4mx_bytes(kChannels), kChannels / 2);
}

std::vector<double> even_then_odd(const std::vector<double>& values) {
  std::vector<double> split(values.size());
  for (size_t i = 0; i < values.size(); ++i) split[i / 32 * 32 + i % 2 * 16 + i % 32 / 2] = values[i];
  return split;
}

// Scales belong to their own groups; in a group the even channels come first.
TEST(RecordDecode, PackedRowsComeBack) {
  Random random(1);
  const std::vector<float> x = random.activations(kChannels, 3);
  std::vector<uint8_t> record(1 + q8_bytes(kChannels));
  const auto expect_back = [&](Decoder decoder, const std::vector<double>& values) {
    for (const Simd simd : usable_simd()) {
      expect_close(decode(record_decoders(simd).*decoder, record), even_then_odd(values), 0, 0);
    }
  };
  q8_pack(x, record.data() + 1, record.data() + 1 + kChannels);
  expect_back(&RecordDecoders::q8, oracle::q8(x));
  q4nv_pack(x, record.data() + 1, record.data() + 1 + kChannels / 2);
  expect_back(&RecordDecoders::q4nv, oracle::q4nv(x));
  q4mx_pack(x, record.data() + 1, record.data() + 1 + kChannels / 2);
  expect_back(&RecordDecoders::q4mx, oracle::q4mx(x));
}

// More groups than one vector of scales.
TEST(RecordDecode, WideRecords) {
  constexpr int64_t kWide = 544;
  Random random(2);
  const std::vector<float> x = random.activations(kWide, 3);
  std::vector<uint8_t> record(q4nv_bytes(kWide));
  q4nv_pack(x, record.data(), record.data() + kWide / 2);
  for (const Simd simd : usable_simd()) {
    auto values = poisoned(kWide);
    record_decoders(simd).q4nv(record.data(), kWide, values.data());
    expect_close(values, even_then_odd(oracle::q4nv(x)), 0, 0);
  }
}

}  // namespace
}  // namespace gannet::ops::test

#include <cmath>

#include "ops/linear/sm90_test_weight.h"

namespace gannet::ops::cuda::test {
namespace {

// The value of element (row, col), looked up the way packed_matrix.h describes the layout.
class Unpacked {
 public:
  explicit Unpacked(const PackedWeight& weight)
      : matrix_(weight.matrix()),
        bytes_(weight.bytes().host()),
        panel_bytes_(panel_bytes(matrix_.format, matrix_.cols)),
        codes_(tiles(matrix_.cols) * tile_bytes(matrix_.format)) {}

  double value(int64_t row, int64_t col) const {
    const int64_t panel = row / 16 * panel_bytes_, in_panel = row % 16, g = in_panel % 8;
    const bool high_row = in_panel >= 8;
    const int64_t tile = col / 64, step = col % 64 / 16, in_step = col % 16;
    const bool high_cols = in_step >= 8, odd = in_step % 2 == 1;
    const int64_t lane = 4 * g + in_step % 8 / 2;
    if (matrix_.format == WeightFormat::bf16) {
      const int64_t reg = (high_row ? 1 : 0) + (high_cols ? 2 : 0);
      const int64_t at = panel + tile * 2048 + step * 512 + lane * 16 + reg * 4 + (odd ? 2 : 0);
      return oracle::bf16_value(byte(at) | byte(at + 1) << 8);
    }
    if (matrix_.format == WeightFormat::fp8) {
      const int64_t word = panel + tile * 1024 + step / 2 * 512 + lane * 16 + step % 2 * 8 + (high_row ? 4 : 0);
      const uint32_t scale = byte(panel + codes_ + col / 32 * 2 + (high_row ? 1 : 0));
      return std::ldexp(oracle::e4m3_value(static_cast<uint8_t>(byte(word + (odd ? 2 : 0) + (high_cols ? 1 : 0)))),
                        static_cast<int>(scale) - 247 + matrix_.exponent);
    }
    const int64_t word = panel + tile * 512 + lane * 16 + step * 4 + (odd ? 2 : 0);
    const uint32_t half = byte(word) | byte(word + 1) << 8;
    uint32_t code = 0;
    switch ((high_row ? 1 : 0) + (high_cols ? 2 : 0)) {
      case 0:
        code = half >> 15 << 3 | (half >> 6 & 7);
        break;
      case 1:
        code = (half >> 12 & 1) << 3 | (half >> 3 & 7);
        break;
      case 2:
        code = (half >> 9 & 1) << 3 | (half & 7);
        break;
      default:
        code = (half >> 14 & 1) << 3 | (half >> 13 & 1) << 2 | (half >> 10 & 3);
    }
    const uint32_t scale =
        byte(panel + codes_ + col / 256 * 128 + g * 16 + col / 64 % 4 * 4 + (high_row ? 2 : 0) + col / 32 % 2);
    return std::ldexp(oracle::e2m1_value(static_cast<uint8_t>(code)), static_cast<int>(scale) - 253 + matrix_.exponent);
  }

 private:
  uint32_t byte(int64_t at) const { return static_cast<uint32_t>(bytes_[at]); }

  PackedMatrix matrix_;
  std::vector<std::byte> bytes_;
  int64_t panel_bytes_;
  int64_t codes_;
};

TEST(CudaPack, EveryElementLiesWhereTheLayoutSays) {
  Random random(1);
  for (const WeightFormat format : kPackedFormats) {
    for (const auto& [rows, cols] : {std::pair{1, 32}, {16, 64}, {33, 96}, {70, 320}, {40, 1056}}) {
      SCOPED_TRACE(std::string(ops::test::name_of(format)) + " " + std::to_string(rows) + "x" + std::to_string(cols));
      const TestWeight weight = TestWeight::random(format, rows, cols, random);
      for (const int exponent : {0, 3}) {
        if (format == WeightFormat::bf16 && exponent != 0) continue;  // it has no scales to take it out of
        const PackedWeight packed(weight, exponent);
        const Unpacked unpacked(packed);
        for (int64_t r = 0; r < panels(rows) * 16; ++r) {
          for (int64_t c = 0; c < tiles(cols) * 64; ++c) {
            const double expected = r < rows && c < cols ? weight.value(r, c) : 0;
            ASSERT_EQ(unpacked.value(r, c), expected) << "row " << r << ", column " << c;
          }
        }
        EXPECT_TRUE(packed.bytes().guard_intact());
      }
    }
  }
}

TEST(CudaPack, GateAndUpShareAPanel) {
  Random random(2);
  for (const WeightFormat format : kPackedFormats) {
    SCOPED_TRACE(ops::test::name_of(format));
    constexpr int64_t kWidth = 72, kCols = 288;
    const TestWeight w1 = TestWeight::random(format, kWidth, kCols, random);
    const TestWeight w3 = TestWeight::random(format, kWidth, kCols, random);
    const PackedWeight packed(w1, w3);
    const Unpacked unpacked(packed);
    for (int64_t r = 0; r < kWidth; ++r) {
      for (int64_t c = 0; c < kCols; ++c) {
        ASSERT_EQ(unpacked.value(r / 8 * 16 + r % 8, c), w1.value(r, c)) << "row " << r << ", column " << c;
        ASSERT_EQ(unpacked.value(r / 8 * 16 + 8 + r % 8, c), w3.value(r, c)) << "row " << r << ", column " << c;
      }
    }
    EXPECT_TRUE(packed.bytes().guard_intact());
  }
}

TEST(CudaPack, ScalesAtBothEndsOfTheirRange) {
  Random random(3);
  for (const WeightFormat format : {WeightFormat::fp8, WeightFormat::mxfp4}) {
    SCOPED_TRACE(ops::test::name_of(format));
    TestWeight weight = TestWeight::random(format, 64, 64, random);
    const int bias = format == WeightFormat::fp8 ? 120 : 126;
    weight.set_scale(0, 0, static_cast<uint8_t>(254 - bias));
    weight.set_scale(32, 32, 1);
    const PackedWeight packed(weight);
    const Unpacked unpacked(packed);
    for (int64_t r = 0; r < 64; ++r) {
      for (int64_t c = 0; c < 64; ++c) ASSERT_EQ(unpacked.value(r, c), weight.value(r, c));
    }
  }
}

TEST(CudaPack, RandomWeightsAreFiniteAndRepeatable) {
  for (const WeightFormat format : kPackedFormats) {
    SCOPED_TRACE(ops::test::name_of(format));
    const PackedWeight a(format, 48, 96, 7), b(format, 48, 96, 7), c(format, 48, 96, 8);
    EXPECT_TRUE(same_bits(a.bytes().host(), b.bytes().host()));
    EXPECT_FALSE(same_bits(a.bytes().host(), c.bytes().host()));
    const Unpacked unpacked(a);
    double squares = 0;
    for (int64_t r = 0; r < 48; ++r) {
      for (int64_t col = 0; col < 96; ++col) squares += std::pow(unpacked.value(r, col), 2);
    }
    EXPECT_TRUE(std::isfinite(squares));
    EXPECT_GT(squares, 0);
    EXPECT_TRUE(a.bytes().guard_intact());
  }
}

}  // namespace
}  // namespace gannet::ops::cuda::test

#include <cmath>

#include "base/quantize.h"
#include "ops/linear/sm90_test_weight.h"

namespace gannet::ops::cuda::test {
namespace {

struct Case {
  WeightFormat format = WeightFormat::fp8;
  int64_t rows = 0, cols = 0;  // of the weight
  int64_t groups = 1;
  int64_t most = 0, count = 0;
  LinearOutput output = LinearOutput::f32;
  float size = 1;  // of the activations
};

std::string name(const Case& c) {
  return std::string(ops::test::name_of(c.format)) + " " + std::to_string(c.rows) + "x" + std::to_string(c.cols) +
         " groups " + std::to_string(c.groups) + " rows " + std::to_string(c.count) + " of " + std::to_string(c.most) +
         " output " + std::to_string(static_cast<int>(c.output));
}

// Rows of activations, their results on the device, and what they should be.
class LinearTest {
 public:
  LinearTest(const Case& c, uint32_t seed)
      : case_(c),
        random_(seed),
        weight_(TestWeight::random(c.format, c.rows, c.cols, random_)),
        packed_(weight_),
        x_stride_(c.groups * c.cols + 8),
        y_stride_(c.rows + 5),
        x_(random_.activations(c.most * x_stride_, c.size)) {}

  // The result's values as floats, [most, y_stride]; what nobody wrote is NaN.
  std::vector<float> run(const std::vector<float>& x, int64_t count) {
    const Array<__nv_bfloat16> device_x(to_bf16(x));
    const Array<int32_t> device_count(std::vector<int32_t>{static_cast<int32_t>(count)});
    const int64_t n = case_.most * y_stride_;
    const Array<float> floats(n);
    const Array<__nv_bfloat16> halves(n);
    const bool f32 = case_.output == LinearOutput::f32;
    linear_few_rows(nullptr, {.x = device_x.get(),
                              .x_stride = x_stride_,
                              .count = device_count.get(),
                              .most = case_.most,
                              .weight = packed_.matrix(),
                              .groups = case_.groups,
                              .output = case_.output,
                              .y = f32 ? static_cast<void*>(floats.get()) : halves.get(),
                              .y_stride = y_stride_});
    const std::vector<float> y = f32 ? floats.host() : to_float(halves.host());
    EXPECT_TRUE(floats.guard_intact() && halves.guard_intact());
    return y;
  }

  std::vector<float> expected(int64_t row) const {
    std::vector<float> y(case_.rows);
    const int64_t part = case_.rows / case_.groups;
    for (int64_t g = 0; g < case_.groups; ++g) {
      linear_reference({.x = x_.data() + row * x_stride_ + g * case_.cols,
                        .x_stride = x_stride_,
                        .rows = 1,
                        .weight = weight_.matrix(),
                        .first_output = g * part,
                        .outputs = part,
                        .y = y.data() + g * part,
                        .y_stride = case_.rows,
                        .activations = Activations::fp32});
    }
    if (case_.output == LinearOutput::bf16) {
      for (float& v : y) v = round_to_bf16(v);
    }
    if (case_.output == LinearOutput::q8) q8_round(y);
    return y;
  }

  std::vector<float> row(const std::vector<float>& y, int64_t r) const {
    return {y.begin() + r * y_stride_, y.begin() + r * y_stride_ + case_.rows};
  }
  std::vector<float> x_row(int64_t r) const { return {x_.begin() + r * x_stride_, x_.begin() + (r + 1) * x_stride_}; }
  const std::vector<float>& x() const { return x_; }

  void check() {
    const std::vector<float> y = run(x_, case_.count);
    // Sums in another order may round to the neighbouring value of the output's format.
    const double relative = case_.output == LinearOutput::f32    ? 1e-4
                            : case_.output == LinearOutput::bf16 ? ops::test::kBf16Step
                                                                 : 0.126;
    for (int64_t r = 0; r < case_.count; ++r) {
      SCOPED_TRACE("row " + std::to_string(r));
      ops::test::expect_close(row(y, r), ops::test::doubles(expected(r)), relative,
                              (case_.output == LinearOutput::q8 ? 4e-3 : 1e-4) * static_cast<double>(case_.size));
    }
    for (int64_t i = 0; i < std::ssize(y); ++i) {
      if (i / y_stride_ >= case_.count || i % y_stride_ >= case_.rows) {
        ASSERT_TRUE(std::isnan(y[i])) << "wrote element " << i;
      }
    }
  }

 private:
  Case case_;
  Random random_;
  TestWeight weight_;
  PackedWeight packed_;
  int64_t x_stride_, y_stride_;
  std::vector<float> x_;
};

TEST(CudaLinear, GivesTheReferencesResults) {
  uint32_t seed = 10;
  for (const WeightFormat format : kPackedFormats) {
    for (const LinearOutput output : {LinearOutput::f32, LinearOutput::bf16, LinearOutput::q8}) {
      for (const int64_t most : {1, 3, 8, 9, 16, 17, 20, 24, 37, 40, 48, 60, 64}) {
        const Case c{.format = format, .rows = 96, .cols = 288, .most = most, .count = most, .output = output};
        SCOPED_TRACE(name(c));
        LinearTest(c, ++seed).check();
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(CudaLinear, OddShapesAndFewerRowsThanMost) {
  uint32_t seed = 100;
  for (const WeightFormat format : kPackedFormats) {
    for (const auto& [rows, cols] : {std::pair{1, 32}, {17, 64}, {40, 96}, {130, 1056}, {4400, 32}, {24, 2560}}) {
      for (const auto& [most, count] : {std::pair{1, 0}, {7, 2}, {64, 0}, {64, 1}, {64, 63}, {24, 9}, {150, 70}}) {
        const Case c{.format = format, .rows = rows, .cols = cols, .most = most, .count = count};
        SCOPED_TRACE(name(c));
        LinearTest(c, ++seed).check();
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(CudaLinear, GroupsTakeTheirRunOfColumns) {
  uint32_t seed = 200;
  for (const WeightFormat format : kPackedFormats) {
    for (const int64_t most : {1, 5, 33}) {
      for (const LinearOutput output : {LinearOutput::bf16, LinearOutput::q8}) {
        const Case c{
            .format = format, .rows = 192, .cols = 160, .groups = 2, .most = most, .count = most, .output = output};
        SCOPED_TRACE(name(c));
        LinearTest(c, ++seed).check();
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(CudaLinear, ReleasedWidths) {
  uint32_t seed = 300;
  for (const int64_t most : {2, 33}) {
    for (const auto& [rows, cols] : {std::pair{64, 1280}, {64, 4096}, {48, 5120}, {32, 8192}}) {
      const Case c{.format = WeightFormat::fp8, .rows = rows, .cols = cols, .most = most, .count = 2};
      SCOPED_TRACE(name(c));
      LinearTest(c, ++seed).check();
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(CudaLinear, LargeAndSmallActivations) {
  for (const float size : {0x1p-30F, 0x1p30F}) {
    for (const WeightFormat format : kPackedFormats) {
      const Case c{.format = format, .rows = 64, .cols = 128, .most = 4, .count = 4, .size = size};
      SCOPED_TRACE(name(c));
      LinearTest(c, 400).check();
    }
  }
}

TEST(CudaLinear, ExponentOfTheMatrixComesBack) {
  Random random(500);
  TestWeight weight = TestWeight::random(WeightFormat::fp8, 32, 64, random);
  weight.set_scale(0, 32, 140);  // fits into no byte without an exponent
  const PackedWeight packed(weight, 16);
  const std::vector<float> x = random.activations(64);
  const Array<__nv_bfloat16> device_x(to_bf16(x));
  const Array<int32_t> count(std::vector<int32_t>{1});
  const Array<float> y(32);
  linear_few_rows(nullptr, {.x = device_x.get(),
                            .x_stride = 64,
                            .count = count.get(),
                            .most = 1,
                            .weight = packed.matrix(),
                            .y = y.get(),
                            .y_stride = 32});
  std::vector<float> expected(32);
  linear_reference({.x = x.data(),
                    .x_stride = 64,
                    .rows = 1,
                    .weight = weight.matrix(),
                    .outputs = 32,
                    .y = expected.data(),
                    .y_stride = 32,
                    .activations = Activations::fp32});
  ops::test::expect_close(y.host(), ops::test::doubles(expected), 1e-4, 1.0);
}

TEST(CudaLinear, ARowAloneGivesTheBitsItHasInABatch) {
  for (const int64_t most : {8, 16, 64}) {
    for (const auto& [rows, cols] : {std::pair{96, 288}, {32, 2560}}) {
      const Case c{.rows = rows, .cols = cols, .most = most, .count = most, .output = LinearOutput::f32};
      SCOPED_TRACE(name(c));
      LinearTest test(c, 600);
      const std::vector<float> batch = test.run(test.x(), most);
      for (const int64_t r : {int64_t{0}, most / 2, most - 1}) {
        std::vector<float> x(test.x().size(), NAN);  // what lies behind the row must not matter
        const std::vector<float> row = test.x_row(r);
        std::copy(row.begin(), row.end(), x.begin());
        EXPECT_TRUE(same_bits(test.row(test.run(x, 1), 0), test.row(batch, r))) << "row " << r;
      }
    }
  }
}

TEST(CudaLinear, RepeatsBitForBit) {
  for (const Case& c : {Case{.rows = 2000, .cols = 1280, .most = 64, .count = 60},
                        Case{.rows = 48, .cols = 5120, .most = 5, .count = 5},
                        Case{.format = WeightFormat::mxfp4, .rows = 6400, .cols = 320, .most = 16, .count = 11},
                        Case{.format = WeightFormat::bf16, .rows = 384, .cols = 2048, .most = 20, .count = 20}}) {
    SCOPED_TRACE(name(c));
    LinearTest test(c, 700);
    const std::vector<float> first = test.run(test.x(), c.count);
    for (int i = 0; i < 30; ++i) ASSERT_TRUE(same_bits(first, test.run(test.x(), c.count))) << "run " << i;
  }
}

struct BenchmarkShape {
  const char* name;
  WeightFormat format;
  int64_t rows, cols, groups;
  LinearOutput output;
};

void measure(const BenchmarkShape& shape, std::initializer_list<int64_t> row_counts) {
  const int64_t bytes = packed_bytes(shape.format, shape.rows, shape.cols);
  const int copies = static_cast<int>(std::min<int64_t>(40, 240'000'000 / bytes + 1));
  std::vector<PackedWeight> weights;
  for (int i = 0; i < copies; ++i) weights.emplace_back(shape.format, shape.rows, shape.cols, i);
  Random random(1);
  for (const int64_t rows : row_counts) {
    const int64_t x_cols = shape.groups * shape.cols;
    const Array<__nv_bfloat16> x(to_bf16(random.activations(rows * x_cols)));
    const Array<int32_t> count(std::vector<int32_t>{static_cast<int32_t>(rows)});
    const Array<float> y(rows * shape.rows);
    const double us = time_launch(
        [&](cudaStream_t stream, int i) {
          linear(stream, {.x = x.get(),
                          .x_stride = x_cols,
                          .count = count.get(),
                          .most = rows,
                          .weight = weights[i % copies].matrix(),
                          .groups = shape.groups,
                          .output = shape.output,
                          .y = y.get(),
                          .y_stride = shape.rows});
        },
        std::max(copies, 20));
    const auto label = std::string(shape.name) + ", rows " + std::to_string(rows);
    report(label.c_str(), us, static_cast<double>(bytes), 2.0 * static_cast<double>(rows * shape.rows * shape.cols));
  }
}

TEST(Benchmark, CudaLinear) {
  const auto rows = {int64_t{1}, int64_t{2}, int64_t{4}, int64_t{8}, int64_t{16}, int64_t{32}, int64_t{64}};
  using enum WeightFormat;
  measure({"wq_a, wkv 1792x5120 fp8", fp8, 1792, 5120, 1, LinearOutput::f32}, rows);
  measure({"wq_b 32768x1280 fp8", fp8, 32768, 1280, 1, LinearOutput::bf16}, rows);
  measure({"wo_a 8 x 1024x4096 fp8", fp8, 8192, 4096, 8, LinearOutput::q8}, rows);
  measure({"wo_b 5120x8192 fp8", fp8, 5120, 8192, 1, LinearOutput::bf16}, rows);
  measure({"router 384x5120 bf16", bf16, 384, 5120, 1, LinearOutput::f32}, rows);
  measure({"weights_proj 32x5120 bf16", bf16, 32, 5120, 1, LinearOutput::f32}, rows);
  measure({"index wq_b 4096x1280 fp8", fp8, 4096, 1280, 1, LinearOutput::bf16}, rows);
  measure({"head 129280x5120 bf16", bf16, 129280, 5120, 1, LinearOutput::f32}, {1, 8, 64});
}

}  // namespace
}  // namespace gannet::ops::cuda::test

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/quantize.h"
#include "ops/linear/kernels.h"
#include "ops/linear/op.h"
#include "ops/linear/test_weight.h"
#include "ops/testing.h"

namespace gannet::ops::test {
namespace {

// A call's input and options; strides are wider than the rows.
struct Call {
  const TestWeight* weight;
  std::vector<float> x;
  int64_t rows = 1;
  int64_t first = 0;
  int64_t outputs = 0;
  bool quantize = false;
  Activations activations = Activations::fp32;

  int64_t cols() const { return weight->matrix().cols; }
  int64_t x_stride() const { return cols() + 3; }
  int64_t y_stride() const { return outputs + 5; }
};

Call random_call(const TestWeight& weight, int64_t rows, Random& random) {
  Call call{.weight = &weight, .x = {}, .rows = rows, .outputs = weight.matrix().rows};
  call.x = random.activations(rows * call.x_stride());
  return call;
}

// All outputs, without the gaps between rows, which must stay as they were. A null device means the reference.
std::vector<float> run(const Call& call, const Device* device) {
  std::vector<float> y = poisoned(call.rows * call.y_stride());
  const LinearParams params{.x = call.x.data(),
                            .x_stride = call.x_stride(),
                            .rows = call.rows,
                            .weight = call.weight->matrix(),
                            .first_output = call.first,
                            .outputs = call.outputs,
                            .y = y.data(),
                            .y_stride = call.y_stride(),
                            .quantize_input = call.quantize,
                            .activations = call.activations};
  if (device != nullptr) {
    linear(*device, params);
  } else {
    linear_reference(params);
  }
  std::vector<float> result;
  for (int64_t r = 0; r < call.rows; ++r) {
    const auto row = y.begin() + r * call.y_stride();
    result.insert(result.end(), row, row + call.outputs);
    for (int64_t i = call.outputs; i < call.y_stride(); ++i) EXPECT_TRUE(std::isnan(row[i])) << "written past the end";
  }
  return result;
}

// The sum in double, and how far an fp32 sum of these terms in any order may be from it (one rounding for each term and
// for each addition that it goes through; subnormal results lose up to 2^-141 each).
struct Expected {
  double value = 0;
  double bound = 0;
};

std::vector<Expected> in_double(const Call& call) {
  std::vector<Expected> expected;
  for (int64_t r = 0; r < call.rows; ++r) {
    const std::span<const float> row(call.x.data() + r * call.x_stride(), call.cols());
    const std::vector<double> x = call.quantize ? oracle::q8(row) : doubles(row);
    for (int64_t n = call.first; n < call.first + call.outputs; ++n) {
      Expected e;
      for (int64_t k = 0; k < call.cols(); ++k) {
        const double term = x[k] * call.weight->value(n, k);
        e.value += term;
        e.bound += std::fabs(term);
      }
      e.bound = e.bound * static_cast<double>(call.cols() + 2) * 0x1p-24 + static_cast<double>(call.cols()) * 0x1p-141;
      if (call.activations == Activations::bf16) e.bound += (std::fabs(e.value) + e.bound) * 0x1p-8;
      expected.push_back(e);
    }
  }
  return expected;
}

void expect_within(std::span<const float> y, const std::vector<Expected>& expected) {
  ASSERT_EQ(y.size(), expected.size());
  for (size_t i = 0; i < y.size(); ++i) {
    ASSERT_LE(std::fabs(static_cast<double>(y[i]) - expected[i].value), expected[i].bound)
        << "output " << i << ": " << y[i] << ", expected " << expected[i].value;
  }
}

void expect_right_everywhere(const Call& call) {
  const auto expected = in_double(call);
  expect_within(run(call, nullptr), expected);
  on_each_device([&](const Device& device) { expect_within(run(call, &device), expected); });
}

std::vector<int64_t> widths(WeightFormat format) {
  if (format == WeightFormat::mxfp4) return {32, 64, 96, 256, 384, 512, 544, 1152};
  return {1, 7, 31, 32, 33, 64, 65, 95, 96, 192, 256, 511, 512, 513, 1100};
}

TEST(Linear, MatchesTheSumInDoubleForAllFormatsAndShapes) {
  Random random(1);
  for (const WeightFormat format : kWeightFormats) {
    for (const int64_t cols : widths(format)) {
      for (const int64_t outputs : {1, 3, 8, 37}) {
        SCOPED_TRACE(std::string(name_of(format)) + " " + std::to_string(outputs) + " x " + std::to_string(cols));
        const TestWeight weight = TestWeight::random(format, outputs, cols, random);
        for (const int64_t rows : {1, 2, 3, 5, 8}) {
          SCOPED_TRACE(std::to_string(rows) + " rows");
          expect_right_everywhere(random_call(weight, rows, random));
        }
      }
    }
  }
}

// Without zeros and subnormal codes FP8 takes another way.
TEST(Linear, UsualWeightsMatchTheSumInDouble) {
  Random random(12);
  for (const WeightFormat format : {WeightFormat::fp8, WeightFormat::mxfp4, WeightFormat::bf16}) {
    for (const int64_t cols : {192, 256, 384, 512, 608, 1280}) {
      SCOPED_TRACE(std::string(name_of(format)) + ", " + std::to_string(cols) + " columns");
      const TestWeight weight = TestWeight::usual(format, 72, cols, random);
      for (const int64_t rows : {1, 9, 33}) expect_right_everywhere(random_call(weight, rows, random));
    }
  }
}

TEST(Linear, NoColumnsAreASumOfNothing) {
  const TestWeight weight(WeightFormat::fp8, 3, 0);
  Call call{.weight = &weight, .x = std::vector<float>(6), .rows = 2, .outputs = 3};
  on_each_device([&](const Device& device) { EXPECT_EQ(run(call, &device), std::vector<float>(6, 0.0F)); });
}

TEST(Linear, QuantisesItsInput) {
  Random random(2);
  for (const WeightFormat format : kWeightFormats) {
    SCOPED_TRACE(name_of(format));
    const TestWeight weight = TestWeight::random(format, 40, 1056, random);
    for (const int64_t rows : {1, 7}) {
      Call call = random_call(weight, rows, random);
      for (float& value : call.x) value *= std::exp2(static_cast<float>(random.integer(-20, 12)));
      call.quantize = true;
      expect_right_everywhere(call);
    }
  }
}

TEST(Linear, RoundsToBf16OnlyInThatMode) {
  Random random(3);
  for (const WeightFormat format : kWeightFormats) {
    SCOPED_TRACE(name_of(format));
    const TestWeight weight = TestWeight::random(format, 21, 160, random);
    for (const int64_t rows : {1, 6}) {
      Call bf16 = random_call(weight, rows, random);
      Call fp32 = bf16;
      bf16.activations = Activations::bf16;
      expect_right_everywhere(bf16);
      on_each_device([&](const Device& device) { expect_rounding_of(run(bf16, &device), run(fp32, &device)); });
    }
  }
}

TEST(Linear, NoRowsOrNoOutputsLeaveTheOutputAlone) {
  Random random(4);
  const TestWeight weight = TestWeight::random(WeightFormat::fp8, 33, 64, random);
  on_each_device([&](const Device& device) {
    EXPECT_TRUE(run(random_call(weight, 0, random), &device).empty());
    Call call = random_call(weight, 2, random);
    call.outputs = 0;
    EXPECT_TRUE(run(call, &device).empty());
  });
}

void expect_part_of_the_whole(WeightFormat format, int64_t cols, Random& random) {
  const TestWeight weight = TestWeight::random(format, 77, cols, random);
  for (const int64_t rows : {1, 4, 9}) {
    Call call = random_call(weight, rows, random);
    on_each_device([&](const Device& device) {
      call.first = 0;
      call.outputs = 77;
      const auto whole = run(call, &device);
      for (const auto& [first, outputs] : {std::pair{0, 1}, {5, 30}, {31, 2}, {33, 44}, {7, 64}, {76, 1}}) {
        call.first = first;
        call.outputs = outputs;
        const auto part = run(call, &device);
        for (int64_t r = 0; r < rows; ++r) {
          expect_same_bits(std::span(part).subspan(r * outputs, outputs),
                           std::span(whole).subspan(r * 77 + first, outputs));
        }
      }
    });
  }
}

TEST(Linear, PartOfTheOutputsEqualsThatPartOfTheWhole) {
  Random random(5);
  for (const WeightFormat format : kWeightFormats) {
    for (const int64_t cols : {192, 384, 608, 768}) {
      SCOPED_TRACE(std::string(name_of(format)) + ", " + std::to_string(cols) + " columns");
      expect_part_of_the_whole(format, cols, random);
    }
  }
}

// Products that share their inputs have the bits that each has alone, wherever threads divide their outputs.
void expect_bits_of_each(WeightFormat format, int64_t rows, Random& random) {
  constexpr int64_t kCols = 384;
  constexpr int64_t kOutputs[] = {45, 128, 7};
  const std::vector<float> x = random.activations(rows * kCols);
  std::vector<TestWeight> weights;
  for (const int64_t outputs : kOutputs) weights.push_back(TestWeight::random(format, outputs, kCols, random));
  on_each_device([&](const Device& device) {
    std::vector<std::vector<float>> together, alone;
    std::vector<LinearParams> products;
    for (const TestWeight& weight : weights) {
      const int64_t outputs = weight.matrix().rows;
      together.push_back(poisoned(rows * outputs));
      alone.push_back(poisoned(rows * outputs));
      products.push_back({.x = x.data(),
                          .x_stride = kCols,
                          .rows = rows,
                          .weight = weight.matrix(),
                          .outputs = outputs,
                          .y_stride = outputs,
                          .quantize_input = true});
      products.back().y = alone.back().data();
      linear(device, products.back());
    }
    for (size_t i = 0; i < products.size(); ++i) products[i].y = together[i].data();
    linear(device, products);
    for (size_t i = 0; i < products.size(); ++i) expect_same_bits(together[i], alone[i]);
  });
}

TEST(Linear, ProductsOfTheSameInputsHaveTheBitsOfEach) {
  Random random(13);
  for (const WeightFormat format : kWeightFormats) {
    for (const int64_t rows : {0, 1, 6, 20, 140}) {
      SCOPED_TRACE(std::string(name_of(format)) + ", " + std::to_string(rows) + " rows");
      expect_bits_of_each(format, rows, random);
    }
  }
}

// A row's result does not depend on the rows beside it or on the number of threads.
void expect_same_bits_whatever_the_batch(WeightFormat format, int64_t cols, Random& random) {
  const TestWeight weight = TestWeight::random(format, 45, cols, random);
  Call all = random_call(weight, 140, random);
  all.quantize = true;
  for (const Simd simd : usable_simd()) {
    if (simd == Simd::none) continue;  // row by row anyway, and slow
    SCOPED_TRACE(name_of(simd));
    ThreadPool one(1), two(2, false);
    const Device device{.pool = &one, .simd = simd};
    const auto expected = run(all, &device);
    const Device other{.pool = &two, .simd = simd};
    expect_same_bits(run(all, &other), expected);
    for (const auto& [first, rows] : {std::pair{0, 1},
                                      {139, 1},
                                      {3, 2},
                                      {50, 3},
                                      {7, 4},
                                      {9, 5},
                                      {21, 9},
                                      {64, 16},
                                      {40, 20},
                                      {90, 33},
                                      {11, 64},
                                      {30, 110}}) {
      SCOPED_TRACE(std::to_string(rows) + " rows from " + std::to_string(first));
      Call batch = all;
      batch.rows = rows;
      batch.x.erase(batch.x.begin(), batch.x.begin() + first * all.x_stride());
      expect_same_bits(run(batch, &device), std::span(expected).subspan(first * 45, rows * 45));
    }
  }
}

// Rows alone, in batches of every path and at every place give the same bits, on any number of threads, every time.
TEST(Linear, ARowDoesNotDependOnItsBatch) {
  Random random(6);
  for (const WeightFormat format : kWeightFormats) {
    for (const int64_t cols : {384, 1120, 1280, 8192}) {  // 12, 35, 40 and 256 groups of 32 columns
      SCOPED_TRACE(std::string(name_of(format)) + ", " + std::to_string(cols) + " columns");
      expect_same_bits_whatever_the_batch(format, cols, random);
    }
  }
}

// Rows and outputs that a variant must treat apart (no bf16 values, far from one, NaN) get the same bits among others
// as alone, and leave the others alone.
void expect_unusual_rows_apart(int64_t cols) {
  Random random(11);
  for (const WeightFormat format : kWeightFormats) {
    SCOPED_TRACE(name_of(format));
    TestWeight weight = TestWeight::random(format, 70, cols, random);
    if (format == WeightFormat::fp8 || format == WeightFormat::mxfp4) {
      weight.set_scale(40, 64, 255);
      weight.set_scale(5, 0, 20);
      weight.set_scale(69, 600, 235);
    } else {
      weight.set(3, 7, 1);  // subnormal
    }
    Call all = random_call(weight, 70, random);
    for (const int64_t r : {3, 20, 69}) all.x[r * all.x_stride() + 100] = 1.0F + 0x1p-20F;
    all.x[5 * all.x_stride()] = 0x1p-100F;
    all.x[6 * all.x_stride() + 607] = 0x1p100F;
    all.x[7 * all.x_stride() + 31] = kPoison;
    on_each_device([&](const Device& device) {
      if (device.simd == Simd::none) return;  // row by row anyway, and slow
      const auto expected = run(all, &device);
      for (const int64_t r : {0, 3, 4, 5, 6, 7, 20, 69}) {
        SCOPED_TRACE("row " + std::to_string(r));
        Call alone = all;
        alone.rows = 1;
        alone.x.erase(alone.x.begin(), alone.x.begin() + r * all.x_stride());
        const auto y = run(alone, &device);
        for (int64_t i = 0; i < 70; ++i) {
          const float batched = expected[r * 70 + i];
          if (std::isnan(batched)) {
            ASSERT_TRUE(std::isnan(y[i])) << i;
          } else {
            ASSERT_EQ(std::bit_cast<uint32_t>(y[i]), std::bit_cast<uint32_t>(batched)) << i;
          }
        }
      }
    });
    all.x[7 * all.x_stride() + 31] = 1;
    if (format == WeightFormat::bf16 || format == WeightFormat::f32) expect_right_everywhere(all);
  }
}

TEST(Linear, UnusualRowsAndOutputsAmongOthers) {
  for (const int64_t cols : {608, 640}) {  // 19 groups of 32 columns, and 20
    SCOPED_TRACE(std::to_string(cols) + " columns");
    expect_unusual_rows_apart(cols);
  }
}

// The products of decoded rows: each element like a linear with f32 weights, whatever is computed beside it.
TEST(Linear, DotsGiveTheBitsOfALinear) {
  constexpr int64_t kCols = 96;
  constexpr int64_t kStride = 112;
  Random random(10);
  for (const Simd simd : usable_simd()) {
    const LinearKernels* kernels = linear_kernels(simd);
    if (kernels == nullptr) continue;
    SCOPED_TRACE(name_of(simd));
    for (const auto& [rows, count] : {std::pair{0, 3}, {1, 1}, {2, 5}, {4, 8}, {9, 14}, {17, 0}}) {
      SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(count));
      const std::vector<float> x = random.normals(rows * kCols);
      const std::vector<float> w = random.normals(count * kCols);
      auto expected = poisoned(rows * count);
      ThreadPool pool(1);
      linear({.pool = &pool, .simd = simd}, {.x = x.data(),
                                             .x_stride = kCols,
                                             .rows = rows,
                                             .weight = {.rows = count, .cols = kCols, .data = w.data()},
                                             .outputs = count,
                                             .y = expected.data(),
                                             .y_stride = count,
                                             .activations = Activations::fp32});
      std::vector<float> storage((rows + count + 1) * kStride + 16);
      float* prepared = storage.data();
      while (reinterpret_cast<uintptr_t>(prepared) % 64 != 0) ++prepared;
      float* weights = prepared + rows * kStride;
      for (int64_t r = 0; r < rows; ++r) kernels->prepare(&x[r * kCols], kCols, false, prepared + r * kStride);
      for (int64_t n = 0; n < count; ++n) kernels->prepare(&w[n * kCols], kCols, false, weights + n * kStride);
      auto y = poisoned(rows * count);
      kernels->dots({.x = prepared,
                     .x_stride = kStride,
                     .rows = rows,
                     .w = weights,
                     .w_stride = kStride,
                     .count = count,
                     .cols = kCols,
                     .y = y.data(),
                     .y_stride = count});
      expect_same_bits(y, expected);
    }
  }
}

// Each code in turn against an input of one, so that the result is the decoded weight.
TEST(Linear, DecodesEveryCodeExactly) {
  for (const WeightFormat format : {WeightFormat::fp8, WeightFormat::mxfp4, WeightFormat::bf16}) {
    SCOPED_TRACE(name_of(format));
    const uint32_t codes = format == WeightFormat::fp8 ? 256 : format == WeightFormat::mxfp4 ? 16 : 65536;
    TestWeight weight(format, codes, 64);
    for (const int64_t col : {0, 1, 30, 31, 32, 50, 63}) {
      for (int64_t row = 0; row < codes; ++row) {
        weight.set(row, col, static_cast<uint32_t>(row));
        weight.set_scale(row, col, 127);
      }
    }
    for (const int64_t col : {0, 1, 30, 31, 32, 50, 63}) {
      SCOPED_TRACE("column " + std::to_string(col));
      Call call{.weight = &weight, .x = std::vector<float>(67), .outputs = codes};
      call.x[col] = 1;
      on_each_device([&](const Device& device) {
        const auto y = run(call, &device);
        for (int64_t row = 0; row < codes; ++row) {
          const double value = weight.value(row, col);
          // Infinity and NaN in the other columns meet a zero and become NaN.
          if (std::isfinite(value)) {
            ASSERT_EQ(static_cast<double>(y[row]), value) << "code " << row;
          } else {
            ASSERT_TRUE(std::isnan(y[row])) << "code " << row;
          }
        }
      });
    }
  }
}

TEST(Linear, ExtremeScalesAreExact) {
  for (const WeightFormat format : {WeightFormat::fp8, WeightFormat::mxfp4}) {
    SCOPED_TRACE(name_of(format));
    const uint32_t one = format == WeightFormat::fp8 ? 0x38 : 2;
    for (const int code : {0, 1, 2, 64, 126, 127, 128, 190, 246, 247, 253, 254}) {
      SCOPED_TRACE("scale " + std::to_string(code));
      TestWeight weight(format, 1, 96);
      weight.set_scale(0, 0, 127);
      weight.set_scale(0, 32, static_cast<uint8_t>(code));
      weight.set(0, 33, one);
      Call call{.weight = &weight, .x = std::vector<float>(99, 0.0F), .outputs = 1};
      call.x[33] = 1.5F;
      for (const int64_t rows : {1, 7}) {
        call.rows = rows;
        call.x.resize(rows * 99, 0.0F);
        on_each_device([&](const Device& device) {
          ASSERT_EQ(static_cast<double>(run(call, &device)[0]), 1.5 * oracle::e8m0_value(code));
        });
      }
    }
  }
}

TEST(Linear, NotANumberReachesItsOutputsOnly) {
  Random random(7);
  for (const WeightFormat format : {WeightFormat::fp8, WeightFormat::mxfp4}) {
    for (const int64_t cols : {128, 256, 608}) {  // 608: the last codes of a row are less than a line
      SCOPED_TRACE(std::string(name_of(format)) + ", " + std::to_string(cols) + " columns");
      TestWeight weight = TestWeight::usual(format, 70, cols, random);
      weight.set_scale(40, cols - 28, 255);
      if (format == WeightFormat::fp8) weight.set(5, 77, 0xff);
      if (format == WeightFormat::fp8) weight.set(6, cols - 1, 0x7f);
      for (const int64_t rows : {1, 5, 20}) {
        const Call call = random_call(weight, rows, random);
        const auto expected = in_double(call);
        on_each_device([&](const Device& device) {
          const auto y = run(call, &device);
          for (int64_t i = 0; i < std::ssize(y); ++i) {
            ASSERT_EQ(std::isnan(y[i]), std::isnan(expected[i].value)) << "output " << i;
          }
        });
      }
    }
  }
}

TEST(Linear, NotANumberInOneRowLeavesTheOthers) {
  Random random(8);
  const TestWeight weight = TestWeight::random(WeightFormat::mxfp4, 9, 64, random);
  Call call = random_call(weight, 6, random);
  call.x[3 * call.x_stride() + 17] = kPoison;
  call.x[4 * call.x_stride() + 40] = kInfinity;
  for (const bool quantize : {false, true}) {
    call.quantize = quantize;
    on_each_device([&](const Device& device) {
      const auto y = run(call, &device);
      for (int64_t i = 0; i < std::ssize(y); ++i) ASSERT_EQ(std::isfinite(y[i]), i / 9 != 3 && i / 9 != 4) << i;
    });
  }
}

// The kernels' Q8 is q8_round bit for bit, on every magnitude and on the values where its branches meet.
TEST(Linear, PreparedRowsAreQ8RoundBitForBit) {
  Random random(9);
  std::vector<float> x = random.normals(64 * 32);
  for (int64_t g = 0; g < 64; ++g) {
    for (int64_t i = 0; i < 32; ++i) x[g * 32 + i] *= std::exp2(static_cast<float>(random.integer(0, 14) - 30 + g));
  }
  for (const float special : {0.0F, -0.0F, 448.0F, -448.0F, 449.0F, 464.0F, 0x1p-6F, 0x1.8p-10F, -0x1p-10F, 0x1.cp-7F,
                              1e-4F, 3.4e38F, -1e30F, 0x1p-140F, kInfinity}) {
    for (int64_t i = 0; i < 32; ++i) x.push_back(i == 5 ? special : special * std::exp2(static_cast<float>(-i)));
  }
  std::vector<float> expected = x;
  q8_round(expected);
  for (const Simd simd : usable_simd()) {
    const LinearKernels* kernels = linear_kernels(simd);
    if (kernels == nullptr) continue;
    SCOPED_TRACE(name_of(simd));
    std::vector<float> storage(x.size() + 64 + 16);
    float* prepared = storage.data();
    while (reinterpret_cast<uintptr_t>(prepared) % 64 != 0) ++prepared;
    kernels->prepare(x.data(), std::ssize(x), true, prepared);
    std::vector<float> in_order(x.size());
    for (size_t i = 0; i < x.size(); ++i) in_order[i] = prepared[i / 32 * 32 + i % 2 * 16 + i % 32 / 2];
    expect_same_bits(in_order, expected);
  }
}

}  // namespace
}  // namespace gannet::ops::test

#include <cmath>
#include <string>

#include "base/quantize.h"
#include "ops/linear/sm90_many.cuh"
#include "ops/linear/sm90_test_weight.h"

namespace gannet::ops::cuda::test {
namespace {

using many_rows::Dense;
using many_rows::Output;

constexpr int kBlocks[] = {64, 128, 256};  // tokens of a block

struct Case {
  WeightFormat format;
  int64_t outputs, cols, groups, most, count;
};

std::string name_of(const Case& c) {
  return std::string(ops::test::name_of(c.format)) + " " + std::to_string(c.outputs) + "x" + std::to_string(c.cols) +
         ", groups " + std::to_string(c.groups) + ", rows " + std::to_string(c.count) + " of " + std::to_string(c.most);
}

// A weight and its input on the device, and the product in double.
class Product {
 public:
  Product(const Case& c, Random& random)
      : case_(c),
        weight_(TestWeight::random(c.format, c.outputs, c.cols, random)),
        packed_(weight_),
        values_(random.activations(c.most * x_stride())),
        x_(to_bf16(values_)),
        count_(std::vector<int32_t>{static_cast<int32_t>(c.count)}) {}

  int64_t x_stride() const { return case_.groups * case_.cols + 8; }
  int64_t y_stride() const { return case_.outputs + (case_.outputs % 8 == 0 ? 8 : 3); }

  Dense dense(Output output, void* y) const {
    return {.params = {.x = x_.get(),
                       .x_stride = x_stride(),
                       .count = count_.get(),
                       .most = case_.most,
                       .weight = packed_.matrix(),
                       .groups = case_.groups,
                       .y = y,
                       .y_stride = y_stride()},
            .output = output};
  }

  // All of y, that which nobody writes too.
  template <class T>
  std::vector<T> run(Output output, int block) const {
    Array<T> y(case_.most * y_stride());
    const Dense d = dense(output, y.get());
    switch (case_.format) {
      case WeightFormat::fp8:
        multiply_fp8(nullptr, d, block);
        break;
      case WeightFormat::mxfp4:
        multiply_mxfp4(nullptr, d, block);
        break;
      default:
        multiply_bf16(nullptr, d, block);
    }
    std::vector<T> result = y.host();
    EXPECT_TRUE(y.guard_intact());
    for (int64_t i = 0; i < std::ssize(result); ++i) {
      if (i / y_stride() < case_.count && i % y_stride() < case_.outputs) continue;
      const T poison = std::bit_cast<T>(std::array<unsigned char, sizeof(T)>{0xff, 0xff});
      if constexpr (sizeof(T) == 2) {
        if (std::memcmp(&result[i], &poison, 2) != 0) ADD_FAILURE() << "written at " << i;
      } else if (!std::isnan(result[i])) {
        ADD_FAILURE() << "written at " << i;
      }
    }
    return result;
  }

  void expect_sums(const std::vector<float>& y) const {
    std::vector<float> w(case_.outputs * case_.cols);
    for (int64_t i = 0; i < std::ssize(w); ++i)
      w[i] = static_cast<float>(weight_.value(i / case_.cols, i % case_.cols));
    const int64_t group_outputs = case_.outputs / case_.groups;
    for (int64_t r = 0; r < case_.count; ++r) {
      for (int64_t o = 0; o < case_.outputs; ++o) {
        const float* x = values_.data() + r * x_stride() + o / group_outputs * case_.cols;
        double sum = 0, size = 0;
        for (int64_t k = 0; k < case_.cols; ++k) {
          const double term = static_cast<double>(x[k]) * static_cast<double>(w[o * case_.cols + k]);
          sum += term;
          size += std::fabs(term);
        }
        ASSERT_NEAR(static_cast<double>(y[r * y_stride() + o]), sum, size * 0x1p-19 + 1e-30)
            << "row " << r << ", output " << o;
      }
    }
  }

  void move_row_to_front(int64_t row) {
    std::copy_n(values_.begin() + row * x_stride(), x_stride(), values_.begin());
    x_.set(to_bf16(values_));
    case_.count = 1;
    count_.set(std::vector<int32_t>{1});
  }

 private:
  Case case_;
  TestWeight weight_;
  PackedWeight packed_;
  std::vector<float> values_;
  Array<__nv_bfloat16> x_;
  Array<int32_t> count_;
};

std::vector<float> q8_rows(std::vector<float> y, int64_t stride, int64_t outputs, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r) gannet::q8_round(std::span(y).subspan(r * stride, outputs));
  return y;
}

// Where somebody wrote: everything else is NaN in both.
void expect_same_values(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    ASSERT_EQ(a[i], b[i]) << "element " << i;
  }
}

constexpr Case kCases[] = {
    {WeightFormat::fp8, 20, 32, 1, 65, 65},       {WeightFormat::fp8, 288, 352, 1, 300, 261},
    {WeightFormat::fp8, 128, 160, 2, 70, 3},      {WeightFormat::fp8, 1280, 96, 4, 66, 66},
    {WeightFormat::fp8, 96, 1280, 1, 140, 129},   {WeightFormat::mxfp4, 20, 32, 1, 65, 65},
    {WeightFormat::mxfp4, 288, 608, 1, 300, 261}, {WeightFormat::mxfp4, 128, 160, 2, 70, 3},
    {WeightFormat::bf16, 20, 32, 1, 65, 65},      {WeightFormat::bf16, 288, 352, 1, 300, 261},
    {WeightFormat::bf16, 128, 160, 2, 70, 3},
};

TEST(CudaLinearMany, MatchesTheFormulaInDouble) {
  Random random(1);
  for (const Case& c : kCases) {
    SCOPED_TRACE(name_of(c));
    const Product product(c, random);
    const std::vector<float> sums = product.run<float>(Output::f32, kBlocks[0]);
    product.expect_sums(sums);
    for (const int block : kBlocks) {
      SCOPED_TRACE("blocks of " + std::to_string(block));
      expect_same_values(product.run<float>(Output::f32, block), sums);
      const auto rounded = to_float(to_bf16(sums));
      expect_same_values(to_float(product.run<__nv_bfloat16>(Output::bf16, block)), rounded);
      if (c.outputs / c.groups % 32 != 0) continue;
      expect_same_values(to_float(product.run<__nv_bfloat16>(Output::q8, block)),
                         q8_rows(sums, product.y_stride(), c.outputs, c.count));
    }
    if (HasFailure()) return;
  }
}

TEST(CudaLinearMany, NoRows) {
  Random random(2);
  for (const WeightFormat format : kPackedFormats) {
    const Product product({format, 64, 64, 1, 128, 0}, random);
    for (const int block : kBlocks) product.run<float>(Output::f32, block);
  }
}

TEST(CudaLinearMany, ARowDoesNotDependOnTheOthers) {
  Random random(3);
  for (const WeightFormat format : kPackedFormats) {
    const Case c{format, 320, 672, 1, 280, 280};
    Product product(c, random);
    std::vector<std::vector<float>> all;
    for (const int block : kBlocks) {
      all.push_back(product.run<float>(Output::f32, block));
      for (int i = 0; i < 30; ++i) ASSERT_TRUE(same_bits(product.run<float>(Output::f32, block), all.back()));
    }
    product.move_row_to_front(277);
    for (size_t b = 0; b < std::size(kBlocks); ++b) {
      const auto alone = product.run<float>(Output::f32, kBlocks[b]);
      for (int64_t o = 0; o < c.outputs; ++o) ASSERT_EQ(alone[o], all[b][277 * product.y_stride() + o]);
    }
  }
}

struct BenchmarkShape {
  const char* name;
  WeightFormat format;
  int64_t outputs, cols, groups;
  Output output;
};

constexpr BenchmarkShape kBenchmarks[] = {
    {"5120x8192 fp8", WeightFormat::fp8, 5120, 8192, 1, Output::bf16},
    {"32768x1280 fp8", WeightFormat::fp8, 32768, 1280, 1, Output::bf16},
    {"1792x5120 fp8", WeightFormat::fp8, 1792, 5120, 1, Output::f32},
    {"8192x4096 wo_a fp8", WeightFormat::fp8, 8192, 4096, 8, Output::q8},
    {"4096x1280 fp8", WeightFormat::fp8, 4096, 1280, 1, Output::f32},
    {"1024x5120 bf16", WeightFormat::bf16, 1024, 5120, 1, Output::f32},
};

TEST(Benchmark, LinearMany) {
  constexpr int64_t kMost = 8192;
  constexpr int kInputs = 4;
  Array<__nv_bfloat16> x(kMost * 32768 * 2);
  {
    Random random(4);
    const auto values = to_bf16(random.normals(1 << 20));
    for (int64_t i = 0; i < x.size(); i += 1 << 20) {
      GANNET_CUDA_CHECK(cudaMemcpy(x.get() + i, values.data(), 2 << 20, cudaMemcpyHostToDevice));
    }
  }
  Array<float> y(kMost * 32768);
  for (const BenchmarkShape& shape : kBenchmarks) {
    const int64_t bytes = packed_bytes(shape.format, shape.outputs, shape.cols);
    Array<std::byte> weights(kInputs * bytes);
    fill_packed(nullptr, shape.format, kInputs * ((shape.outputs + 15) / 16 * 16), shape.cols, 1, -12, weights.get());
    for (const int64_t rows : {128, 256, 1024, 8192}) {
      const Array<int32_t> count(std::vector<int32_t>{static_cast<int32_t>(rows)});
      const auto dense = [&](int i) {
        return Dense{.params = {.x = x.get(),
                                .x_stride = shape.groups * shape.cols,
                                .count = count.get(),
                                .most = rows,
                                .weight = {.format = shape.format,
                                           .rows = shape.outputs,
                                           .cols = shape.cols,
                                           .data = weights.get() + i % kInputs * bytes},
                                .groups = shape.groups,
                                .y = y.get(),
                                .y_stride = shape.outputs},
                     .output = shape.output};
      };
      const int best = choose_tokens(dense(0));
      for (const int block : kBlocks) {
        const bool chosen = block == best;
        const std::string name = std::string(shape.name) + ", " + std::to_string(rows) + " rows, " + "blocks of " +
                                 std::to_string(block) + (chosen ? " *" : "");
        const double time = time_launch(
            [&](cudaStream_t stream, int i) {
              if (shape.format == WeightFormat::fp8) {
                multiply_fp8(stream, dense(i), block);
              } else {
                multiply_bf16(stream, dense(i), block);
              }
            },
            rows > 1024 ? 4 : 12);
        report(name.c_str(), time, static_cast<double>(bytes),
               2.0 * static_cast<double>(rows * shape.outputs * shape.cols));
      }
    }
  }
}

}  // namespace
}  // namespace gannet::ops::cuda::test

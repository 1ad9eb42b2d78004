#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "ops/experts/kernels.h"
#include "ops/experts/op.h"
#include "ops/linear/test_weight.h"
#include "ops/testing.h"

namespace gannet::ops::test {
namespace {

struct TestExpert {
  TestWeight w1, w2, w3;

  static TestExpert random(WeightFormat format, int64_t width, int64_t hidden, Random& random) {
    return {TestWeight::random(format, width, hidden, random), TestWeight::random(format, hidden, width, random),
            TestWeight::random(format, width, hidden, random)};
  }
  ExpertWeights weights() const { return {w1.matrix(), w2.matrix(), w3.matrix()}; }
};

struct Shape {
  int64_t hidden, width, shared_width, routed, top_k;
};

// A layer's experts, a batch of rows and their routing.
struct Mixture {
  Shape shape{};
  int64_t rows = 0;
  std::vector<TestExpert> routed{};
  std::vector<TestExpert> shared{};  // one
  std::vector<float> x{}, weights{};
  std::vector<int32_t> experts{};
  bool quantize = true;
  Activations activations = Activations::bf16;
  float limit = 10;

  int64_t x_stride() const { return shape.hidden + 2; }
  int64_t y_stride() const { return shape.hidden + 3; }
};

Mixture random_mixture(const Shape& shape, int64_t rows, Random& random,
                       WeightFormat routed_format = WeightFormat::mxfp4) {
  Mixture m{.shape = shape, .rows = rows};
  for (int64_t e = 0; e < shape.routed; ++e) {
    m.routed.push_back(TestExpert::random(routed_format, shape.width, shape.hidden, random));
  }
  m.shared.push_back(TestExpert::random(WeightFormat::fp8, shape.shared_width, shape.hidden, random));
  m.x = random.activations(rows * m.x_stride(), 2);
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<int32_t> ids(shape.routed);
    std::iota(ids.begin(), ids.end(), 0);
    for (int64_t i = 0; i < shape.top_k; ++i) {
      std::swap(ids[i], ids[random.integer(i, shape.routed - 1)]);
      m.experts.push_back(ids[i]);
      m.weights.push_back(random.uniform(0.05F, 1));
    }
  }
  return m;
}

std::vector<float> run(const Mixture& m, const Device* device) {
  std::vector<ExpertWeights> routed;
  for (const TestExpert& expert : m.routed) routed.push_back(expert.weights());
  std::vector<float> y = poisoned(m.rows * m.y_stride());
  const ExpertsParams params{.x = m.x.data(),
                             .x_stride = m.x_stride(),
                             .rows = m.rows,
                             .experts = m.experts.data(),
                             .weights = m.weights.data(),
                             .top_k = m.shape.top_k,
                             .routed = routed.data(),
                             .routed_count = m.shape.routed,
                             .shared = m.shared[0].weights(),
                             .swiglu_limit = m.limit,
                             .quantize_input = m.quantize,
                             .activations = m.activations,
                             .y = y.data(),
                             .y_stride = m.y_stride()};
  if (device != nullptr) {
    experts(*device, params);
  } else {
    experts_reference(params);
  }
  std::vector<float> result;
  for (int64_t r = 0; r < m.rows; ++r) {
    const auto row = y.begin() + r * m.y_stride();
    result.insert(result.end(), row, row + m.shape.hidden);
    for (int64_t i = m.shape.hidden; i < m.y_stride(); ++i) EXPECT_TRUE(std::isnan(row[i])) << "written past the end";
  }
  return result;
}

// The rows [first, first + rows) as a batch of their own.
Mixture part(const Mixture& m, int64_t first, int64_t rows) {
  Mixture result = m;
  const int64_t k = m.shape.top_k;
  result.rows = rows;
  result.x.assign(m.x.begin() + first * m.x_stride(), m.x.begin() + (first + rows) * m.x_stride());
  result.experts.assign(m.experts.begin() + first * k, m.experts.begin() + (first + rows) * k);
  result.weights.assign(m.weights.begin() + first * k, m.weights.begin() + (first + rows) * k);
  return result;
}

std::vector<double> product(const TestWeight& weight, std::span<const double> x) {
  std::vector<double> y(weight.matrix().rows);
  for (int64_t n = 0; n < std::ssize(y); ++n) {
    for (int64_t k = 0; k < std::ssize(x); ++k) y[n] += x[k] * weight.value(n, k);
  }
  return y;
}

void add_expert_in_double(const Mixture& m, const TestExpert& expert, std::span<const double> x, double weight,
                          std::vector<double>& sum) {
  const double limit = m.limit;
  const auto gate = product(expert.w1, x);
  const auto up = product(expert.w3, x);
  std::vector<double> v(gate.size());
  for (size_t i = 0; i < v.size(); ++i) {
    const double a = std::min(gate[i], limit);
    v[i] = a / (1 + std::exp(-a)) * std::clamp(up[i], -limit, limit) * weight;
  }
  const auto down = product(expert.w2, v);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += down[i];
}

// fp32 mode without Q8: nothing is rounded on the way, so that double gives the answer.
std::vector<double> in_double(const Mixture& m) {
  std::vector<double> result;
  for (int64_t r = 0; r < m.rows; ++r) {
    const auto x = doubles(std::span(m.x).subspan(r * m.x_stride(), m.shape.hidden));
    std::vector<double> sum(m.shape.hidden);
    add_expert_in_double(m, m.shared[0], x, 1, sum);
    for (int64_t i = r * m.shape.top_k; i < (r + 1) * m.shape.top_k; ++i) {
      add_expert_in_double(m, m.routed[m.experts[i]], x, static_cast<double>(m.weights[i]), sum);
    }
    result.insert(result.end(), sum.begin(), sum.end());
  }
  return result;
}

// fp32 sums of a few hundred terms, one through the other.
void expect_near_double(std::span<const float> y, const std::vector<double>& expected) {
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::fabs(value));
  expect_close(y, expected, 0, largest * 1e-5);
}

constexpr Shape kShapes[] = {{32, 32, 32, 1, 1}, {64, 96, 64, 4, 2}, {160, 64, 96, 7, 3}, {544, 128, 160, 5, 5}};

TEST(Experts, MatchTheFormulaInDouble) {
  Random random(1);
  for (const Shape& shape : kShapes) {
    for (const int64_t rows : {1, 2, 9}) {
      SCOPED_TRACE(std::to_string(shape.hidden) + " x " + std::to_string(shape.width) + ", rows " +
                   std::to_string(rows));
      Mixture m = random_mixture(shape, rows, random);
      m.quantize = false;
      m.activations = Activations::fp32;
      const auto expected = in_double(m);
      const double size = std::fabs(*std::max_element(expected.begin(), expected.end(),
                                                      [](double a, double b) { return std::fabs(a) < std::fabs(b); }));
      expect_close(run(m, nullptr), expected, 0, size * 1e-5);
      on_each_device([&](const Device& device) { expect_close(run(m, &device), expected, 0, size * 1e-5); });
    }
  }
}

// With roundings on the way, variants that sum in another order may round a few values to their neighbours: the results
// differ by steps of the formats in few of many terms.
TEST(Experts, VariantsAgreeInAllModes) {
  Random random(2);
  for (const Shape& shape : kShapes) {
    for (const bool quantize : {false, true}) {
      for (const Activations activations : {Activations::bf16, Activations::fp32}) {
        Mixture m = random_mixture(shape, 6, random);
        m.quantize = quantize;
        m.activations = activations;
        const auto expected = run(m, nullptr);
        double square = 0;
        for (const float value : expected) square += static_cast<double>(value) * static_cast<double>(value);
        const double rms = std::sqrt(square / static_cast<double>(expected.size()));
        const bool coarse = quantize || activations == Activations::bf16;
        on_each_device([&](const Device& device) {
          expect_close(run(m, &device), doubles(expected), coarse ? 0x1p-7 : 1e-5, rms * (coarse ? 0.02 : 1e-5));
        });
      }
    }
  }
}

TEST(Experts, RoutedExpertsMayHaveAnyFormat) {
  Random random(3);
  for (const WeightFormat format : kWeightFormats) {
    SCOPED_TRACE(name_of(format));
    Mixture m = random_mixture({96, 64, 32, 3, 2}, 4, random, format);
    m.quantize = false;
    m.activations = Activations::fp32;
    const auto expected = in_double(m);
    on_each_device([&](const Device& device) { expect_near_double(run(m, &device), expected); });
  }
}

TEST(Experts, NoRowsAndNoRoutedExperts) {
  Random random(4);
  on_each_device([&](const Device& device) {
    EXPECT_TRUE(run(random_mixture({64, 32, 32, 2, 1}, 0, random), &device).empty());
    Mixture m = random_mixture({64, 32, 32, 0, 0}, 3, random);
    m.quantize = false;
    m.activations = Activations::fp32;
    expect_near_double(run(m, &device), in_double(m));
  });
}

TEST(Experts, ARowDoesNotDependOnItsBatchOrOnTheThreads) {
  Random random(5);
  const Shape shape{192, 160, 96, 9, 3};
  const Mixture all = random_mixture(shape, 70, random);
  for (const Simd simd : usable_simd()) {
    SCOPED_TRACE(gannet::name_of(simd));
    ThreadPool one(1), two(2, false);
    const Device device{.pool = &one, .simd = simd};
    const auto expected = run(all, &device);
    expect_same_bits(run(all, &device), expected);
    const Device other{.pool = &two, .simd = simd};
    expect_same_bits(run(all, &other), expected);
    for (const auto& [first, rows] : {std::pair{0, 1}, {69, 1}, {10, 2}, {33, 5}, {20, 16}}) {
      SCOPED_TRACE(std::to_string(rows) + " rows from " + std::to_string(first));
      expect_same_bits(run(part(all, first, rows), &device),
                       std::span(expected).subspan(first * shape.hidden, rows * shape.hidden));
    }
  }
}

// More slots than are kept at a time.
TEST(Experts, LargeBatchesGiveTheSameRows) {
  Random random(6);
  const Shape shape{32, 32, 32, 6, 4};
  const Mixture all = random_mixture(shape, 1500, random);
  ThreadPool pool(2, false);
  const Device device{.pool = &pool, .simd = detect_simd()};
  const auto expected = run(all, &device);
  for (const int64_t row : {0, 700, 1499}) {
    expect_same_bits(run(part(all, row, 1), &device), std::span(expected).subspan(row * 32, 32));
  }
}

TEST(Experts, OrderOfTheListDoesNotMatter) {
  Random random(7);
  Mixture m = random_mixture({64, 64, 32, 8, 4}, 5, random);
  Mixture reversed = m;
  for (int64_t r = 0; r < m.rows; ++r) {
    std::reverse(reversed.experts.begin() + r * 4, reversed.experts.begin() + (r + 1) * 4);
    std::reverse(reversed.weights.begin() + r * 4, reversed.weights.begin() + (r + 1) * 4);
  }
  expect_same_bits(run(reversed, nullptr), run(m, nullptr));
  on_each_device([&](const Device& device) { expect_same_bits(run(reversed, &device), run(m, &device)); });
}

// One expert of width 32 whose gate and up projections are chosen and whose down projection copies v (spec: model 7.6).
TEST(Experts, ActivationsOfTheSpecification) {
  struct Case {
    float gate, up, weight;
    double value;
  };
  for (const Case& c : {Case{12, -11, 0.5F, -49.9977301}, {-20, 3, 1, -1.23669217e-7}, {1, 2, 0.25F, .365529289}}) {
    Random random(8);
    Mixture m = random_mixture({32, 32, 32, 1, 1}, 1, random, WeightFormat::f32);
    const auto clear = [](TestWeight& weight) {
      for (int64_t i = 0; i < 1024; ++i) weight.set(i / 32, i % 32, 0);
    };
    for (TestWeight* weight : {&m.routed[0].w1, &m.routed[0].w2, &m.routed[0].w3, &m.shared[0].w1}) clear(*weight);
    m.routed[0].w1.set(0, 0, std::bit_cast<uint32_t>(c.gate));
    m.routed[0].w3.set(0, 0, std::bit_cast<uint32_t>(c.up));
    m.routed[0].w2.set(0, 0, std::bit_cast<uint32_t>(1.0F));
    m.x[0] = 1;
    m.weights = {c.weight};
    m.quantize = false;
    m.activations = Activations::fp32;
    on_each_device([&](const Device& device) {
      EXPECT_NEAR(static_cast<double>(run(m, &device)[0]), c.value, std::fabs(c.value) * 1e-6);
    });
  }
}

// Against double, from where the exponential overflows to the limit, and what an element must not do to its neighbours.
TEST(Experts, GatedValuesAreGoodToAFewUnitsInTheLastPlace) {
  if (detect_simd() < Simd::avx512_bf16) GTEST_SKIP() << "no such processor";
  constexpr float kLimit = 10;
  Random random(9);
  std::vector<float> gate = {-kInfinity, -200, -103.5F, -88.8F, -87, -0.0F, 0, 1e-30F, kLimit, kInfinity, NAN, 1};
  while (gate.size() < 10007) gate.push_back(random.uniform(-87, 12));
  std::vector<float> up = random.normals(std::ssize(gate), 6);
  up[11] = NAN;
  auto v = poisoned(std::ssize(gate));
  gated_values_avx512(gate.data(), up.data(), 0.3F, kLimit, std::ssize(gate), v.data());
  for (size_t i = 0; i < gate.size(); ++i) {
    const double a = std::min(static_cast<double>(gate[i]), double{kLimit});
    const double b = std::clamp(static_cast<double>(up[i]), -double{kLimit}, double{kLimit});
    const double expected = a / (1 + std::exp(-a)) * b * static_cast<double>(0.3F);
    if (i == 0 || i == 10 || i == 11) {
      EXPECT_TRUE(i == 0 ? v[i] != v[i] || v[i] == 0 : std::isnan(v[i])) << i;
    } else {
      ASSERT_NEAR(v[i], expected, std::fabs(expected) * 0x1p-21 + 3e-37) << gate[i];
    }
  }
}

}  // namespace
}  // namespace gannet::ops::test

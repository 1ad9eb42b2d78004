#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "ops/attention_output/op.h"
#include "ops/testing.h"

namespace gannet::ops::test {
namespace {

// Small integers everywhere: every sum is exact, whatever its order.
struct Projection {
  int64_t rows, groups, width, rank, hidden;  // width: heads of a group times head_dim
  std::vector<float> heads, wo_a, wo_b;
  bool quantize = false;
  Activations activations = Activations::fp32;

  Projection(int64_t row_count, int64_t group_count, uint32_t seed)
      : rows(row_count), groups(group_count), width(64), rank(32), hidden(24) {
    Random random(seed);
    const auto fill = [&](std::vector<float>& values, int64_t n) {
      values.resize(n);
      for (float& value : values) value = static_cast<float>(random.integer(-3, 3));
    };
    fill(heads, rows * groups * width);
    fill(wo_a, groups * rank * width);
    fill(wo_b, hidden * groups * rank);
  }
};

std::vector<float> run(const Projection& p, const Device* device) {
  auto y = poisoned(p.rows * p.hidden);
  const AttentionOutputParams params{
      .heads = p.heads.data(),
      .rows = p.rows,
      .groups = p.groups,
      .wo_a = {.format = WeightFormat::f32, .rows = p.groups * p.rank, .cols = p.width, .data = p.wo_a.data()},
      .wo_b = {.format = WeightFormat::f32, .rows = p.hidden, .cols = p.groups * p.rank, .data = p.wo_b.data()},
      .y = y.data(),
      .quantize_input = p.quantize,
      .activations = p.activations};
  if (device != nullptr) {
    attention_output(*device, params);
  } else {
    attention_output_reference(params);
  }
  return y;
}

// spec: model 3.8, "Grouped low-rank output".
std::vector<double> project_in_double(const Projection& p) {
  std::vector<double> result;
  for (int64_t r = 0; r < p.rows; ++r) {
    std::vector<double> low(p.groups * p.rank);
    for (int64_t k = 0; k < std::ssize(low); ++k) {
      const float* group = p.heads.data() + (r * p.groups + k / p.rank) * p.width;
      low[k] = std::inner_product(group, group + p.width, p.wo_a.data() + k * p.width, 0.0);
    }
    if (p.quantize) low = oracle::q8(std::vector<float>(low.begin(), low.end()));
    for (int64_t o = 0; o < p.hidden; ++o) {
      const double sum = std::inner_product(low.begin(), low.end(), p.wo_b.data() + o * std::ssize(low), 0.0);
      result.push_back(p.activations == Activations::bf16 ? oracle::round_bf16(sum) : sum);
    }
  }
  return result;
}

TEST(AttentionOutput, MatchesTheFormulaOnEachDevice) {
  for (const int64_t rows : {0, 1, 5}) {
    for (const int64_t groups : {1, 2, 8}) {
      for (const Activations activations : {Activations::fp32, Activations::bf16}) {
        for (const bool quantize : {false, true}) {
          Projection p(rows, groups, 1);
          p.activations = activations;
          p.quantize = quantize;
          const auto expected = project_in_double(p);
          expect_close(run(p, nullptr), expected, 0, 0);
          on_each_device([&](const Device& device) { expect_close(run(p, &device), expected, 0, 0); });
        }
      }
    }
  }
}

// model 8, trap 10: rows are group-major, and a group sees its own heads only.
TEST(AttentionOutput, GroupUsesItsOwnHeadsAndRows) {
  Projection p(1, 2, 2);
  p.wo_b.assign(p.hidden * 2 * p.rank, 0.0F);
  p.wo_b[0] = 1;                    // output 0: the first value of group 0
  p.wo_b[2 * p.rank + p.rank] = 1;  // output 1: the first value of group 1
  const auto before = run(p, nullptr);
  for (int64_t i = 0; i < p.width; ++i) p.heads[p.width + i] += 1;  // heads of group 1
  const auto after = run(p, nullptr);
  EXPECT_EQ(after[0], before[0]);
  const float* row = p.wo_a.data() + p.rank * p.width;
  EXPECT_EQ(after[1] - before[1], std::accumulate(row, row + p.width, 0.0F));
}

// model 3.8: no activation quantisation in front of wo_a. Beside 448, Q8 would take 1.0625 to 1 and the difference to
// 0.
TEST(AttentionOutput, InputOfTheFirstProjectionIsNotQuantised) {
  Projection p(1, 1, 3);
  p.quantize = true;
  std::fill(p.heads.begin(), p.heads.end(), 0.0F);
  std::fill(p.wo_a.begin(), p.wo_a.end(), 0.0F);
  std::fill(p.wo_b.begin(), p.wo_b.end(), 0.0F);
  p.heads[0] = 448;
  p.heads[1] = 1.0625F;
  p.heads[2] = 1;
  p.wo_a[1] = 16;
  p.wo_a[2] = -16;
  p.wo_b[0] = 3;
  on_each_device([&](const Device& device) { EXPECT_EQ(run(p, &device)[0], 3.0F); });
}

}  // namespace
}  // namespace gannet::ops::test

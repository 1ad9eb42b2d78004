#include <gtest/gtest.h>

#include <algorithm>

#include "ops/head/op.h"
#include "ops/testing.h"

namespace gannet::ops::test {
namespace {

struct Rows {
  int64_t count, s, hidden, vocabulary;
  std::vector<float> streams, pre;
  std::vector<uint16_t> norm, weight;
  Activations activations = Activations::fp32;
};

Rows random_rows(int64_t count, uint32_t seed) {
  Random random(seed);
  Rows rows{.count = count, .s = 4, .hidden = 64, .vocabulary = 50, .streams = {}, .pre = {}, .norm = {}, .weight = {}};
  rows.streams = random.activations(count * 4 * 64);
  for (int64_t i = 0; i < count * 4; ++i) rows.pre.push_back(random.uniform(0, 1));
  rows.norm = random.norm_weights(64);
  rows.weight = bf16_codes(random.normals(50 * 64, 0.125F));
  return rows;
}

std::vector<float> run(const Rows& rows, const Device* device = nullptr) {
  auto streams = rows.streams;
  auto logits = poisoned(rows.count * rows.vocabulary);
  const HeadParams params{.streams = streams.data(),
                          .pre = rows.pre.data(),
                          .rows = rows.count,
                          .streams_per_row = rows.s,
                          .hidden = rows.hidden,
                          .norm = rows.norm.data(),
                          .norm_eps = 1e-20F,
                          .weight = {.format = WeightFormat::bf16,
                                     .rows = rows.vocabulary,
                                     .cols = rows.hidden,
                                     .data = rows.weight.data()},
                          .logits = logits.data(),
                          .activations = rows.activations};
  if (device != nullptr) {
    head(*device, params);
  } else {
    head_reference(params);
  }
  expect_same_bits(streams, rows.streams);  // only read
  return logits;
}

// spec: model 3.11.
std::vector<double> logits_in_double(const Rows& rows) {
  const bool round = rows.activations == Activations::bf16;
  std::vector<double> logits;
  for (int64_t r = 0; r < rows.count; ++r) {
    std::vector<double> h(rows.hidden);
    for (int64_t j = 0; j < rows.s; ++j) {
      for (int64_t i = 0; i < rows.hidden; ++i) {
        h[i] += static_cast<double>(rows.pre[r * rows.s + j]) *
                static_cast<double>(rows.streams[(r * rows.s + j) * rows.hidden + i]);
      }
    }
    auto x = rms_norm_in_double(h, rows.norm, 1e-20);
    if (round) round_all_to_bf16(x);
    for (int64_t v = 0; v < rows.vocabulary; ++v) {
      double sum = 0;
      for (int64_t i = 0; i < rows.hidden; ++i) sum += x[i] * oracle::bf16_value(rows.weight[v * rows.hidden + i]);
      logits.push_back(sum);
    }
  }
  return logits;
}

TEST(Head, MatchesTheFormulaInDoubleOnEachDevice) {
  const Rows rows = random_rows(4, 1);
  const auto expected = logits_in_double(rows);
  on_each_device([&](const Device& device) { expect_close(run(rows, &device), expected, 1e-5, 1e-5); });
}

TEST(Head, Bf16ModeRoundsTheInputOfTheProductAndNotTheLogits) {
  Rows rows = random_rows(4, 2);
  rows.activations = Activations::bf16;
  const auto logits = run(rows);
  expect_close(logits, logits_in_double(rows), 1e-3, 2e-2);
  const auto is_rounded = [](float logit) { return round_to_bf16(logit) == logit; };
  EXPECT_FALSE(std::all_of(logits.begin(), logits.end(), is_rounded));
}

TEST(Head, NoCapAndNoBias) {
  Rows rows = random_rows(1, 3);
  std::fill(rows.weight.begin(), rows.weight.end(), uint16_t{0});
  rows.weight[0] = float_to_bf16(1e6F);
  const auto logits = run(rows);
  EXPECT_GT(std::fabs(logits[0]), 1e3F);
  for (size_t v = 1; v < logits.size(); ++v) EXPECT_EQ(logits[v], 0.0F);
}

TEST(Head, DevicesAgreeForAnyNumberOfRows) {
  for (const int64_t count : {0, 1, 2, 7}) {
    const Rows rows = random_rows(count, 4);
    expect_devices_close([&](const Device* device) { return run(rows, device); }, 1e-5, 1e-5);
  }
}

TEST(Head, RowsDoNotDependOnTheirNeighbours) {
  const Rows together = random_rows(5, 5);
  on_each_device([&](const Device& device) {
    const auto all = run(together, &device);
    for (int64_t r = 0; r < 5; ++r) {
      Rows alone = together;
      alone.count = 1;
      alone.streams.assign(together.streams.begin() + r * 256, together.streams.begin() + (r + 1) * 256);
      alone.pre.assign(together.pre.begin() + r * 4, together.pre.begin() + (r + 1) * 4);
      expect_same_bits(run(alone, &device), std::span(all).subspan(r * 50, 50));
    }
  });
}

}  // namespace
}  // namespace gannet::ops::test

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "ops/router/op.h"
#include "ops/testing.h"

namespace gannet::ops::test {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

struct Routing {
  std::vector<int32_t> experts;
  std::vector<float> weights;
};

struct Gate {
  int64_t hidden, top_k;
  float factor = 1.5F;
  std::vector<float> weight, bias, x;  // [experts, hidden], [experts], [rows, hidden]
};

Routing run(const Gate& gate, const Device* device = nullptr) {
  const int64_t rows = std::ssize(gate.x) / gate.hidden;
  const auto codes = bf16_codes(gate.weight);
  Routing routing{std::vector<int32_t>(rows * gate.top_k, -1), poisoned(rows * gate.top_k)};
  const RouterParams params{
      .x = gate.x.data(),
      .rows = rows,
      .gate = {.format = WeightFormat::bf16, .rows = std::ssize(gate.bias), .cols = gate.hidden, .data = codes.data()},
      .bias = gate.bias.data(),
      .top_k = gate.top_k,
      .scaling_factor = gate.factor,
      .experts = routing.experts.data(),
      .weights = routing.weights.data()};
  if (device != nullptr) {
    router(*device, params);
  } else {
    router_reference(params);
  }
  return routing;
}

// A gate whose logits are the given bf16 values: one input channel of 1, the others 0.
Gate gate_of(const std::vector<float>& logits, const std::vector<float>& bias, int64_t top_k) {
  Gate gate{.hidden = 32, .top_k = top_k, .weight = {}, .bias = bias, .x = std::vector<float>(32)};
  gate.x[0] = 1;
  gate.weight.resize(logits.size() * 32);
  for (size_t e = 0; e < logits.size(); ++e) gate.weight[e * 32] = logits[e];
  return gate;
}

double score_in_double(double logit) {
  return std::sqrt(logit > 20 ? logit : std::log1p(std::exp(logit)));
}

TEST(Router, ExampleOfTheSpecification) {  // model 7.6
  const Gate gate = gate_of({2, 1, .5F, -1, 3, -2, 0, 1.5F}, {0, .3F, 0, 0, -1, 0, .2F, 0}, 3);
  on_each_device([&](const Device& device) {
    const Routing routing = run(gate, &device);
    EXPECT_THAT(routing.experts, ElementsAre(0, 1, 7));
    expect_close(routing.weights, std::vector{.5596660, .4397726, .5005615}, 0, 1e-7);
  });
}

TEST(Router, ScoresOfTheSpecification) {  // model 7.6: two experts share by their scores
  const std::vector<float> logits{2, 1, .5F, -1, 3, -2, 0, 1.5F};
  const std::vector scores{1.4583991, 1.1459763, .9869534, .5596979, 1.7460204, .3562696, .8325546, 1.3043823};
  for (size_t e = 1; e < logits.size(); ++e) {
    const Routing routing = run(gate_of({logits[0], logits[e]}, {100, 0}, 2));
    ASSERT_THAT(routing.experts, ElementsAre(0, 1));
    EXPECT_NEAR(static_cast<double>(routing.weights[1] / routing.weights[0]), scores[e] / scores[0], 3e-7) << e;
  }
}

// A softplus of log(1 + e^x) is 0 below -16.64 in fp32 and infinite above 88; at -104 e^x itself is 0.
TEST(Router, LogitsOfAnySizeGiveFiniteWeights) {
  for (float logit = -104; logit <= 200; logit += 1) {
    const Routing routing = run(gate_of({0, logit}, {1000, 0}, 2));
    ASSERT_THAT(routing.experts, ElementsAre(0, 1)) << logit;
    const double own = score_in_double(static_cast<double>(logit));
    const double share = 1.5 / (own + score_in_double(0));
    expect_close(routing.weights, std::vector{score_in_double(0) * share, own * share}, 1e-5, 1e-20);
  }
}

TEST(Router, LogitsThatAreAllFarBelowZeroKeepTheirProportion) {
  const Routing routing = run(gate_of({-40, -42, -60, -41}, {0, 0, 0, 0}, 2));
  EXPECT_THAT(routing.experts, ElementsAre(0, 3));
  const double ratio = std::exp(0.5);
  expect_close(routing.weights, std::vector{1.5 * ratio / (1 + ratio), 1.5 / (1 + ratio)}, 1e-5, 0);
}

TEST(Router, ScoresThatVanishGiveZeroWeightsAndNoNan) {
  const Routing routing = run(gate_of({-110, -120, -200}, {0, 0, 0}, 2));
  EXPECT_THAT(routing.weights, ElementsAre(0.0F, 0.0F));
}

TEST(Router, OfEqualScoresTheLowestNumbersAreChosen) {
  const Routing routing = run(gate_of(std::vector<float>(384, 0.75F), std::vector<float>(384), 6));
  EXPECT_THAT(routing.experts, ElementsAre(0, 1, 2, 3, 4, 5));
  for (const float weight : routing.weights) EXPECT_FLOAT_EQ(weight, 0.25F);
}

// model 8, trap 9.
TEST(Router, BiasSteersTheChoiceAndNotTheWeights) {
  const std::vector<float> logits{1, 2, 0.5F, 3};
  const Routing unbiased = run(gate_of(logits, {0, 0, 0, 0}, 2));
  EXPECT_THAT(unbiased.experts, ElementsAre(3, 1));
  const Routing steered = run(gate_of(logits, {0, 5, 0, 4}, 2));
  EXPECT_THAT(steered.experts, ElementsAre(1, 3));
  EXPECT_EQ(steered.weights[0], unbiased.weights[1]);
  EXPECT_EQ(steered.weights[1], unbiased.weights[0]);
  EXPECT_THAT(run(gate_of(logits, {-9, -9, 0, -9}, 1)).experts, ElementsAre(2));
}

TEST(Router, AllExpertsMayBeChosen) {
  const Routing routing = run(gate_of({1, 3, 2}, {0, 0, 0}, 3));
  EXPECT_THAT(routing.experts, ElementsAre(1, 2, 0));
  EXPECT_FLOAT_EQ(std::accumulate(routing.weights.begin(), routing.weights.end(), 0.0F), 1.5F);
}

TEST(Router, NanInputStillGivesDistinctExperts) {
  Gate gate = gate_of(std::vector<float>(16, 1.0F), std::vector<float>(16), 4);
  std::fill(gate.x.begin(), gate.x.end(), kPoison);
  on_each_device([&](const Device& device) {
    auto experts = run(gate, &device).experts;
    std::sort(experts.begin(), experts.end());
    EXPECT_TRUE(std::all_of(experts.begin(), experts.end(), [](int32_t e) { return e >= 0 && e < 16; }));
    EXPECT_EQ(std::unique(experts.begin(), experts.end()), experts.end());
  });
}

TEST(Router, OneNanLogitLosesToAllOthers) {
  const Routing routing = run(gate_of({1, kPoison, 0, -3}, {0, 50, 0, 0}, 3));
  EXPECT_THAT(routing.experts, ElementsAre(0, 2, 3));
  for (const float weight : routing.weights) EXPECT_TRUE(std::isfinite(weight));
}

// Inputs and weights of few bits, whose sums are exact in any order.
Gate random_gate(int64_t rows, uint32_t seed) {
  Random random(seed);
  Gate gate{.hidden = 64, .top_k = 6, .weight = {}, .bias = random.normals(40, 0.3F), .x = {}};
  for (int64_t i = 0; i < 40 * 64; ++i) gate.weight.push_back(static_cast<float>(random.integer(-8, 8)) / 16);
  for (int64_t i = 0; i < rows * 64; ++i) gate.x.push_back(static_cast<float>(random.integer(-16, 16)) / 16);
  return gate;
}

TEST(Router, RandomRowsMatchSortingInDouble) {
  const Gate gate = random_gate(12, 1);
  const Routing routing = run(gate);
  for (int64_t r = 0; r < 12; ++r) {
    std::vector<double> score;
    for (int64_t e = 0; e < 40; ++e) {
      score.push_back(
          score_in_double(std::inner_product(&gate.x[r * 64], &gate.x[r * 64] + 64, &gate.weight[e * 64], 0.0)));
    }
    std::vector<int32_t> order(40);
    std::iota(order.begin(), order.end(), 0);
    const auto rank = [&](int32_t e) { return score[e] + static_cast<double>(gate.bias[e]); };
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return rank(a) > rank(b); });
    order.resize(6);
    EXPECT_THAT(std::span(routing.experts).subspan(r * 6, 6), ElementsAreArray(order));
    double sum = 0;
    for (const int32_t e : order) sum += score[e];
    std::vector<double> weights;
    for (const int32_t e : order) weights.push_back(score[e] / sum * 1.5);
    expect_close(std::span(routing.weights).subspan(r * 6, 6), weights, 1e-6, 0);
  }
}

TEST(Router, DevicesAgreeForAnyNumberOfRows) {
  for (const int64_t rows : {0, 1, 2, 9}) {
    const Gate gate = random_gate(rows, 2);
    const Routing reference = run(gate);
    on_each_device([&](const Device& device) {
      const Routing routing = run(gate, &device);
      EXPECT_EQ(routing.experts, reference.experts);
      expect_same_bits(routing.weights, reference.weights);
    });
  }
}

}  // namespace
}  // namespace gannet::ops::test

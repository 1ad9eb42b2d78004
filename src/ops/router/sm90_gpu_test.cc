#include <algorithm>
#include <cmath>
#include <set>

#include "ops/linear/sm90_test_weight.h"
#include "ops/router/op.h"
#include "ops/router/sm90.h"

namespace gannet::ops::cuda::test {
namespace {

struct Lists {
  Lists(int64_t most, int64_t top_k, int64_t expert_count)
      : experts(most * top_k),
        weights(most * top_k),
        pairs(most * top_k),
        offsets(expert_count + 1),
        active(expert_count),
        active_count(1) {}
  ExpertLists get() const {
    return {experts.get(), weights.get(), pairs.get(), offsets.get(), active.get(), active_count.get()};
  }
  bool guards_intact() const {
    return experts.guard_intact() && weights.guard_intact() && pairs.guard_intact() && offsets.guard_intact() &&
           active.guard_intact() && active_count.guard_intact();
  }

  Array<int32_t> experts;
  Array<float> weights;
  Array<int32_t> pairs, offsets, active, active_count;
};

struct Case {
  int64_t hidden = 0, experts = 0, top_k = 0, most = 0, count = 0;
};

class RouterTest {
 public:
  RouterTest(const Case& c, uint32_t seed)
      : case_(c),
        random_(seed),
        gate_(TestWeight::random(WeightFormat::bf16, c.experts, c.hidden, random_)),
        packed_(gate_),
        bias_(random_.normals(c.experts, 0.1F)),
        x_(random_.activations(c.most * c.hidden)) {}

  Lists run(const std::vector<float>& x, int64_t count) const {
    const Array<__nv_bfloat16> device_x(to_bf16(x));
    const Array<int32_t> device_count(std::vector<int32_t>{static_cast<int32_t>(count)});
    const Array<float> bias(bias_), logits(case_.most * case_.experts);
    Lists lists(case_.most, case_.top_k, case_.experts);
    router(nullptr, {.x = device_x.get(),
                     .count = device_count.get(),
                     .most = case_.most,
                     .gate = packed_.matrix(),
                     .bias = bias.get(),
                     .top_k = case_.top_k,
                     .scaling_factor = 2.5F,
                     .logits = logits.get(),
                     .lists = lists.get()});
    GANNET_CUDA_CHECK(cudaDeviceSynchronize());
    EXPECT_TRUE(lists.guards_intact() && logits.guard_intact());
    return lists;
  }

  void check() const {
    const Lists lists = run(x_, case_.count);
    check_choice(lists);
    check_lists(lists);
  }

  // Against the reference; an expert may differ where two are equally good within the order of sums.
  void check_choice(const Lists& lists) const {
    const int64_t k = case_.top_k;
    std::vector<int32_t> experts(case_.count * k);
    std::vector<float> weights(case_.count * k);
    ops::router_reference({.x = x_.data(),
                           .rows = case_.count,
                           .gate = gate_.matrix(),
                           .bias = bias_.data(),
                           .top_k = k,
                           .scaling_factor = 2.5F,
                           .experts = experts.data(),
                           .weights = weights.data()});
    const std::vector<int32_t> got = lists.experts.host();
    const std::vector<float> got_weights = lists.weights.host();
    int64_t different = 0;
    for (int64_t row = 0; row < case_.count; ++row) {
      std::vector<std::pair<int32_t, float>> expected;
      for (int64_t i = row * k; i < (row + 1) * k; ++i) expected.emplace_back(experts[i], weights[i]);
      std::sort(expected.begin(), expected.end());
      bool same = true;
      for (int64_t i = 0; i < k; ++i) {
        if (i > 0) {
          ASSERT_LT(got[row * k + i - 1], got[row * k + i]) << "row " << row;
        }
        same = same && got[row * k + i] == expected[i].first;
      }
      different += same ? 0 : 1;
      for (int64_t i = 0; same && i < k; ++i) {
        ASSERT_NEAR(got_weights[row * k + i], expected[i].second, 1e-4) << "row " << row;
      }
    }
    EXPECT_LE(different, case_.count / 500);
  }

  // The lists against the choice itself.
  void check_lists(const Lists& lists) const {
    const int64_t n = case_.count * case_.top_k;
    const std::vector<int32_t> experts = lists.experts.host(), pairs = lists.pairs.host();
    std::vector<std::vector<int32_t>> of_expert(case_.experts);
    for (int32_t pair = 0; pair < n; ++pair) of_expert[experts[pair]].push_back(pair);
    std::vector<int32_t> all, offsets{0}, active;
    for (int32_t e = 0; e < case_.experts; ++e) {
      all.insert(all.end(), of_expert[e].begin(), of_expert[e].end());
      offsets.push_back(static_cast<int32_t>(all.size()));
      if (!of_expert[e].empty()) active.push_back(e);
    }
    EXPECT_EQ(std::vector<int32_t>(pairs.begin(), pairs.begin() + n), all);
    EXPECT_EQ(lists.offsets.host(), offsets);
    EXPECT_EQ(lists.active_count.host()[0], std::ssize(active));
    const std::vector<int32_t> got = lists.active.host();
    EXPECT_EQ(std::vector<int32_t>(got.begin(), got.begin() + std::ssize(active)), active);
    for (int64_t i = n; i < std::ssize(pairs); ++i) ASSERT_EQ(pairs[i], -1) << "wrote pair " << i;
    for (int64_t i = n; i < std::ssize(experts); ++i) ASSERT_EQ(experts[i], -1) << "wrote expert of " << i;
  }

  const std::vector<float>& x() const { return x_; }
  void set_bias(std::vector<float> bias) { bias_ = std::move(bias); }
  void set_x(std::vector<float> x) { x_ = std::move(x); }

 private:
  Case case_;
  Random random_;
  TestWeight gate_;
  PackedWeight packed_;
  std::vector<float> bias_;
  std::vector<float> x_;
};

TEST(CudaRouter, ChoosesAndListsAsTheReference) {
  uint32_t seed = 1;
  for (const Case& c :
       {Case{64, 12, 4, 1, 1}, Case{64, 12, 4, 1, 0}, Case{256, 16, 6, 40, 33}, Case{256, 16, 6, 128, 128},
        Case{96, 384, 6, 64, 64}, Case{64, 384, 6, 129, 129}, Case{64, 384, 6, 300, 260}, Case{64, 12, 4, 1024, 1000},
        Case{32, 512, 8, 260, 257}, Case{32, 5, 5, 9, 9}, Case{64, 384, 6, 300, 0}, Case{32, 384, 6, 8192, 8192},
        Case{5120, 384, 6, 2, 2}}) {
    SCOPED_TRACE(std::to_string(c.hidden) + " hidden, experts " + std::to_string(c.experts) + ", rows " +
                 std::to_string(c.count) + " of " + std::to_string(c.most));
    RouterTest(c, ++seed).check();
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(CudaRouter, EqualScoresGoToTheLowestExperts) {
  RouterTest test({32, 40, 6, 3, 3}, 100);
  test.set_x(std::vector<float>(3 * 32, 0.0F));
  test.set_bias(std::vector<float>(40, 0.0F));
  const std::vector<int32_t> experts = test.run(test.x(), 3).experts.host();
  for (int64_t i = 0; i < std::ssize(experts); ++i) ASSERT_EQ(experts[i], i % 6);
}

TEST(CudaRouter, NanIsChosenLast) {
  RouterTest test({32, 8, 4, 1, 1}, 101);
  std::vector<float> bias(8, 0.0F);
  for (const int e : {0, 1, 2, 5}) bias[e] = NAN;
  test.set_bias(bias);
  EXPECT_EQ(test.run(test.x(), 1).experts.host(), (std::vector<int32_t>{3, 4, 6, 7}));
  test.set_bias(std::vector<float>(8, NAN));
  EXPECT_EQ(test.run(test.x(), 1).experts.host(), (std::vector<int32_t>{0, 1, 2, 3}));
}

TEST(CudaRouter, RepeatsBitForBitAndARowDoesNotSeeItsNeighbours) {
  for (const int64_t most : {64, 200}) {
    const Case c{128, 384, 6, most, most};
    const RouterTest test(c, 102);
    const Lists first = test.run(test.x(), most);
    for (int i = 0; i < 30; ++i) {
      const Lists again = test.run(test.x(), most);
      ASSERT_TRUE(same_bits(first.weights.host(), again.weights.host()));
      ASSERT_TRUE(same_bits(first.pairs.host(), again.pairs.host()));
    }
    const int64_t row = most - 3;
    std::vector<float> x(test.x().size(), NAN);
    std::copy_n(test.x().begin() + row * c.hidden, c.hidden, x.begin());
    const Lists alone = test.run(x, 1);
    const std::vector<float> one = alone.weights.host(), all = first.weights.host();
    const std::vector<int32_t> one_expert = alone.experts.host(), all_experts = first.experts.host();
    for (int64_t i = 0; i < c.top_k; ++i) {
      EXPECT_EQ(one[i], all[row * c.top_k + i]);
      EXPECT_EQ(one_expert[i], all_experts[row * c.top_k + i]);
    }
  }
}

TEST(Benchmark, CudaRouter) {
  constexpr int64_t kHidden = 5120, kExperts = 384, kTopK = 6;
  std::vector<PackedWeight> gates;
  for (int i = 0; i < 40; ++i) gates.emplace_back(WeightFormat::bf16, kExperts, kHidden, i);
  Random random(1);
  const Array<float> bias(random.normals(kExperts, 0.1F));
  for (const int64_t rows : {1, 8, 64, 256, 1024, 8192}) {
    std::vector<float> values(rows * kHidden);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 2654435761U % 1000) / 500 - 1;
    const Array<__nv_bfloat16> x(to_bf16(values));
    const Array<int32_t> count(std::vector<int32_t>{static_cast<int32_t>(rows)});
    const Array<float> logits(rows * kExperts);
    const Lists lists(rows, kTopK, kExperts);
    const double us = time_launch(
        [&](cudaStream_t stream, int i) {
          router(stream, {.x = x.get(),
                          .count = count.get(),
                          .most = rows,
                          .gate = gates[i % 40].matrix(),
                          .bias = bias.get(),
                          .top_k = kTopK,
                          .logits = logits.get(),
                          .lists = lists.get()});
        },
        40);
    const auto label = "router 384x5120, rows " + std::to_string(rows);
    report(label.c_str(), us, static_cast<double>(kExperts * kHidden * 2 + rows * kHidden * 2),
           2.0 * static_cast<double>(rows * kExperts * kHidden));
  }
}

}  // namespace
}  // namespace gannet::ops::cuda::test

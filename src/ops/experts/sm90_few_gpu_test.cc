#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/quantize.h"
#include "ops/experts/sm90.h"
#include "ops/linear/sm90_test_weight.h"

namespace gannet::ops::cuda::test {
namespace {

constexpr float kLimit = 1.5F;

struct Case {
  int64_t hidden = 0, width = 0, shared_width = 0, experts = 0, top_k = 0, most = 0, count = 0;
  bool one_expert_for_all = false;  // every row has expert 1
};

struct HostLists {
  std::vector<int32_t> experts, pairs, offsets, active;
  std::vector<float> weights;
};

HostLists list(const std::vector<std::vector<int32_t>>& choices, int64_t experts, int64_t top_k, Random& random) {
  HostLists lists;
  std::vector<std::vector<int32_t>> of_expert(experts);
  for (int64_t row = 0; row < std::ssize(choices); ++row) {
    for (int64_t k = 0; k < top_k; ++k) {
      of_expert[choices[row][k]].push_back(static_cast<int32_t>(row * top_k + k));
      lists.experts.push_back(choices[row][k]);
      lists.weights.push_back(random.uniform(0.05F, 1.0F));
    }
  }
  lists.offsets.push_back(0);
  for (int32_t e = 0; e < experts; ++e) {
    lists.pairs.insert(lists.pairs.end(), of_expert[e].begin(), of_expert[e].end());
    lists.offsets.push_back(static_cast<int32_t>(lists.pairs.size()));
    if (!of_expert[e].empty()) lists.active.push_back(e);
  }
  return lists;
}

std::vector<std::vector<int32_t>> random_choices(const Case& c, int64_t rows, Random& random) {
  std::vector<std::vector<int32_t>> choices;
  std::vector<int32_t> all(c.experts);
  std::iota(all.begin(), all.end(), 0);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < c.top_k; ++i) std::swap(all[i], all[random.integer(i, c.experts - 1)]);
    std::vector<int32_t> chosen(all.begin(), all.begin() + c.top_k);
    if (c.one_expert_for_all && std::find(chosen.begin(), chosen.end(), 1) == chosen.end()) chosen[0] = 1;
    std::sort(chosen.begin(), chosen.end());
    choices.push_back(chosen);
  }
  return choices;
}

struct HostExpert {
  TestWeight w1, w2, w3;
};

class ExpertsTest {
 public:
  ExpertsTest(const Case& c, uint32_t seed)
      : case_(c), random_(seed), shared_(make(WeightFormat::fp8, c.shared_width)), x_(c.most * c.hidden) {
    for (int64_t e = 0; e < c.experts; ++e) {
      routed_.push_back(make(WeightFormat::mxfp4, c.width));
      gate_up_.emplace_back(routed_.back().w1, routed_.back().w3, e == 0 ? 2 : 0);
      down_.emplace_back(routed_.back().w2, e == 0 ? -2 : 0);
      table_.push_back({.gate_up = gate_up_.back().matrix().data,
                        .down = down_.back().matrix().data,
                        .gate_up_factor = e == 0 ? 4.0F : 1.0F,
                        .down_factor = e == 0 ? 0.25F : 1.0F});
    }
    x_ = random_.activations(c.most * c.hidden);
    q8_round(x_);
    choices_ = random_choices(c, c.count, random_);
    lists_ = list(choices_, c.experts, c.top_k, random_);
  }

  struct Result {
    std::vector<float> inner, shared_inner, outer, shared;
  };

  Result run(const std::vector<float>& x, const HostLists& lists, int64_t count) const {
    const Case& c = case_;
    const int64_t pairs = c.most * c.top_k;
    const PackedWeight shared_gate_up(shared_.w1, shared_.w3), shared_down(shared_.w2);
    const Array<__nv_bfloat16> device_x(to_bf16(x));
    const Array<int32_t> device_count(std::vector<int32_t>{static_cast<int32_t>(count)});
    const Array<ExpertWeights> table(table_);
    const Array<int32_t> experts(pairs), device_pairs(pairs), offsets(lists.offsets), active(c.experts);
    const Array<int32_t> active_count(std::vector<int32_t>{static_cast<int32_t>(lists.active.size())});
    const Array<float> weights(pairs);
    const_cast<Array<int32_t>&>(experts).set(lists.experts);
    const_cast<Array<int32_t>&>(device_pairs).set(lists.pairs);
    const_cast<Array<int32_t>&>(active).set(lists.active);
    const_cast<Array<float>&>(weights).set(lists.weights);
    const Array<__nv_bfloat16> inner(pairs * c.width), shared_inner(c.most * c.shared_width);
    const Array<float> outer(pairs * c.hidden), shared(c.most * c.hidden);
    experts_few_rows(nullptr, {.x = device_x.get(),
                               .count = device_count.get(),
                               .most = c.most,
                               .hidden = c.hidden,
                               .width = c.width,
                               .experts = c.experts,
                               .top_k = c.top_k,
                               .lists = {experts.get(), weights.get(), device_pairs.get(), offsets.get(), active.get(),
                                         active_count.get()},
                               .routed = table.get(),
                               .shared_gate_up = shared_gate_up.matrix(),
                               .shared_down = shared_down.matrix(),
                               .swiglu_limit = kLimit,
                               .inner = inner.get(),
                               .shared_inner = shared_inner.get(),
                               .outer = outer.get(),
                               .shared = shared.get()});
    Result result{to_float(inner.host()), to_float(shared_inner.host()), outer.host(), shared.host()};
    EXPECT_TRUE(inner.guard_intact() && shared_inner.guard_intact() && outer.guard_intact() && shared.guard_intact());
    return result;
  }

  void check() const {
    const Case& c = case_;
    const Result result = run(x_, lists_, c.count);
    for (int64_t row = 0; row < c.count; ++row) {
      SCOPED_TRACE("row " + std::to_string(row));
      check_expert(shared_, row, 1, part(result.shared_inner, row, c.shared_width), part(result.shared, row, c.hidden));
      for (int64_t pair = row * c.top_k; pair < (row + 1) * c.top_k; ++pair) {
        SCOPED_TRACE("pair " + std::to_string(pair));
        check_expert(routed_[lists_.experts[pair]], row, lists_.weights[pair], part(result.inner, pair, c.width),
                     part(result.outer, pair, c.hidden));
        if (testing::Test::HasFatalFailure()) return;
      }
    }
    expect_unwritten(result.inner, c.count * c.top_k * c.width);
    expect_unwritten(result.outer, c.count * c.top_k * c.hidden);
    expect_unwritten(result.shared_inner, c.count * c.shared_width);
    expect_unwritten(result.shared, c.count * c.hidden);
  }

  static std::vector<float> part(const std::vector<float>& all, int64_t i, int64_t n) {
    return {all.begin() + i * n, all.begin() + (i + 1) * n};
  }

  const std::vector<float>& x() const { return x_; }
  const HostLists& lists() const { return lists_; }
  const std::vector<std::vector<int32_t>>& choices() const { return choices_; }

 private:
  HostExpert make(WeightFormat format, int64_t width) {
    return {TestWeight::random(format, width, case_.hidden, random_),
            TestWeight::random(format, case_.hidden, width, random_),
            TestWeight::random(format, width, case_.hidden, random_)};
  }

  static std::vector<float> multiply(const TestWeight& weight, const float* x) {
    std::vector<float> y(weight.matrix().rows);
    linear_reference({.x = x,
                      .x_stride = weight.matrix().cols,
                      .rows = 1,
                      .weight = weight.matrix(),
                      .outputs = weight.matrix().rows,
                      .y = y.data(),
                      .y_stride = weight.matrix().rows,
                      .activations = Activations::fp32});
    return y;
  }

  // The second product from the device's own first one, in which a sum in another order may have changed a code of Q8.
  void check_expert(const HostExpert& expert, int64_t row, float weight, const std::vector<float>& inner,
                    const std::vector<float>& outer) const {
    const float* x = x_.data() + row * case_.hidden;
    const std::vector<float> gate = multiply(expert.w1, x), up = multiply(expert.w3, x);
    std::vector<float> v(gate.size());
    for (size_t i = 0; i < v.size(); ++i) {
      const float a = std::min(gate[i], kLimit), b = std::clamp(up[i], -kLimit, kLimit);
      v[i] = a / (1 + std::exp(-a)) * b * weight;
    }
    std::vector<float> rounded = v;
    q8_round(rounded);
    int64_t different = 0;
    for (size_t i = 0; i < v.size(); ++i) {
      different += inner[i] == rounded[i] ? 0 : 1;
      ASSERT_NEAR(inner[i], rounded[i], 0.126F * std::fabs(rounded[i]) + 1e-3F) << "channel " << i;
    }
    EXPECT_LE(different, 1 + std::ssize(v) / 50);
    ops::test::expect_close(outer, ops::test::doubles(multiply(expert.w2, inner.data())), 1e-4, 1e-4);
  }

  static void expect_unwritten(const std::vector<float>& values, int64_t from) {
    for (int64_t i = from; i < std::ssize(values); ++i) ASSERT_TRUE(std::isnan(values[i])) << "wrote " << i;
  }

  Case case_;
  Random random_;
  HostExpert shared_;
  std::vector<HostExpert> routed_;
  std::vector<PackedWeight> gate_up_, down_;
  std::vector<ExpertWeights> table_;
  std::vector<float> x_;
  std::vector<std::vector<int32_t>> choices_;
  HostLists lists_;
};

TEST(CudaExpertsFew, GiveTheReferencesResults) {
  uint32_t seed = 1;
  for (const Case& c :
       {Case{64, 32, 32, 4, 2, 1, 1}, Case{64, 32, 32, 4, 2, 1, 0}, Case{384, 192, 192, 12, 4, 1, 1},
        Case{384, 192, 192, 12, 4, 8, 5}, Case{256, 96, 160, 16, 6, 9, 9}, Case{256, 96, 96, 16, 6, 40, 33},
        Case{96, 32, 64, 8, 2, 64, 64}, Case{96, 64, 32, 3, 1, 100, 99, true}, Case{96, 64, 32, 8, 2, 256, 0},
        Case{64, 32, 32, 300, 6, 70, 70}, Case{1056, 96, 96, 4, 2, 3, 3}, Case{5120, 32, 32, 2, 1, 2, 2},
        Case{96, 2304, 2304, 2, 1, 2, 2}}) {
    SCOPED_TRACE("hidden " + std::to_string(c.hidden) + ", width " + std::to_string(c.width) + ", rows " +
                 std::to_string(c.count) + " of " + std::to_string(c.most));
    ExpertsTest(c, ++seed).check();
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(CudaExpertsFew, RepeatBitForBit) {
  for (const Case& c : {Case{320, 64, 64, 20, 4, 8, 8}, Case{320, 64, 64, 20, 4, 60, 57}}) {
    const ExpertsTest test(c, 100);
    const ExpertsTest::Result first = test.run(test.x(), test.lists(), c.count);
    for (int i = 0; i < 30; ++i) {
      const ExpertsTest::Result again = test.run(test.x(), test.lists(), c.count);
      ASSERT_TRUE(same_bits(first.inner, again.inner) && same_bits(first.outer, again.outer)) << "run " << i;
      ASSERT_TRUE(same_bits(first.shared_inner, again.shared_inner) && same_bits(first.shared, again.shared));
    }
  }
}

TEST(CudaExpertsFew, ARowAloneGivesTheBitsItHasInABatch) {
  for (const Case& c : {Case{320, 64, 64, 6, 3, 8, 8}, Case{320, 64, 64, 6, 3, 200, 200, true}}) {
    const ExpertsTest test(c, 101);
    const ExpertsTest::Result batch = test.run(test.x(), test.lists(), c.count);
    for (const int64_t row : {int64_t{0}, c.count / 2, c.count - 1}) {
      std::vector<float> x(test.x().size(), NAN);
      std::copy_n(test.x().begin() + row * c.hidden, c.hidden, x.begin());
      Random random(5);
      HostLists lists = list({test.choices()[row]}, c.experts, c.top_k, random);
      lists.weights.assign(test.lists().weights.begin() + row * c.top_k,
                           test.lists().weights.begin() + (row + 1) * c.top_k);
      const ExpertsTest::Result alone = test.run(x, lists, 1);
      EXPECT_TRUE(
          same_bits(ExpertsTest::part(alone.shared, 0, c.hidden), ExpertsTest::part(batch.shared, row, c.hidden)));
      for (int64_t k = 0; k < c.top_k; ++k) {
        EXPECT_TRUE(same_bits(ExpertsTest::part(alone.outer, k, c.hidden),
                              ExpertsTest::part(batch.outer, row * c.top_k + k, c.hidden)));
      }
    }
  }
}

// What the rows of a case choose in each of some layers.
struct LayerLists {
  std::vector<Array<int32_t>> experts, pairs, offsets, active, active_count;
  double mean_active = 0;

  LayerLists(const Case& c, int layers, Random& random) {
    for (int i = 0; i < layers; ++i) {
      const HostLists lists = list(random_choices(c, c.count, random), c.experts, c.top_k, random);
      experts.emplace_back(lists.experts);
      pairs.emplace_back(lists.pairs);
      offsets.emplace_back(lists.offsets);
      active.emplace_back(lists.active);
      active_count.emplace_back(std::vector<int32_t>{static_cast<int32_t>(lists.active.size())});
      mean_active += static_cast<double>(lists.active.size()) / layers;
    }
  }
  ExpertLists of(int layer, float* weights) const {
    return {experts[layer].get(),     weights, pairs[layer].get(), offsets[layer].get(), active[layer].get(),
            active_count[layer].get()};
  }
};

TEST(Benchmark, CudaExpertsFew) {
  constexpr int64_t kHidden = 5120, kWidth = 2304, kExperts = 384, kTopK = 6;
  std::vector<PackedWeight> gate_up, down, shared_gate_up, shared_down;
  std::vector<ExpertWeights> weights;
  for (int i = 0; i < kExperts; ++i) {
    gate_up.emplace_back(WeightFormat::mxfp4, 2 * kWidth, kHidden, i);
    down.emplace_back(WeightFormat::mxfp4, kHidden, kWidth, i);
    weights.push_back({.gate_up = gate_up.back().matrix().data, .down = down.back().matrix().data});
  }
  for (int i = 0; i < 8; ++i) {
    shared_gate_up.emplace_back(WeightFormat::fp8, 2 * kWidth, kHidden, i);
    shared_down.emplace_back(WeightFormat::fp8, kHidden, kWidth, i);
  }
  const Array<ExpertWeights> table(weights);
  for (const int64_t rows : {1, 2, 4, 8, 16, 64, 256}) {
    // Layers choose anew, so that weights do not come out of the cache.
    const int layers = rows < 16 ? 20 : 4;
    Random random(7);
    const Case c{kHidden, kWidth, kWidth, kExperts, kTopK, rows, rows};
    const LayerLists lists(c, layers, random);
    std::vector<float> values = random.activations(rows * kHidden);
    q8_round(values);
    const Array<__nv_bfloat16> x(to_bf16(values));
    const Array<int32_t> count(std::vector<int32_t>{static_cast<int32_t>(rows)});
    const Array<float> routing(std::vector<float>(rows * kTopK, 0.25F));
    const Array<__nv_bfloat16> inner(rows * kTopK * kWidth), shared_inner(rows * kWidth);
    const Array<float> outer(rows * kTopK * kHidden), shared(rows * kHidden);
    const double us = time_launch(
        [&](cudaStream_t stream, int i) {
          experts_few_rows(stream, {.x = x.get(),
                                    .count = count.get(),
                                    .most = rows,
                                    .hidden = kHidden,
                                    .width = kWidth,
                                    .experts = kExperts,
                                    .top_k = kTopK,
                                    .lists = lists.of(i % layers, routing.get()),
                                    .routed = table.get(),
                                    .shared_gate_up = shared_gate_up[i % 8].matrix(),
                                    .shared_down = shared_down[i % 8].matrix(),
                                    .swiglu_limit = 10,
                                    .inner = inner.get(),
                                    .shared_inner = shared_inner.get(),
                                    .outer = outer.get(),
                                    .shared = shared.get()});
        },
        layers);
    const double bytes = lists.mean_active * static_cast<double>(gate_up[0].bytes().size() + down[0].bytes().size()) +
                         static_cast<double>(shared_gate_up[0].bytes().size() + shared_down[0].bytes().size());
    const auto label = "experts, rows " + std::to_string(rows) + ", active " +
                       std::to_string(static_cast<int>(std::lround(lists.mean_active)));
    report(label.c_str(), us, bytes, 2.0 * static_cast<double>(rows * (kTopK + 1) * 3 * kHidden * kWidth));
  }
}

}  // namespace
}  // namespace gannet::ops::cuda::test

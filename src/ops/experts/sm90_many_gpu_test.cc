#include <cmath>
#include <numeric>
#include <string>

#include "base/quantize.h"
#include "ops/experts/sm90.h"
#include "ops/linear/sm90_test_weight.h"

namespace gannet::ops::cuda::test {
namespace {

struct Expert {
  TestWeight w1, w2, w3;
  PackedWeight gate_up, down;

  Expert(WeightFormat format, int64_t width, int64_t hidden, Random& random)
      : w1(TestWeight::random(format, width, hidden, random)),
        w2(TestWeight::random(format, hidden, width, random)),
        w3(TestWeight::random(format, width, hidden, random)),
        gate_up(w1, w3),
        down(w2) {}
};

struct Widths {
  int64_t hidden, width, shared_width, experts, top_k;
};

// A layer's experts on `count` of `most` rows, routed at random.
class Mixture {
 public:
  Mixture(const Widths& widths, int64_t most, int64_t count, Random& random)
      : widths_(widths),
        most_(most),
        count_(count),
        shared_(WeightFormat::fp8, widths.shared_width, widths.hidden, random),
        values_(random.activations(most * widths.hidden, 2)),
        x_(to_bf16(values_)),
        device_count_(std::vector<int32_t>{static_cast<int32_t>(count)}),
        inner_(most * widths.top_k * widths.width),
        shared_inner_(most * widths.shared_width),
        outer_(most * widths.top_k * widths.hidden),
        shared_out_(most * widths.hidden) {
    for (int64_t e = 0; e < widths.experts; ++e)
      experts_.emplace_back(WeightFormat::mxfp4, widths.width, widths.hidden, random);
    for (int64_t r = 0; r < most; ++r) {
      std::vector<int32_t> ids(widths.experts);
      std::iota(ids.begin(), ids.end(), 0);
      for (int64_t i = 0; i < widths.top_k; ++i) {
        // A third of the rows choose among the first experts, so that these have several tiles.
        const int64_t last = r % 3 == 0 ? std::max(widths.top_k, widths.experts / 4) - 1 : widths.experts - 1;
        std::swap(ids[i], ids[random.integer(i, last)]);
      }
      std::sort(ids.begin(), ids.begin() + widths.top_k);
      chosen_.insert(chosen_.end(), ids.begin(), ids.begin() + widths.top_k);
      for (int64_t i = 0; i < widths.top_k; ++i) weights_.push_back(random.uniform(0.05F, 1));
    }
  }

  // Row `row` alone at the front.
  void keep_only(int64_t row) {
    const int64_t k = widths_.top_k;
    std::copy_n(values_.begin() + row * widths_.hidden, widths_.hidden, values_.begin());
    std::copy_n(chosen_.begin() + row * k, k, chosen_.begin());
    std::copy_n(weights_.begin() + row * k, k, weights_.begin());
    x_.set(to_bf16(values_));
    count_ = 1;
    device_count_.set(std::vector<int32_t>{1});
  }

  struct Results {
    std::vector<__nv_bfloat16> inner, shared_inner;
    std::vector<float> outer, shared;
    bool operator==(const Results& other) const {
      return same_bits(inner, other.inner) && same_bits(shared_inner, other.shared_inner) &&
             same_bits(outer, other.outer) && same_bits(shared, other.shared);
    }
  };

  Results run() {
    std::vector<int32_t> pairs, offsets{0}, active;
    for (int32_t e = 0; e < widths_.experts; ++e) {
      for (int32_t i = 0; i < count_ * widths_.top_k; ++i) {
        if (chosen_[i] == e) pairs.push_back(i);
      }
      if (std::ssize(pairs) > offsets.back()) active.push_back(e);
      offsets.push_back(static_cast<int32_t>(pairs.size()));
    }
    const Array<int32_t> device_active_count(std::vector<int32_t>{static_cast<int32_t>(active.size())});
    pairs.resize(most_ * widths_.top_k, -1);
    active.resize(widths_.experts, -1);
    std::vector<ExpertWeights> table;
    for (const Expert& expert : experts_)
      table.push_back({.gate_up = expert.gate_up.matrix().data, .down = expert.down.matrix().data});
    const Array<int32_t> chosen(chosen_), device_pairs(pairs), device_offsets(offsets), device_active(active);
    const Array<float> weights(weights_);
    const Array<ExpertWeights> routed(table);
    const Array<int32_t> tiles(expert_tile_words(most_, widths_.top_k, widths_.experts));
    inner_.poison();
    shared_inner_.poison();
    outer_.poison();
    shared_out_.poison();
    experts_many_rows(nullptr, {.x = x_.get(),
                                .count = device_count_.get(),
                                .most = most_,
                                .hidden = widths_.hidden,
                                .width = widths_.width,
                                .experts = widths_.experts,
                                .top_k = widths_.top_k,
                                .lists = {.experts = chosen.get(),
                                          .weights = weights.get(),
                                          .pairs = device_pairs.get(),
                                          .offsets = device_offsets.get(),
                                          .active = device_active.get(),
                                          .active_count = device_active_count.get()},
                                .routed = routed.get(),
                                .shared_gate_up = shared_.gate_up.matrix(),
                                .shared_down = shared_.down.matrix(),
                                .swiglu_limit = 10,
                                .inner = inner_.get(),
                                .shared_inner = shared_inner_.get(),
                                .outer = outer_.get(),
                                .shared = shared_out_.get(),
                                .tiles = tiles.get()});
    Results results{inner_.host(), shared_inner_.host(), outer_.host(), shared_out_.host()};
    EXPECT_TRUE(inner_.guard_intact() && shared_inner_.guard_intact() && outer_.guard_intact());
    EXPECT_TRUE(shared_out_.guard_intact() && tiles.guard_intact());
    return results;
  }

  void expect_right(const Results& results) const {
    for (int64_t i = 0; i < most_ * widths_.top_k; ++i) {
      SCOPED_TRACE("pair " + std::to_string(i));
      const bool real = i / widths_.top_k < count_;
      expect_pair(experts_[real ? chosen_[i] : 0], i / widths_.top_k, real, weights_[i],
                  results.inner.data() + i * widths_.width, results.outer.data() + i * widths_.hidden);
      if (testing::Test::HasFailure()) return;
    }
    for (int64_t r = 0; r < most_; ++r) {
      SCOPED_TRACE("row " + std::to_string(r));
      expect_pair(shared_, r, r < count_, 1, results.shared_inner.data() + r * widths_.shared_width,
                  results.shared.data() + r * widths_.hidden);
      if (testing::Test::HasFailure()) return;
    }
  }

 private:
  static std::vector<double> product(const TestWeight& weight, const float* x, std::vector<double>& sizes) {
    const int64_t rows = weight.matrix().rows, cols = weight.matrix().cols;
    std::vector<double> y(rows);
    sizes.assign(rows, 0);
    for (int64_t n = 0; n < rows; ++n) {
      for (int64_t k = 0; k < cols; ++k) {
        const double term = static_cast<double>(x[k]) * weight.value(n, k);
        y[n] += term;
        sizes[n] += std::fabs(term);
      }
    }
    return y;
  }

  void expect_pair(const Expert& expert, int64_t row, bool real, float weight, const __nv_bfloat16* inner,
                   const float* outer) const {
    const int64_t width = expert.w1.matrix().rows;
    std::vector<float> v(width);
    for (int64_t i = 0; i < width; ++i) v[i] = __bfloat162float(inner[i]);
    if (!real) {
      for (int64_t i = 0; i < width; ++i) ASSERT_TRUE(std::isnan(v[i]));
      for (int64_t i = 0; i < widths_.hidden; ++i) ASSERT_TRUE(std::isnan(outer[i]));
      return;
    }
    std::vector<double> sizes;
    const auto gate = product(expert.w1, values_.data() + row * widths_.hidden, sizes);
    const auto up = product(expert.w3, values_.data() + row * widths_.hidden, sizes);
    for (int64_t group = 0; group < width; group += 32) {
      std::vector<double> exact(32);
      double most = 1e-4;
      for (int64_t i = 0; i < 32; ++i) {
        const double a = std::min(gate[group + i], 10.0);
        exact[i] = a / (1 + std::exp(-a)) * std::clamp(up[group + i], -10.0, 10.0) * static_cast<double>(weight);
        most = std::max(most, std::fabs(exact[i]));
      }
      // Half a step of E4M3 and, below its normal numbers, half of the scale's least step.
      for (int64_t i = 0; i < 32; ++i) {
        ASSERT_NEAR(static_cast<double>(v[group + i]), exact[i], std::fabs(exact[i]) * 0.0626 + most * 2 / 448 * 0x1p-9)
            << "channel " << group + i;
      }
      std::vector<float> again(v.begin() + group, v.begin() + group + 32);
      q8_round(again);
      for (int64_t i = 0; i < 32; ++i) ASSERT_EQ(again[i], v[group + i]) << "no value of Q8: channel " << group + i;
    }
    const auto down = product(expert.w2, v.data(), sizes);
    for (int64_t i = 0; i < widths_.hidden; ++i) {
      ASSERT_NEAR(static_cast<double>(outer[i]), down[i], sizes[i] * 0x1p-19 + 1e-30) << "output " << i;
    }
  }

  Widths widths_;
  int64_t most_, count_;
  std::vector<Expert> experts_;
  Expert shared_;
  std::vector<float> values_, weights_;
  std::vector<int32_t> chosen_;
  Array<__nv_bfloat16> x_;
  Array<int32_t> device_count_;
  Array<__nv_bfloat16> inner_, shared_inner_;
  Array<float> outer_, shared_out_;
};

TEST(CudaExpertsMany, MatchTheFormulaInDouble) {
  Random random(1);
  for (const auto& [widths, most, count] : {std::tuple{Widths{96, 64, 32, 12, 4}, 270, 261},
                                            {Widths{160, 96, 96, 40, 6}, 90, 90},
                                            {Widths{32, 288, 64, 3, 1}, 300, 7},
                                            {Widths{320, 32, 128, 5, 5}, 257, 100}}) {
    SCOPED_TRACE("hidden " + std::to_string(widths.hidden) + ", rows " + std::to_string(count));
    Mixture mixture(widths, most, count, random);
    mixture.expect_right(mixture.run());
    if (HasFailure()) return;
  }
}

TEST(CudaExpertsMany, NoRows) {
  Random random(2);
  Mixture mixture({64, 32, 32, 4, 2}, 257, 0, random);
  mixture.expect_right(mixture.run());
}

TEST(CudaExpertsMany, ARowDoesNotDependOnTheOthers) {
  Random random(3);
  const Widths widths{384, 192, 192, 12, 4};
  for (const int64_t most : {257, 150}) {
    Mixture mixture(widths, most, most, random);
    const Mixture::Results all = mixture.run();
    for (int i = 0; i < 30; ++i) ASSERT_TRUE(mixture.run() == all);
    mixture.keep_only(most - 2);
    const Mixture::Results alone = mixture.run();
    const int64_t pair = (most - 2) * widths.top_k;
    for (int64_t i = 0; i < widths.top_k * widths.hidden; ++i) {
      ASSERT_EQ(alone.outer[i], all.outer[pair * widths.hidden + i]) << i;
    }
    for (int64_t i = 0; i < widths.hidden; ++i) {
      ASSERT_EQ(alone.shared[i], all.shared[(most - 2) * widths.hidden + i]) << i;
    }
  }
}

// Every row chooses top_k experts, all equally likely; the pairs of each expert in the order of the rows.
struct UniformRouting {
  std::vector<int32_t> pairs, offsets{0};
  int64_t active = 0;

  UniformRouting(int64_t rows, int64_t experts, int64_t top_k, Random& random) {
    std::vector<std::vector<int32_t>> of_expert(experts);
    std::vector<int32_t> ids(experts);
    for (int64_t r = 0; r < rows; ++r) {
      std::iota(ids.begin(), ids.end(), 0);
      for (int64_t i = 0; i < top_k; ++i) std::swap(ids[i], ids[random.integer(i, experts - 1)]);
      std::sort(ids.begin(), ids.begin() + top_k);
      for (int64_t i = 0; i < top_k; ++i) of_expert[ids[i]].push_back(static_cast<int32_t>(r * top_k + i));
    }
    for (const auto& list : of_expert) {
      pairs.insert(pairs.end(), list.begin(), list.end());
      offsets.push_back(static_cast<int32_t>(pairs.size()));
      active += list.empty() ? 0 : 1;
    }
  }
};

// Weights of one layer; routed experts beyond kStored share theirs with others.
struct LayerWeights {
  static constexpr int64_t kHidden = 5120, kWidth = 2304, kExperts = 384, kStored = 128;

  const int64_t gate_up_bytes = packed_bytes(WeightFormat::mxfp4, 2 * kWidth, kHidden);
  const int64_t down_bytes = packed_bytes(WeightFormat::mxfp4, kHidden, kWidth);
  Array<std::byte> gate_up{kStored * gate_up_bytes}, down{kStored * down_bytes};
  Array<std::byte> shared_gate_up{packed_bytes(WeightFormat::fp8, 2 * kWidth, kHidden)};
  Array<std::byte> shared_down{packed_bytes(WeightFormat::fp8, kHidden, kWidth)};

  LayerWeights() {
    fill_packed(nullptr, WeightFormat::mxfp4, kStored * 2 * kWidth, kHidden, 1, -6, gate_up.get());
    fill_packed(nullptr, WeightFormat::mxfp4, kStored * kHidden, kWidth, 2, -6, down.get());
    fill_packed(nullptr, WeightFormat::fp8, 2 * kWidth, kHidden, 3, -12, shared_gate_up.get());
    fill_packed(nullptr, WeightFormat::fp8, kHidden, kWidth, 4, -12, shared_down.get());
  }
  std::vector<ExpertWeights> routed() const {
    std::vector<ExpertWeights> table;
    for (int64_t e = 0; e < kExperts; ++e) {
      table.push_back(
          {.gate_up = gate_up.get() + e % kStored * gate_up_bytes, .down = down.get() + e % kStored * down_bytes});
    }
    return table;
  }
};

TEST(Benchmark, ExpertsMany) {
  constexpr int64_t kHidden = LayerWeights::kHidden, kWidth = LayerWeights::kWidth, kExperts = LayerWeights::kExperts;
  constexpr int64_t kTopK = 6, kMost = 8192;
  const LayerWeights weights;
  const Array<ExpertWeights> routed(weights.routed());
  Random random(4);
  Array<__nv_bfloat16> x(kMost * kHidden);
  const auto values = to_bf16(random.normals(kHidden * 128));
  for (int64_t i = 0; i < x.size(); i += std::ssize(values)) {
    GANNET_CUDA_CHECK(cudaMemcpy(x.get() + i, values.data(), values.size() * 2, cudaMemcpyHostToDevice));
  }
  Array<__nv_bfloat16> inner(kMost * kTopK * kWidth), shared_inner(kMost * kWidth);
  Array<float> outer(kMost * kTopK * kHidden), shared(kMost * kHidden);
  const Array<int32_t> tiles(expert_tile_words(kMost, kTopK, kExperts));

  for (const int64_t rows : {320, 512, 1024, 2048, 4096, 8192}) {
    const UniformRouting routing(rows, kExperts, kTopK, random);
    const Array<int32_t> device_pairs(routing.pairs), device_offsets(routing.offsets);
    const Array<float> routing_weights(std::vector<float>(rows * kTopK, 0.25F));
    const Array<int32_t> count(std::vector<int32_t>{static_cast<int32_t>(rows)});
    const double time = time_launch(
        [&](cudaStream_t stream, int) {
          experts_many_rows(stream, {.x = x.get(),
                                     .count = count.get(),
                                     .most = rows,
                                     .hidden = kHidden,
                                     .width = kWidth,
                                     .experts = kExperts,
                                     .top_k = kTopK,
                                     .lists = {.weights = routing_weights.get(),
                                               .pairs = device_pairs.get(),
                                               .offsets = device_offsets.get()},
                                     .routed = routed.get(),
                                     .shared_gate_up = {.format = WeightFormat::fp8,
                                                        .rows = 2 * kWidth,
                                                        .cols = kHidden,
                                                        .data = weights.shared_gate_up.get()},
                                     .shared_down = {.format = WeightFormat::fp8,
                                                     .rows = kHidden,
                                                     .cols = kWidth,
                                                     .data = weights.shared_down.get()},
                                     .swiglu_limit = 10,
                                     .inner = inner.get(),
                                     .shared_inner = shared_inner.get(),
                                     .outer = outer.get(),
                                     .shared = shared.get(),
                                     .tiles = tiles.get()});
        },
        3);
    report(("experts, " + std::to_string(rows) + " rows").c_str(), time,
           static_cast<double>(routing.active * (weights.gate_up_bytes + weights.down_bytes)),
           2.0 * static_cast<double>(rows * (kTopK + 1) * 3 * kHidden * kWidth));
  }
}

}  // namespace
}  // namespace gannet::ops::cuda::test

#include <gtest/gtest.h>

#include <functional>

#include "ops/experts/sm90.h"
#include "ops/hyper_mix/sm90.h"
#include "ops/index_scores/sm90.h"

namespace gannet::ops::cuda {
namespace {

// Memory that is enough for `most` rows is enough for each step of the forward pass's ladder below.
void expect_rising(const std::function<int64_t(int64_t)>& scratch) {
  int64_t before = 0;
  for (int64_t most = 1; most <= 1100; ++most) {
    ASSERT_GE(scratch(most), before) << most;
    before = scratch(most);
  }
}

TEST(CudaScratch, IsEnoughForFewerRows) {
  expect_rising(hyper_mix_scratch);
  expect_rising([](int64_t most) { return index_select_scratch(most, 512, 2048); });
  expect_rising([](int64_t most) { return index_select_scratch(most, 64, 0); });
  expect_rising([](int64_t most) { return expert_tile_words(most, 6, 256); });
}

// 256 rows take more of it than 257, which need a second block of rows.
TEST(CudaScratch, HyperMixHoldsThePartsOfItsStepsThatHaveMostSplits) {
  constexpr int64_t kSums = 32;
  for (const auto& [rows, splits] : {std::pair{1, 80}, {16, 80}, {256, 160}, {512, 132}}) {
    EXPECT_GE(hyper_mix_scratch(rows), rows * splits * kSums);
    EXPECT_GE(hyper_mix_scratch(rows + 1), rows * splits * kSums);
  }
}

}  // namespace
}  // namespace gannet::ops::cuda

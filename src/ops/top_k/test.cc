#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "ops/testing.h"
#include "ops/top_k/op.h"

namespace gannet::ops::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Lists = std::vector<std::vector<int32_t>>;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<int32_t> best(const std::vector<float>& scores, int64_t k) {
  std::vector<int32_t> chosen(std::max<int64_t>(k, 1), -1);
  chosen.resize(top_k_row(scores.data(), std::ssize(scores), k, chosen.data()));
  return chosen;
}

TEST(TopK, ChoosesTheLargestInRisingOrder) {
  EXPECT_THAT(best({1, 5, -2, 4, 3}, 3), ElementsAre(1, 3, 4));
}

TEST(TopK, OfEqualScoresTheLowestPositionsWin) {
  EXPECT_THAT(best({2, 7, 2, 7, 2, 2}, 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(best({0, 0, 0, 1, 0}, 3), ElementsAre(0, 1, 3));
  EXPECT_THAT(best(std::vector<float>(100, -3.0F), 5), ElementsAre(0, 1, 2, 3, 4));
}

TEST(TopK, ZerosOfBothSignsAreEqual) {
  EXPECT_THAT(best({-0.0F, 0.0F, -0.0F, 0.0F}, 2), ElementsAre(0, 1));
}

TEST(TopK, NanAndMinusInfinityAreNeverChosen) {
  EXPECT_THAT(best({kNaN, 1, -kInfinity, -2, kNaN}, 4), ElementsAre(1, 3));
  EXPECT_THAT(best({kNaN, -kInfinity, -kNaN}, 2), IsEmpty());
}

TEST(TopK, InfinityAndTheLowestFloatAreScores) {
  const float lowest = std::numeric_limits<float>::lowest();
  EXPECT_THAT(best({lowest, kInfinity, -kInfinity, 0}, 1), ElementsAre(1));
  EXPECT_THAT(best({lowest, kInfinity, -kInfinity, 0}, 4), ElementsAre(0, 1, 3));
}

TEST(TopK, TakesAllWhenThereAreNoMore) {
  EXPECT_THAT(best({3, 1, 2}, 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(best({3, 1, 2}, 512), ElementsAre(0, 1, 2));
  EXPECT_THAT(best({}, 4), IsEmpty());
  EXPECT_THAT(best({3, 1, 2}, 0), IsEmpty());
}

// By a stable sort of all.
std::vector<int32_t> sorted_best(const std::vector<float>& scores, int32_t count, int64_t k) {
  std::vector<int32_t> order;
  for (int32_t i = 0; i < count; ++i) {
    if (!std::isnan(scores[i]) && scores[i] != -kInfinity) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return scores[a] > scores[b]; });
  order.resize(std::min<size_t>(order.size(), k));
  std::sort(order.begin(), order.end());
  return order;
}

struct Rows {
  int64_t stride = 300;
  std::vector<std::vector<float>> scores;
  std::vector<int32_t> counts;
};

// Coarse scores with many ties, some of them missing.
Rows random_rows(int64_t rows, uint32_t seed) {
  Random random(seed);
  Rows result;
  for (int64_t r = 0; r < rows; ++r) {
    auto& scores = result.scores.emplace_back(random.normals(result.stride));
    for (float& score : scores) score = std::round(score * 4);
    for (int i = 0; i < 20; ++i) scores[random.integer(0, 299)] = i % 2 == 0 ? kNaN : -kInfinity;
    result.counts.push_back(static_cast<int32_t>(random.integer(0, result.stride)));
  }
  return result;
}

Lists run(const Device* device, const Rows& rows, int64_t k, const std::vector<int32_t>& entries) {
  const auto n = std::ssize(rows.scores);
  std::vector<float> flat;
  for (const auto& row : rows.scores) flat.insert(flat.end(), row.begin(), row.end());
  std::vector<int32_t> selected(n * k, -1);
  std::vector<int32_t> selected_counts(n, -1);
  const TopKParams params{.scores = flat.data(),
                          .stride = rows.stride,
                          .counts = rows.counts.data(),
                          .entries = entries.empty() ? nullptr : entries.data(),
                          .rows = n,
                          .k = k,
                          .selected = selected.data(),
                          .selected_stride = k,
                          .selected_counts = selected_counts.data()};
  if (device != nullptr) {
    top_k(*device, params);
  } else {
    top_k_reference(params, 0, n);
  }
  Lists lists;
  for (int64_t r = 0; r < n; ++r) {
    lists.emplace_back(selected.begin() + r * k, selected.begin() + r * k + selected_counts[r]);
  }
  return lists;
}

TEST(TopK, RandomRowsMatchAStableSortOnEachDevice) {
  for (const int64_t n : {0, 1, 2, 40}) {
    const Rows rows = random_rows(n, 1);
    for (const int64_t k : {1, 7, 64, 299, 300, 512}) {
      Lists expected;
      for (int64_t r = 0; r < n; ++r) expected.push_back(sorted_best(rows.scores[r], rows.counts[r], k));
      EXPECT_EQ(run(nullptr, rows, k, {}), expected) << k;
      on_each_device([&](const Device& device) { EXPECT_EQ(run(&device, rows, k, {}), expected) << k; });
    }
  }
}

TEST(TopK, ListedEntriesAreNamedByTheirNumbers) {
  const Rows rows = random_rows(5, 2);
  std::vector<int32_t> entries(5 * rows.stride);
  for (int64_t i = 0; i < std::ssize(entries); ++i) entries[i] = static_cast<int32_t>(1000 + 3 * i);
  Lists expected = run(nullptr, rows, 9, {});
  for (int64_t r = 0; r < 5; ++r) {
    for (int32_t& chosen : expected[r]) chosen = entries[r * rows.stride + chosen];
  }
  on_each_device([&](const Device& device) { EXPECT_EQ(run(&device, rows, 9, entries), expected); });
}

}  // namespace
}  // namespace gannet::ops::test

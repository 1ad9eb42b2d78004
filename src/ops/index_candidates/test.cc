#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "ops/index_candidates/op.h"
#include "ops/testing.h"

namespace gannet::ops::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Lists = std::vector<std::vector<int32_t>>;

// One list of candidates for each row of scores; all rows of one length, of which the first `visible` count.
Lists candidates(const Device* device, const std::vector<std::vector<float>>& scores,
                 const std::vector<int32_t>& visible, int64_t block_size, int64_t max_blocks) {
  std::vector<float> flat;
  for (const auto& row : scores) flat.insert(flat.end(), row.begin(), row.end());
  const auto rows = std::ssize(scores);
  const int64_t stride = max_blocks * block_size;
  std::vector<int32_t> entries(rows * stride, -1);
  std::vector<int32_t> counts(rows, -1);
  const IndexCandidatesParams params{.scores = flat.data(),
                                     .score_stride = rows > 0 ? std::ssize(scores[0]) : 0,
                                     .visible = visible.data(),
                                     .rows = rows,
                                     .block_size = block_size,
                                     .max_blocks = max_blocks,
                                     .entries = entries.data(),
                                     .entry_stride = stride,
                                     .counts = counts.data()};
  if (device != nullptr) {
    index_candidates(*device, params);
  } else {
    index_candidates_reference(params, 0, rows);
  }
  Lists lists;
  for (int64_t r = 0; r < rows; ++r) {
    EXPECT_TRUE(counts[r] >= 0 && counts[r] <= stride);
    const auto begin = entries.begin() + r * stride;
    lists.emplace_back(begin, begin + counts[r]);
    EXPECT_TRUE(std::all_of(begin + counts[r], begin + stride, [](int32_t entry) { return entry == -1; }));
  }
  return lists;
}

std::vector<int32_t> candidates_of(const std::vector<float>& scores, int64_t block_size, int64_t max_blocks) {
  return candidates(nullptr, {scores}, {static_cast<int32_t>(scores.size())}, block_size, max_blocks)[0];
}

TEST(IndexCandidates, KeepsTheBestBlocksInRisingOrder) {
  EXPECT_THAT(candidates_of({5, 0, 1, 1, 0, 9, 2, 2, 0, 0}, 2, 3), ElementsAre(0, 1, 4, 5, 8, 9));
}

TEST(IndexCandidates, BlockScoresItsLargestEntry) {
  EXPECT_THAT(candidates_of({-9, -1, -2, -2, -5, -5}, 2, 2), ElementsAre(0, 1, 4, 5));
}

// model 7.6: which block holds the newest visible entry, and that it stays however badly it scores.
TEST(IndexCandidates, NewestBlockIsAlwaysKept) {
  const std::map<int32_t, int32_t> newest_block{{1, 0}, {8, 0}, {9, 1}, {16385, 2048}};
  for (const auto& [visible, block] : newest_block) {
    std::vector<float> scores(visible);
    std::iota(scores.rbegin(), scores.rend(), 0.0F);  // falling: the newest is the worst
    const auto kept = candidates_of(scores, 8, 1);
    ASSERT_FALSE(kept.empty());
    EXPECT_EQ(kept.front(), block * 8) << visible;
    EXPECT_EQ(kept.back(), visible - 1);
  }
}

TEST(IndexCandidates, ReleasedSizesDropExactlyTheWorstBlock) {
  std::vector<float> scores(16385);
  std::iota(scores.rbegin(), scores.rend(), 0.0F);
  scores[8 * 700 + 3] = 1e6F;
  for (int i = 0; i < 8; ++i) scores[8 * 1234 + i] = -3;  // the newest entry has 0 and would lose next
  const auto kept = candidates_of(scores, 8, 2048);
  EXPECT_EQ(kept.size(), 2047U * 8 + 1);
  EXPECT_EQ(kept.back(), 16384);
  EXPECT_TRUE(std::none_of(kept.begin(), kept.end(), [](int32_t entry) { return entry / 8 == 1234; }));
}

TEST(IndexCandidates, NewestBlockIsKeptEvenWithoutAnyScore) {
  EXPECT_THAT(candidates_of({1, 1, 2, 2, -kInfinity, -kInfinity}, 2, 2), ElementsAre(2, 3, 4, 5));
}

TEST(IndexCandidates, BlocksWithoutAnyScoreAreNotKept) {
  EXPECT_THAT(candidates_of({-kInfinity, -kInfinity, 2, 2, 0, 0}, 2, 3), ElementsAre(2, 3, 4, 5));
}

TEST(IndexCandidates, OfEqualBlocksTheLowestPositionsAreKept) {
  EXPECT_THAT(candidates_of(std::vector<float>(10, 1.0F), 2, 3), ElementsAre(0, 1, 2, 3, 8, 9));
}

TEST(IndexCandidates, BelowCapacityEverythingVisibleIsKept) {
  Random random(1);
  for (int32_t visible = 0; visible <= 16; ++visible) {
    std::vector<int32_t> all(visible);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(candidates(nullptr, {random.normals(20)}, {visible}, 4, 4)[0], all) << visible;
  }
}

TEST(IndexCandidates, EntriesBehindTheVisibleDoNotCount) {
  EXPECT_THAT(candidates(nullptr, {{1, 1, 0, 99, 99, 99}}, {3}, 2, 1)[0], ElementsAre(2));
  EXPECT_THAT(candidates(nullptr, {{1, 1, 0, 99, 99, 99}}, {0}, 2, 1)[0], IsEmpty());
}

// By sorting all blocks.
std::vector<int32_t> sorted_candidates(const std::vector<float>& scores, int32_t visible, int32_t size, size_t most) {
  std::vector<std::pair<double, int32_t>> blocks;
  for (int32_t b = 0; b * size < visible; ++b) {
    double best = -std::numeric_limits<double>::infinity();
    for (int32_t i = b * size; i < std::min(visible, (b + 1) * size); ++i) best = std::max(best, double{scores[i]});
    if ((b + 1) * size >= visible) best = std::numeric_limits<double>::infinity();
    blocks.emplace_back(-best, b);
  }
  std::sort(blocks.begin(), blocks.end());
  blocks.resize(std::min(blocks.size(), most));
  std::vector<int32_t> entries;
  for (const auto& block : blocks) {
    for (int32_t i = block.second * size; i < std::min(visible, (block.second + 1) * size); ++i) entries.push_back(i);
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

TEST(IndexCandidates, RandomRowsMatchSortingOnEachDevice) {
  Random random(2);
  for (const int64_t rows : {0, 1, 2, 30}) {
    std::vector<std::vector<float>> scores;
    std::vector<int32_t> visible;
    Lists expected;
    for (int64_t r = 0; r < rows; ++r) {
      scores.push_back(random.normals(200));
      // Coarse values, so that ties are common, as with the scores that the ReLU makes 0.
      for (float& score : scores.back()) score = std::max(0.0F, std::round(score * 2));
      visible.push_back(static_cast<int32_t>(random.integer(0, 200)));
      expected.push_back(sorted_candidates(scores.back(), visible.back(), 8, 6));
    }
    EXPECT_EQ(candidates(nullptr, scores, visible, 8, 6), expected);
    on_each_device([&](const Device& device) { EXPECT_EQ(candidates(&device, scores, visible, 8, 6), expected); });
  }
}

}  // namespace
}  // namespace gannet::ops::test

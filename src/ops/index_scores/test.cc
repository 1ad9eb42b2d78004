#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/quantize.h"
#include "ops/index_scores/op.h"
#include "ops/rope/op.h"
#include "ops/testing.h"

namespace gannet::ops::test {
namespace {

constexpr int64_t kDim = 32;
constexpr int64_t kBlockRecords = 4;

// Query rows against one sequence's keys, which lie in scattered blocks.
struct Scoring {
  int64_t rows, heads, dim, key_count;
  std::vector<float> q, weights, frequencies, keys;  // keys: what was packed, [key_count, dim]
  std::vector<int32_t> positions, visible, block_table, entries;
  std::vector<std::byte> pool;
  std::vector<PagedRecords> paged;
  std::vector<float> scores;

  Scoring(int64_t row_count, int64_t head_count, std::vector<float> key_values, int64_t channels = kDim)
      : rows(row_count),
        heads(head_count),
        dim(channels),
        key_count(std::ssize(key_values) / channels),
        q(row_count * head_count * channels),
        weights(row_count * head_count, 1.0F),
        keys(std::move(key_values)),
        positions(row_count),
        visible(row_count, static_cast<int32_t>(key_count)),
        scores(poisoned(row_count * key_count)) {
    const int64_t blocks = key_count / kBlockRecords + 1;
    for (int64_t b = 0; b < blocks; ++b) block_table.push_back(static_cast<int32_t>(2 * (blocks - b) - 1));
    pool.resize(2 * blocks * block_stride());
    for (int64_t j = 0; j < key_count; ++j) {
      auto* record = reinterpret_cast<uint8_t*>(records().at(j));
      q4mx_pack({keys.data() + j * dim, static_cast<size_t>(dim)}, record, record + dim / 2);
    }
  }

  // Other records of the block lie there, too.
  int64_t block_stride() const { return kBlockRecords * q4mx_bytes(dim) + 24; }

  PagedRecords records() {
    return {.base = pool.data(),
            .block_table = block_table.data(),
            .block_stride = block_stride(),
            .block_records = kBlockRecords,
            .record_bytes = q4mx_bytes(dim)};
  }
  IndexScoresParams params() {
    paged.assign(rows, records());
    return {.q = q.data(),
            .weights = weights.data(),
            .positions = positions.data(),
            .rows = rows,
            .heads = heads,
            .dim = dim,
            .frequencies = &frequencies,
            .keys = paged.data(),
            .visible = visible.data(),
            .entries = entries.empty() ? nullptr : entries.data(),
            .scores = scores.data(),
            .stride = key_count};
  }
};

// The reference for a null device. Works on a copy: the op overwrites the queries.
std::vector<float> run(Scoring scoring, const Device* device) {
  const auto params = scoring.params();
  if (device != nullptr) {
    index_scores(*device, params);
  } else {
    index_scores_reference(params, 0, scoring.rows);
  }
  return scoring.scores;
}

Scoring random_scoring(int64_t rows, int64_t heads, int64_t key_count, uint32_t seed, int64_t dim = kDim) {
  Random random(seed);
  Scoring scoring(rows, heads, random.activations(key_count * dim), dim);
  scoring.q = random.activations(rows * heads * dim);
  scoring.weights = random.activations(rows * heads, 0.1F);
  scoring.frequencies = rope_frequencies({.theta = 160000, .dim = 16});
  for (int32_t& position : scoring.positions) position = static_cast<int32_t>(random.integer(0, 100000));
  for (int32_t& visible : scoring.visible) visible = static_cast<int32_t>(random.integer(1, key_count));
  return scoring;
}

void expect_scored_up_to_visible(const Scoring& scoring, const std::vector<float>& scores) {
  for (int64_t r = 0; r < scoring.rows; ++r) {
    for (int64_t j = 0; j < scoring.key_count; ++j) {
      ASSERT_EQ(std::isnan(scores[r * scoring.key_count + j]), j >= scoring.visible[r]) << "row " << r << ", " << j;
    }
  }
}

// spec: model 3.7, in double, for row r and the key at `entry`.
double score_in_double(const Scoring& s, int64_t r, int64_t entry) {
  const auto key = oracle::q4mx(std::span(s.keys).subspan(entry * s.dim, s.dim));
  double score = 0;
  for (int64_t h = 0; h < s.heads; ++h) {
    auto q = doubles(std::span(s.q).subspan((r * s.heads + h) * s.dim, s.dim));
    rotate_in_double(q, s.positions[r], s.frequencies);
    const auto rounded = oracle::q4mx(std::vector<float>(q.begin(), q.end()));
    const double product = std::inner_product(rounded.begin(), rounded.end(), key.begin(), 0.0);
    score += std::max(product, 0.0) * static_cast<double>(s.weights[r * s.heads + h]);
  }
  return score;
}

TEST(IndexScores, ReluAndSignedWeights) {
  std::vector<float> keys(3 * kDim);
  keys[0] = 2;             // key 0: channel 0
  keys[kDim] = -2;         // key 1: its opposite
  keys[2 * kDim + 1] = 3;  // key 2: channel 1
  Scoring scoring(1, 2, keys);
  scoring.q[0] = 1;  // head 0 looks at channels 0 and 1, head 1 at channel 0 from the other side
  scoring.q[1] = 4;
  scoring.q[kDim] = -1.5F;
  scoring.weights = {0.5F, -0.25F};
  on_each_device([&](const Device& device) {
    // 0.5 * 2; -0.25 * 3, while head 0's -2 is cut; 0.5 * 12.
    EXPECT_EQ(run(scoring, &device), (std::vector<float>{1, -0.75F, 6}));
  });
}

TEST(IndexScores, QueriesAreRoundedToFp4) {
  std::vector<float> keys(kDim);
  keys[0] = 1;
  keys[1] = 1;
  Scoring scoring(1, 1, keys);
  scoring.q[0] = 6;
  scoring.q[1] = 2.5F;  // a tie: 2
  EXPECT_EQ(run(scoring, nullptr), std::vector<float>{8});
}

// 128 channels, and enough rows for the matrix units, have ways of their own.
class IndexScoresInDouble : public testing::TestWithParam<std::pair<int64_t, int64_t>> {};
INSTANTIATE_TEST_SUITE_P(RowsAndChannels, IndexScoresInDouble,
                         testing::Values(std::pair{5, kDim}, std::pair{5, 128}, std::pair{37, 128}));

TEST_P(IndexScoresInDouble, MatchesTheFormula) {
  const auto [rows, channels] = GetParam();
  const Scoring scoring = random_scoring(rows, 4, 83, 1, channels);
  on_each_device([&](const Device& device) {
    const auto scores = run(scoring, &device);
    expect_scored_up_to_visible(scoring, scores);
    for (int64_t r = 0; r < scoring.rows; ++r) {
      for (int64_t j = 0; j < scoring.visible[r]; ++j) {
        ASSERT_NEAR(static_cast<double>(scores[r * scoring.key_count + j]), score_in_double(scoring, r, j), 1e-5)
            << "row " << r;
      }
    }
  });
}

// kernels 4: sparse equals dense, bit for bit.
TEST(IndexScores, ListedEntriesGetTheirDenseScores) {
  Scoring dense = random_scoring(3, 4, 40, 2);
  std::fill(dense.visible.begin(), dense.visible.end(), 40);
  Scoring listed = dense;
  listed.visible = {0, 1, 13};
  listed.entries.assign(3 * 40, -1);
  listed.entries[40] = 39;
  for (int i = 0; i < 13; ++i) listed.entries[80 + i] = 3 * i + 1;
  on_each_device([&](const Device& device) {
    const auto all = run(dense, &device);
    const auto some = run(listed, &device);
    expect_scored_up_to_visible(listed, some);
    expect_same_bits(std::span(some).subspan(40, 1), std::span(all).subspan(40 + 39, 1));
    for (int i = 0; i < 13; ++i) {
      expect_same_bits(std::span(some).subspan(80 + i, 1), std::span(all).subspan(80 + 3 * i + 1, 1));
    }
  });
}

TEST(IndexScores, RowsMayBelongToDifferentSequences) {
  Scoring first = random_scoring(1, 2, 8, 3);
  Scoring second = random_scoring(1, 2, 8, 4);
  Scoring both(2, 2, first.keys);
  const auto join = [](auto& target, const auto& a, const auto& b) {
    target = a;
    target.insert(target.end(), b.begin(), b.end());
  };
  join(both.q, first.q, second.q);
  join(both.weights, first.weights, second.weights);
  join(both.positions, first.positions, second.positions);
  join(both.visible, first.visible, second.visible);
  both.frequencies = first.frequencies;
  auto params = both.params();
  both.paged[1] = second.records();
  std::vector<float> expected;
  join(expected, run(first, nullptr), run(second, nullptr));
  index_scores_reference(params, 0, 2);
  expect_same_bits(both.scores, expected);
}

TEST(IndexScores, DevicesAgreeForAnyNumberOfRows) {
  for (const int64_t rows : {0, 1, 2, 6}) {
    const Scoring scoring = random_scoring(rows, 3, 50, 5);
    const auto unscored = [](float score) { return std::isnan(score); };
    expect_devices_agree(
        [&](const Device* device) {
          auto scores = run(scoring, device);
          expect_scored_up_to_visible(scoring, scores);
          std::replace_if(scores.begin(), scores.end(), unscored, 0.0F);
          return scores;
        },
        1e-5, 1e-6);
  }
}

// A prompt: rows of one sequence, which the matrix units may take together, each with a view of its own. Blocks of 32
// keys are all usual or have a key with a group of zeros, with scales far apart or with tiny values, and so are
// queries.
TEST(IndexScores, PromptsGetTheScoresOfSingleRows) {
  constexpr int64_t kGroup = 32;
  constexpr int64_t kChannels = 128;
  for (const int64_t heads : {1, 4, 32}) {
    constexpr int64_t kRows = 70;
    constexpr int64_t kKeys = 200;
    Random random(static_cast<uint32_t>(heads));
    auto keys = random.activations(kKeys * kChannels);
    std::fill_n(&keys[40 * kChannels + kGroup], kGroup, 0.0F);
    for (int64_t c = 0; c < kGroup; ++c) keys[70 * kChannels + c] *= 0x1p20F;
    for (int64_t c = 0; c < kChannels; ++c) keys[100 * kChannels + c] *= 1e-30F;
    Scoring scoring(kRows, heads, keys, kChannels);
    scoring.q = random.activations(kRows * heads * kChannels);
    scoring.weights = random.activations(kRows * heads, 0.1F);
    for (int64_t c = 0; c < kGroup; ++c) scoring.q[5 * heads * kChannels + c] *= 1e4F;
    for (int64_t c = 0; c < heads * kChannels; ++c) scoring.q[50 * heads * kChannels + c] *= 1e-12F;
    for (int64_t c = 0; c < heads * kChannels; ++c) scoring.q[60 * heads * kChannels + c] *= 1e30F;
    scoring.frequencies = rope_frequencies({.theta = 160000, .dim = 64});
    for (int64_t r = 0; r < kRows; ++r) {
      scoring.positions[r] = static_cast<int32_t>(r + 5);
      scoring.visible[r] = static_cast<int32_t>(std::min(kKeys, 3 * r + 1));
    }
    on_each_device([&](const Device& device) {
      const auto together = run(scoring, &device);
      expect_scored_up_to_visible(scoring, together);
      Scoring alone = scoring;
      auto params = alone.params();
      for (int64_t r = 0; r < kRows; ++r) {
        IndexScoresParams row = params;
        row.q += r * heads * kChannels;
        row.weights += r * heads;
        row.positions += r;
        row.keys += r;
        row.visible += r;
        row.scores += r * row.stride;
        row.rows = 1;
        index_scores(device, row);
        const auto range = [&](const std::vector<float>& all) {
          return std::span(all).subspan(r * kKeys, scoring.visible[r]);
        };
        expect_same_bits(range(together), range(alone.scores));
      }
    });
  }
}

TEST(IndexScores, NothingVisibleWritesNothing) {
  Scoring scoring = random_scoring(2, 2, 6, 6);
  scoring.visible = {0, 0};
  for (const float score : run(scoring, nullptr)) EXPECT_TRUE(std::isnan(score));
}

}  // namespace
}  // namespace gannet::ops::test

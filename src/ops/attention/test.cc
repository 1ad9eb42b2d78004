#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/quantize.h"
#include "ops/attention/op.h"
#include "ops/rope/op.h"
#include "ops/testing.h"

namespace gannet::ops::test {
namespace {

using ::testing::Each;

// One sequence's keys: window keys of all positions and global entries, as the values that their records hold.
class Keys {
 public:
  Keys(int64_t head_dim, int64_t window, int64_t positions, int64_t entries)
      : dim_(head_dim), window_(window), positions_(positions), window_keys_(positions), entry_keys_(entries) {
    const int64_t blocks = entries / kBlockRecords + 1;
    for (int64_t b = 0; b < blocks; ++b) block_table_.push_back(static_cast<int32_t>(2 * (blocks - b) - 1));
    for (int64_t t = 0; t < positions; ++t) set_window(t, std::vector<float>(head_dim));
    for (int64_t e = 0; e < entries; ++e) set_entry(e, std::vector<float>(head_dim));
    split(0, 0);
  }

  void set_window(int64_t position, const std::vector<float>& key) { window_keys_.at(position) = key; }
  void set_entry(int64_t entry, const std::vector<float>& key) { entry_keys_.at(entry) = key; }

  // Puts the keys before `chunk_start` into the ring and the others into the chunk, as a pass does that begins there.
  void split(int64_t chunk_start, int64_t window_from) {
    chunk_start_ = chunk_start;
    window_from_ = window_from;
  }

  // Packs all keys; valid until the next change or move.
  AttentionSequence sequence() {
    const int64_t bytes = q8_bytes(dim_);
    ring_.assign(window_ * bytes, kPoisonByte);
    chunk_.assign((positions_ - chunk_start_) * bytes, kPoisonByte);
    for (int64_t t = 0; t < positions_; ++t) {
      std::byte* at = t >= chunk_start_ ? &chunk_[(t - chunk_start_) * bytes] : &ring_[t % window_ * bytes];
      auto* record = reinterpret_cast<uint8_t*>(at);
      q8_pack(window_keys_[t], record, record + dim_);
    }
    const int64_t stride = kBlockRecords * q4nv_bytes(dim_) + 40;
    pool_.assign(2 * std::ssize(block_table_) * stride, kPoisonByte);
    const PagedRecords entries{.base = pool_.data(),
                               .block_table = block_table_.data(),
                               .block_stride = stride,
                               .block_records = kBlockRecords,
                               .record_bytes = q4nv_bytes(dim_)};
    for (int64_t e = 0; e < std::ssize(entry_keys_); ++e) {
      auto* record = reinterpret_cast<uint8_t*>(entries.at(e));
      q4nv_pack(entry_keys_[e], record, record + dim_ / 2);
    }
    return {.ring = ring_.data(),
            .chunk = chunk_.data(),
            .chunk_start = chunk_start_,
            .window_from = window_from_,
            .entries = entries};
  }

  // What a row at `position` sees, in double: window first.
  std::vector<std::vector<double>> visible(int64_t position, const std::vector<int32_t>& selected) const {
    std::vector<std::vector<double>> keys;
    for (int64_t t = std::max(window_from_, position - window_ + 1); t <= position; ++t) {
      keys.push_back(oracle::q8(window_keys_[t]));
    }
    for (const int32_t e : selected) keys.push_back(oracle::q4nv(entry_keys_[e]));
    return keys;
  }

  int64_t dim() const { return dim_; }
  int64_t window() const { return window_; }

 private:
  static constexpr int64_t kBlockRecords = 4;
  static constexpr auto kPoisonByte = std::byte{0xff};  // NaN as a code and as a scale

  int64_t dim_, window_, positions_;
  int64_t chunk_start_ = 0;
  int64_t window_from_ = 0;
  std::vector<std::vector<float>> window_keys_, entry_keys_;
  std::vector<int32_t> block_table_;
  std::vector<std::byte> ring_, chunk_, pool_;
};

struct Row {
  int32_t sequence = 0;
  int32_t position = 0;
  std::vector<float> q;  // [heads, head_dim]
  std::vector<int32_t> selected = {};
};

struct Problem {
  std::vector<Keys> keys;
  std::vector<Row> rows;
  std::vector<float> sink;  // one for each head
  std::vector<float> frequencies = {};
  Activations activations = Activations::fp32;
  bool with_entries = true;
};

// The heads' outputs; by the reference for a null device.
std::vector<float> run(Problem problem, const Device* device = nullptr) {
  std::vector<AttentionSequence> sequences;
  for (Keys& keys : problem.keys) sequences.push_back(keys.sequence());
  const int64_t dim = problem.keys.at(0).dim();
  const auto heads = std::ssize(problem.sink);
  const auto rows = std::ssize(problem.rows);
  size_t stride = 1;
  for (const Row& row : problem.rows) stride = std::max(stride, row.selected.size());
  std::vector<float> q;
  std::vector<int32_t> positions;
  std::vector<int32_t> sequence_of;
  std::vector<int32_t> selected(rows * stride, 1 << 30);  // no entry: reading it would crash
  std::vector<int32_t> counts;
  for (int64_t r = 0; r < rows; ++r) {
    const Row& row = problem.rows[r];
    q.insert(q.end(), row.q.begin(), row.q.end());
    positions.push_back(row.position);
    sequence_of.push_back(row.sequence);
    std::copy(row.selected.begin(), row.selected.end(), selected.begin() + r * stride);
    counts.push_back(static_cast<int32_t>(row.selected.size()));
  }
  auto out = poisoned(rows * heads * dim);
  const AttentionParams params{.q = q.data(),
                               .positions = positions.data(),
                               .sequence_of = sequence_of.data(),
                               .rows = rows,
                               .heads = heads,
                               .head_dim = dim,
                               .window = problem.keys[0].window(),
                               .sequences = sequences.data(),
                               .selected = problem.with_entries ? selected.data() : nullptr,
                               .selected_counts = problem.with_entries ? counts.data() : nullptr,
                               .selected_stride = static_cast<int64_t>(stride),
                               .sink = problem.sink.data(),
                               .frequencies = &problem.frequencies,
                               .out = out.data(),
                               .activations = problem.activations};
  if (device != nullptr) {
    attention(*device, params);
  } else {
    attention_reference(params, 0, rows);
  }
  return out;
}

// spec: model 3.8 in double, without any rounding of activations.
std::vector<double> attention_in_double(const Problem& problem) {
  std::vector<double> result;
  for (const Row& row : problem.rows) {
    const Keys& sequence = problem.keys[row.sequence];
    const auto keys = sequence.visible(row.position, row.selected);
    for (int64_t h = 0; h < std::ssize(problem.sink); ++h) {
      auto q = doubles(std::span(row.q).subspan(h * sequence.dim(), sequence.dim()));
      rotate_in_double(q, row.position, problem.frequencies);
      double total = std::exp(static_cast<double>(problem.sink[h]));
      std::vector<double> out(q.size());
      for (const auto& key : keys) {
        double score = 0;
        for (size_t i = 0; i < q.size(); ++i) score += q[i] * key[i];
        const double weight = std::exp(score / std::sqrt(static_cast<double>(q.size())));
        total += weight;
        for (size_t i = 0; i < q.size(); ++i) out[i] += weight * key[i];
      }
      for (double& value : out) value /= total;
      rotate_in_double(out, row.position, problem.frequencies, -1);
      result.insert(result.end(), out.begin(), out.end());
    }
  }
  return result;
}

std::vector<float> channels(std::vector<float> first, int64_t dim = 32) {
  first.resize(dim);
  return first;
}

// Two sequences, rotated queries, a ring and a chunk, entries.
Problem random_problem(int64_t row_count, uint32_t seed) {
  Random random(seed);
  Problem problem;
  const int64_t dim = 64;
  for (int s = 0; s < 2; ++s) {
    Keys keys(dim, 16, 60, 30);
    for (int64_t t = 0; t < 60; ++t) keys.set_window(t, random.activations(dim));
    for (int64_t e = 0; e < 30; ++e) keys.set_entry(e, random.activations(dim));
    keys.split(s == 0 ? 40 : 45, s == 0 ? 0 : 38);
    problem.keys.push_back(std::move(keys));
  }
  problem.sink = random.normals(3);
  problem.frequencies = rope_frequencies({.theta = 10000, .dim = 32});
  for (int64_t r = 0; r < row_count; ++r) {
    Row row{.sequence = static_cast<int32_t>(r % 2),
            .position = static_cast<int32_t>(random.integer(45, 59)),
            .q = random.activations(3 * dim, 2)};
    for (int32_t e = 0; e < 30; ++e) {
      if (random.integer(0, r % 4) != 0) row.selected.push_back(e);
    }
    problem.rows.push_back(std::move(row));
  }
  return problem;
}

// model 7.6: q (1, 2), rows (1, 0) (0, 1) (-1, 1), scale 2^-1/2, sink .5 give D 2.38696911 and (0, .62550817). Here the
// scale is 32^-1/2, so q is four times as large. A third channel that no score sees is 1 in each key: it comes out as
// 1 - exp(sink - M) / D, which tells D.
TEST(Attention, SinkExampleOfTheSpecification) {
  Keys keys(32, 8, 3, 0);
  keys.set_window(0, channels({1, 0, 1}));
  keys.set_window(1, channels({0, 1, 1}));
  keys.set_window(2, channels({-1, 1, 1}));
  const Problem problem{.keys = {keys}, .rows = {{.position = 2, .q = channels({4, 8})}}, .sink = {.5F}};
  on_each_device([&](const Device& device) {
    const auto out = run(problem, &device);
    EXPECT_NEAR(out[0], 0, 1e-7);
    EXPECT_NEAR(out[1], .62550817F, 1e-7);
    const double denominator = std::exp(.5 - std::numbers::sqrt2) / (1 - static_cast<double>(out[2]));
    EXPECT_NEAR(denominator, 2.38696911, 2e-6);
    EXPECT_THAT(std::span(out).subspan(3), Each(0.0F));
  });
}

// Keys with their position in channel 0; a zero query and no sink weigh them equally, so channel 0 is the mean of the
// positions seen.
Problem probe(int64_t window, int64_t positions, std::vector<int32_t> rows) {
  Keys keys(32, window, positions, 0);
  for (int64_t t = 0; t < positions; ++t) keys.set_window(t, channels({static_cast<float>(t)}));
  Problem problem{.keys = {std::move(keys)}, .rows = {}, .sink = {-kInfinity}};
  for (const int32_t position : rows) problem.rows.push_back({.position = position, .q = channels({})});
  return problem;
}

std::vector<float> means(const Problem& problem, const Device* device = nullptr) {
  const auto out = run(problem, device);
  std::vector<float> result;
  for (size_t r = 0; r < problem.rows.size(); ++r) result.push_back(out[32 * r]);
  return result;
}

TEST(Attention, WindowEndsAtTheRowAndHoldsSoManyPositions) {
  const Problem problem = probe(4, 12, {0, 1, 2, 3, 4, 11});
  on_each_device([&](const Device& device) {
    EXPECT_EQ(means(problem, &device), (std::vector<float>{0, 0.5F, 1, 1.5F, 2.5F, 9.5F}));
  });
}

TEST(Attention, WindowBeginsNoEarlierThanWindowFrom) {
  Problem problem = probe(4, 12, {6, 7, 8, 9, 10});
  problem.keys[0].split(6, 6);
  const std::vector<float> expected{6, 6.5F, 7, 7.5F, 8.5F};
  on_each_device([&](const Device& device) { EXPECT_EQ(means(problem, &device), expected); });
}

TEST(Attention, WindowOfOneSeesTheRowItself) {
  EXPECT_EQ(means(probe(1, 5, {0, 3, 4})), (std::vector<float>{0, 3, 4}));
}

// Chunked equals whole: where a pass begins decides only whether a key lies in the ring or in the chunk.
TEST(Attention, RingAndChunkGiveTheSameBits) {
  Problem problem = random_problem(1, 1);
  problem.rows[0].position = 59;
  problem.keys[0].split(0, 0);
  const auto whole = run(problem);
  for (const int64_t chunk_start : {1, 43, 44, 45, 50, 58, 59}) {
    problem.keys[0].split(chunk_start, 0);
    on_each_device([&](const Device& device) {
      if (device.simd == Simd::none) expect_same_bits(run(problem, &device), whole);
      expect_close(run(problem, &device), doubles(whole), 1e-5, 1e-6);
    });
  }
}

TEST(Attention, SelectedEntriesAreSeenAndOthersAreNot) {
  Keys keys(32, 2, 2, 8);
  for (int64_t e = 0; e < 8; ++e) keys.set_entry(e, channels({e % 2 == 0 ? 6.0F : -3.0F, 6}));
  Problem problem{.keys = {keys}, .rows = {}, .sink = {-kInfinity}};
  for (const auto& selected : std::vector<std::vector<int32_t>>{{}, {0}, {0, 2, 5}, {7}}) {
    problem.rows.push_back({.position = 1, .q = channels({}), .selected = selected});
  }
  on_each_device([&](const Device& device) {  // two window keys of zeros beside them
    expect_close(means(problem, &device), std::vector{0., 6. / 3, 9. / 5, -3. / 3}, 1e-6, 0);
  });
}

TEST(Attention, LayersWithoutEntriesSeeTheWindowAlone) {
  Problem problem = probe(4, 6, {5});
  problem.with_entries = false;
  EXPECT_EQ(means(problem), std::vector<float>{3.5F});
}

// model 3.8: both count.
TEST(Attention, TokenInBothSetsCountsTwice) {
  Keys keys(32, 1, 1, 1);
  keys.set_window(0, channels({6}));
  keys.set_entry(0, channels({6}));
  const Problem problem{.keys = {keys},
                        .rows = {{.position = 0, .q = channels({}), .selected = {0}},
                                 {.position = 0, .q = channels({}), .selected = {0, 0}},
                                 {.position = 0, .q = channels({}), .selected = {}}},
                        .sink = {0}};  // as heavy as one key
  expect_close(means(problem), std::vector{6 * 2. / 3, 6 * 3. / 4, 6 * 1. / 2}, 1e-6, 0);
}

TEST(Attention, InfiniteSinks) {
  Problem problem = probe(4, 6, {5});
  problem.sink = {kInfinity};
  EXPECT_THAT(run(problem), Each(0.0F));
  problem.sink = {-kInfinity};
  EXPECT_EQ(means(problem), std::vector<float>{3.5F});
}

TEST(Attention, EachHeadHasItsSink) {
  Problem problem = probe(1, 3, {2});
  problem.sink = {-kInfinity, 0, std::log(3.0F)};
  problem.rows[0].q.resize(3 * 32);
  const auto out = run(problem);
  expect_close(std::vector{out[0], out[32], out[64]}, std::vector{2., 1., 0.5}, 1e-6, 0);
}

TEST(Attention, RowWithoutAnyKeyGivesZero) {
  for (const float sink : {-kInfinity, 0.0F, kInfinity}) {
    Problem problem = probe(4, 6, {5});
    problem.keys[0].split(0, 6);
    problem.sink = {sink};
    on_each_device([&](const Device& device) { EXPECT_THAT(run(problem, &device), Each(0.0F)); });
  }
}

// A row with one key returns that key, rotated back by the row's position, whatever the query.
TEST(Attention, OutputIsRotatedBackByTheRowsPosition) {
  Random random(2);
  const auto key = random.activations(64);
  const auto frequencies = rope_frequencies({.theta = 10000, .dim = 16});
  for (const int32_t position : {0, 1, 77}) {
    Keys keys(64, 1, 78, 0);
    keys.set_window(position, key);
    const Problem problem{.keys = {keys},
                          .rows = {{.position = position, .q = random.activations(64)}},
                          .sink = {-kInfinity},
                          .frequencies = frequencies};
    auto expected = oracle::q8(key);
    rotate_in_double(expected, position, frequencies, -1);
    on_each_device([&](const Device& device) { expect_close(run(problem, &device), expected, 1e-6, 1e-6); });
  }
}

TEST(Attention, MatchesTheFormulasInDouble) {
  const Problem problem = random_problem(8, 3);
  const auto expected = attention_in_double(problem);
  on_each_device([&](const Device& device) { expect_close(run(problem, &device), expected, 1e-4, 1e-5); });
}

// The rotated query is 308 cos 1 = 166.41; rounded, it is 166 and the two keys score alike.
TEST(Attention, RotatedQueryIsRounded) {
  Keys keys(32, 2, 2, 0);
  auto key = channels({1, 1});
  key[30] = 1;
  keys.set_window(0, key);
  auto q = channels({0, -166});
  q[30] = 308;
  Problem problem{.keys = {keys},
                  .rows = {{.position = 1, .q = q}},
                  .sink = {-kInfinity},
                  .frequencies = {1},
                  .activations = Activations::bf16};
  on_each_device([&](const Device& device) { EXPECT_EQ(run(problem, &device)[0], 0.5F); });
  problem.activations = Activations::fp32;
  EXPECT_GT(run(problem)[0], 0.51F);
}

TEST(Attention, Bf16ModeRoundsQueriesAndOutputs) {
  Problem problem = random_problem(8, 4);
  problem.activations = Activations::bf16;
  const auto expected = attention_in_double(problem);
  on_each_device([&](const Device& device) {
    const auto out = run(problem, &device);
    expect_bf16_values(out);
    expect_close(out, expected, 2 * kBf16Step, 0.02);
  });
}

TEST(Attention, DevicesAgreeForAnyNumberOfRows) {
  for (const int64_t rows : {0, 1, 2, 9}) {
    for (const Activations activations : {Activations::bf16, Activations::fp32}) {
      Problem problem = random_problem(rows, 5);
      problem.activations = activations;
      expect_devices_agree([&](const Device* device) { return run(problem, device); }, 2 * kBf16Step, 2e-3);
    }
  }
}

// A row's bits must not depend on its place or on its neighbours.
TEST(Attention, RowsDoNotDependOnTheirNeighbours) {
  Problem together = random_problem(7, 6);
  for (const Activations activations : {Activations::bf16, Activations::fp32}) {
    together.activations = activations;
    on_each_device([&](const Device& device) {
      const auto all = run(together, &device);
      for (size_t r = 0; r < together.rows.size(); ++r) {
        Problem alone = together;
        alone.rows = {together.rows[r]};
        expect_same_bits(run(alone, &device), std::span(all).subspan(r * 192, 192));
      }
    });
  }
}

// NaN and scales near the ends of the range: a row that sees them gives what the vectors give, other rows do not
// notice.
TEST(Attention, KeysThatMatrixUnitsMayNotHave) {
  for (const float value : {std::numeric_limits<float>::quiet_NaN(), 1e-36F, 1e36F}) {
    for (const bool in_window : {true, false}) {
      Problem problem = random_problem(8, 11);
      problem.activations = Activations::bf16;
      const Problem before = problem;
      std::vector<float> key(64, 0.25F);
      key[5] = value;
      if (in_window) {
        problem.keys[0].set_window(44, key);
      } else {
        problem.keys[0].set_entry(3, key);
      }
      const auto reference = run(problem);
      const auto untouched = run(before);
      on_each_device([&](const Device& device) {
        const auto out = run(problem, &device);
        const auto out_before = run(before, &device);
        for (size_t i = 0; i < out.size(); ++i) {
          const bool sees = std::isnan(reference[i]) || reference[i] != untouched[i];
          if (std::isnan(reference[i])) {
            ASSERT_TRUE(std::isnan(out[i])) << i;
          } else if (!sees && problem.rows[i / 192].sequence == 1) {
            ASSERT_EQ(out[i], out_before[i]) << i;
          } else if (std::isfinite(reference[i])) {
            ASSERT_NEAR(out[i], reference[i], 2e-2 * std::fabs(reference[i]) + 2e-2) << i;
          }
        }
      });
    }
  }
}

// A layer's real width, several blocks of heads and of keys.
Problem wide_problem(int64_t row_count, uint32_t seed) {
  Random random(seed);
  Problem problem;
  const int64_t dim = 512;
  const int64_t heads = 9;
  Keys keys(dim, 128, 200, 70);
  for (int64_t t = 0; t < 200; ++t) keys.set_window(t, random.activations(dim));
  for (int64_t e = 0; e < 70; ++e) keys.set_entry(e, random.activations(dim));
  keys.split(150, 0);
  problem.keys.push_back(std::move(keys));
  problem.sink = random.normals(heads);
  problem.frequencies = rope_frequencies({.theta = 10000, .dim = 64});
  for (int64_t r = 0; r < row_count; ++r) {
    Row row{.position = static_cast<int32_t>(199 - r), .q = random.activations(heads * dim)};
    for (int32_t e = 0; e < 70 - r; ++e) row.selected.push_back(e);
    problem.rows.push_back(std::move(row));
  }
  return problem;
}

TEST(Attention, WideLayersMatchTheFormulasInDouble) {
  Problem problem = wide_problem(1, 8);
  const auto expected = attention_in_double(problem);
  on_each_device([&](const Device& device) { expect_close(run(problem, &device), expected, 1e-4, 1e-5); });
  problem.activations = Activations::bf16;
  const auto rounded = run(problem);
  on_each_device([&](const Device& device) { expect_close(run(problem, &device), doubles(rounded), kBf16Step, 1e-5); });
}

// Without rotation, queries and keys with few bits, weights that are not: the outputs' rounding alone is left, which
// the weights' upper eight bits would not survive.
TEST(Attention, WeightsKeepAllTheirBits) {
  Problem problem = wide_problem(2, 12);
  problem.frequencies.clear();
  const auto expected = attention_in_double(problem);
  problem.activations = Activations::bf16;
  on_each_device([&](const Device& device) {
    const auto out = run(problem, &device);
    for (size_t i = 0; i < out.size(); ++i) {
      const double half_step = std::ldexp(1.0, std::ilogb(expected[i]) - 8);
      ASSERT_NEAR(out[i], expected[i], 1.02 * half_step + 1e-6) << i;
    }
  });
}

// Rows in a run of positions share decoded keys; the run crosses from the ring into the chunk.
TEST(Attention, RowsOfAPromptGiveTheBitsTheyHaveAlone) {
  Problem together = wide_problem(70, 10);
  std::reverse(together.rows.begin(), together.rows.end());
  const int64_t width = 9 * 512;
  for (const Activations activations : {Activations::bf16, Activations::fp32}) {
    together.activations = activations;
    on_each_device([&](const Device& device) {
      if (device.simd == Simd::none) return;  // row by row anyway, and slow
      const auto all = run(together, &device);
      for (const size_t r : {0, 1, 15, 16, 17, 40, 69}) {
        SCOPED_TRACE("row " + std::to_string(r));
        Problem alone = together;
        alone.rows = {together.rows[r]};
        expect_same_bits(run(alone, &device), std::span(all).subspan(r * width, width));
      }
    });
  }
}

TEST(Attention, ThreadsDoNotMatter) {
  Problem problem = wide_problem(3, 9);
  problem.activations = Activations::bf16;
  for (const Simd simd : usable_simd()) {
    SCOPED_TRACE(name_of(simd));
    ThreadPool one(1);
    const Device device{.pool = &one, .simd = simd};
    const auto expected = run(problem, &device);
    for (const int threads : {2, 5}) {
      ThreadPool pool(threads, false);
      const Device other{.pool = &pool, .simd = simd};
      expect_same_bits(run(problem, &other), expected);
    }
  }
}

TEST(Attention, LargeScoresStayFinite) {
  Problem problem = random_problem(4, 7);
  for (Row& row : problem.rows) {
    for (float& value : row.q) value *= 1e4F;
  }
  on_each_device([&](const Device& device) {
    for (const float value : run(problem, &device)) ASSERT_TRUE(std::isfinite(value));
  });
}

// All scores far below zero: the largest of them, not zero, is what the exponents start from.
TEST(Attention, VeryNegativeScoresStillSumToOne) {
  Keys keys(32, 4, 4, 0);
  for (int64_t t = 0; t < 4; ++t) keys.set_window(t, channels({1, static_cast<float>(t)}));
  const Problem problem{.keys = {keys}, .rows = {{.position = 3, .q = channels({-3000})}}, .sink = {-kInfinity}};
  on_each_device([&](const Device& device) {
    const auto out = run(problem, &device);
    EXPECT_FLOAT_EQ(out[0], 1);
    EXPECT_FLOAT_EQ(out[1], 1.5F);
  });
}

}  // namespace
}  // namespace gannet::ops::test

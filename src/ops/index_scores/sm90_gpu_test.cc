#include "ops/index_scores/sm90.h"

#include <numeric>

#include "ops/cuda/testing.h"
#include "ops/index_candidates/op.h"
#include "ops/index_scores/op.h"
#include "ops/index_scores/sm90_kernels.h"
#include "ops/rope/op.h"
#include "ops/top_k/op.h"

namespace gannet::ops::cuda::test {
namespace {

using ops::test::Random;

constexpr int64_t kDim = 128;
constexpr int64_t kKeyBytes = 68;

struct Span {
  int64_t start, rows;
};

struct Shape {
  int64_t heads = 32, k = 512, ratio = 2, block_size = 8, max_blocks = 2048, block_records = 32;
  bool make_candidates = false, use_candidates = false;
};

// Rows of some sequences with their keys, on host and device.
struct Selection {
  Shape shape;
  int64_t rows = 0, most = 0, table_stride = 0, block_stride = 0, score_stride = 0;
  std::vector<float> q, weights, frequencies;
  std::vector<int32_t> positions, sequence_of, visible, tables, candidates, candidate_counts;
  std::vector<Sequence> sequences;
  std::vector<std::byte> pool;

  Selection(const Shape& s, const std::vector<Span>& spans, int64_t most_rows, uint32_t seed) : shape(s) {
    Random random(seed);
    int64_t blocks = 0;
    for (const Span& span : spans) {
      sequences.push_back({.slot = static_cast<int32_t>(spans.size() - sequences.size()),
                           .first_row = static_cast<int32_t>(rows),
                           .rows = static_cast<int32_t>(span.rows),
                           .start = static_cast<int32_t>(span.start)});
      const int64_t entries = (span.start + span.rows) / s.ratio;
      score_stride = std::max(score_stride, entries);
      table_stride = std::max(table_stride, entries / s.block_records + 1);
      for (int64_t i = 0; i < span.rows; ++i) {
        positions.push_back(static_cast<int32_t>(span.start + i));
        sequence_of.push_back(static_cast<int32_t>(sequences.size() - 1));
        visible.push_back(static_cast<int32_t>((span.start + i + 1) / s.ratio));
      }
      rows += span.rows;
      blocks += entries / s.block_records + 1;
    }
    most = std::max(most_rows, rows);
    block_stride = s.block_records * kKeyBytes + 36;
    pool.resize(blocks * block_stride);
    std::vector<int32_t> order(blocks);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(seed));
    tables.assign((spans.size() + 1) * table_stride, -1);
    for (size_t i = 0, next = 0; i < spans.size(); ++i) {
      const int64_t used = (spans[i].start + spans[i].rows) / s.ratio / s.block_records + 1;
      for (int64_t b = 0; b < used; ++b) tables[sequences[i].slot * table_stride + b] = order[next++];
    }
    q.resize(rows * s.heads * kDim);
    std::mt19937 values(seed + 2);
    for (float& v : q) v = static_cast<float>(static_cast<int32_t>(values())) * 0x1p-30F;
    weights = random.normals(rows * s.heads);
    frequencies = rope_frequencies({.theta = 160000, .dim = 64});
    std::mt19937 bytes(seed + 1);
    for (size_t i = 0; i < sequences.size(); ++i) {
      for (int64_t e = 0; e < (spans[i].start + spans[i].rows) / s.ratio; ++e) {
        std::byte* key = key_at(static_cast<int64_t>(i), e);
        for (int64_t w = 0; w < 16; ++w) {
          const auto word = static_cast<uint32_t>(bytes());
          std::memcpy(key + 4 * w, &word, 4);
        }
        for (int64_t g = 0; g < 4; ++g) key[64 + g] = static_cast<std::byte>(124 + bytes() % 4);
      }
    }
    if (!s.use_candidates) return;
    candidates.resize(rows * limit(), -1);
    for (int64_t r = 0; r < rows; ++r) {
      int32_t n = 0;
      const double share = std::min(1.0, 1.2 * static_cast<double>(limit()) / std::max(1, visible[r]));
      for (int32_t e = 0; e < visible[r] && n < limit(); ++e) {
        if (static_cast<double>(random.uniform(0, 1)) < share) candidates[r * limit() + n++] = e;
      }
      candidate_counts.push_back(n);
    }
  }

  int64_t limit() const { return shape.max_blocks * shape.block_size; }
  PagedRecords records(int64_t sequence) const {
    return {.base = const_cast<std::byte*>(pool.data()),
            .block_table = tables.data() + sequences[sequence].slot * table_stride,
            .block_stride = block_stride,
            .block_records = shape.block_records,
            .record_bytes = kKeyBytes};
  }
  std::byte* key_at(int64_t sequence, int64_t entry) const { return records(sequence).at(entry); }
  const std::vector<int32_t>& counts() const { return shape.use_candidates ? candidate_counts : visible; }
  int64_t stride() const { return shape.use_candidates ? limit() : std::max<int64_t>(score_stride, 1); }
  float weight_scale() const { return 1.0F / (std::sqrt(128.0F) * std::sqrt(static_cast<float>(shape.heads))); }

  // Values whose sums are exact: queries of few bits, no rotation, weights that are 1, 2 or their opposites.
  void make_exact(uint32_t seed, int patterns) {
    Random random(seed);
    const float values[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
    for (float& v : q) v = values[random.integer(0, 7)] * (random.integer(0, 1) == 0 ? 1.0F : -1.0F);
    std::fill(frequencies.begin(), frequencies.end(), 0.0F);
    float one = 1 / weight_scale();
    while (one * weight_scale() < 1) one = std::nextafter(one, 1e9F);
    while (one * weight_scale() > 1) one = std::nextafter(one, 0.0F);
    ASSERT_EQ(one * weight_scale(), 1.0F);
    for (float& w : weights)
      w = one * static_cast<float>(1 << random.integer(0, 1)) * (random.integer(0, 3) == 0 ? -1.0F : 1.0F);
    std::vector<std::array<std::byte, kKeyBytes>> keys(patterns);
    for (auto& key : keys) {
      for (auto& b : key) b = static_cast<std::byte>(random.integer(0, 255));
      for (int g = 0; g < 4; ++g) key[64 + g] = static_cast<std::byte>(127);
    }
    for (size_t i = 0; i < sequences.size(); ++i) {
      for (int64_t e = 0; e < (sequences[i].start + sequences[i].rows) / shape.ratio; ++e) {
        std::memcpy(key_at(static_cast<int64_t>(i), e), keys[random.integer(0, patterns - 1)].data(), kKeyBytes);
      }
    }
  }
};

struct Result {
  std::vector<int32_t> selected, selected_counts, candidates, candidate_counts;
  std::vector<float> scores;
};
bool same(const Result& a, const Result& b) {
  return same_bits(a.selected, b.selected) && same_bits(a.selected_counts, b.selected_counts) &&
         same_bits(a.candidates, b.candidates) && same_bits(a.candidate_counts, b.candidate_counts) &&
         same_bits(a.scores, b.scores);
}

template <class T>
std::vector<T> padded(std::vector<T> values, int64_t size) {
  values.resize(std::max<int64_t>(size, 1));
  return values;
}

// Inputs and outputs on the device.
struct OnDevice {
  const Selection& s;
  Array<float> q, weights, frequencies, scores;
  Array<int32_t> positions, sequence_of, count, sequence_count, tables, candidates, candidate_counts, selected,
      selected_counts;
  Array<Sequence> sequences;
  Array<std::byte> pool, scratch;

  explicit OnDevice(const Selection& selection)
      : s(selection),
        q(padded(s.q, s.most * s.shape.heads * kDim)),
        weights(padded(s.weights, s.most * s.shape.heads)),
        frequencies(s.frequencies),
        scores(s.most * s.stride()),
        positions(padded(s.positions, s.most)),
        sequence_of(padded(s.sequence_of, s.most)),
        count(std::vector<int32_t>{static_cast<int32_t>(s.rows)}),
        sequence_count(std::vector<int32_t>{static_cast<int32_t>(s.sequences.size())}),
        tables(s.tables),
        candidates(s.most * s.limit()),
        candidate_counts(s.most),
        selected(s.most * (s.shape.k + 3)),
        selected_counts(s.most),
        sequences(s.sequences),
        pool(s.pool),
        scratch(index_select_scratch(s.most, s.shape.k, s.shape.max_blocks)) {
    if (s.shape.use_candidates) {
      candidates.set(s.candidates);
      candidate_counts.set(s.candidate_counts);
    }
  }

  IndexSelectParams params() const {
    return {.q = q.get(),
            .weights = weights.get(),
            .rows = {.count = count.get(),
                     .most = s.most,
                     .positions = positions.get(),
                     .sequence_of = sequence_of.get(),
                     .sequences = sequences.get(),
                     .sequence_count = sequence_count.get(),
                     .most_sequences = std::ssize(s.sequences)},
            .heads = s.shape.heads,
            .ratio = s.shape.ratio,
            .frequencies = frequencies.get(),
            .keys = {.base = pool.get(),
                     .block_tables = tables.get(),
                     .table_stride = s.table_stride,
                     .block_stride = s.block_stride,
                     .block_records = s.shape.block_records,
                     .record_bytes = kKeyBytes},
            .k = s.shape.k,
            .make_candidates = s.shape.make_candidates,
            .use_candidates = s.shape.use_candidates,
            .block_size = s.shape.block_size,
            .max_blocks = s.shape.max_blocks,
            .candidates = candidates.get(),
            .candidate_counts = candidate_counts.get(),
            .scratch = scratch.get(),
            .selected = selected.get(),
            .selected_stride = s.shape.k + 3,
            .selected_counts = selected_counts.get()};
  }
  Result run() const {
    index_select_with_scores(nullptr, params(), scores.get(), s.stride());
    EXPECT_TRUE(selected.guard_intact() && selected_counts.guard_intact() && scratch.guard_intact());
    EXPECT_TRUE(candidates.guard_intact() && candidate_counts.guard_intact() && scores.guard_intact());
    return {.selected = selected.host(),
            .selected_counts = selected_counts.host(),
            .candidates = candidates.host(),
            .candidate_counts = candidate_counts.host(),
            .scores = scores.host()};
  }
};

std::vector<float> reference_scores(const Selection& s) {
  auto q = s.q;
  auto weights = s.weights;
  for (float& w : weights) w *= s.weight_scale();
  std::vector<PagedRecords> keys;
  for (const int32_t sequence : s.sequence_of) keys.push_back(s.records(sequence));
  std::vector<float> scores(s.rows * s.stride());
  ThreadPool threads(16, false);
  const IndexScoresParams params{.q = q.data(),
                                 .weights = weights.data(),
                                 .positions = s.positions.data(),
                                 .rows = s.rows,
                                 .heads = s.shape.heads,
                                 .dim = kDim,
                                 .frequencies = &s.frequencies,
                                 .keys = keys.data(),
                                 .visible = s.counts().data(),
                                 .entries = s.shape.use_candidates ? s.candidates.data() : nullptr,
                                 .scores = scores.data(),
                                 .stride = s.stride()};
  threads.parallel_for(s.rows, 1, [&](int64_t b, int64_t e) { index_scores_reference(params, b, e); });
  return scores;
}

// What is to be selected by these scores.
Result expected(const Selection& s, const std::vector<float>& scores) {
  Result result{.selected = std::vector<int32_t>(s.most * (s.shape.k + 3), -1),
                .selected_counts = std::vector<int32_t>(s.most, -1),
                .candidates = std::vector<int32_t>(s.most * s.limit(), -1),
                .candidate_counts = std::vector<int32_t>(s.most, -1),
                .scores = scores};
  top_k_reference({.scores = scores.data(),
                   .stride = s.stride(),
                   .counts = s.counts().data(),
                   .entries = s.shape.use_candidates ? s.candidates.data() : nullptr,
                   .rows = s.rows,
                   .k = s.shape.k,
                   .selected = result.selected.data(),
                   .selected_stride = s.shape.k + 3,
                   .selected_counts = result.selected_counts.data()},
                  0, s.rows);
  if (s.shape.make_candidates) {
    index_candidates_reference({.scores = scores.data(),
                                .score_stride = s.stride(),
                                .visible = s.visible.data(),
                                .rows = s.rows,
                                .block_size = s.shape.block_size,
                                .max_blocks = s.shape.max_blocks,
                                .entries = result.candidates.data(),
                                .entry_stride = s.limit(),
                                .counts = result.candidate_counts.data()},
                               0, s.rows);
  } else if (s.shape.use_candidates) {
    std::copy(s.candidates.begin(), s.candidates.end(), result.candidates.begin());
    std::copy(s.candidate_counts.begin(), s.candidate_counts.end(), result.candidate_counts.begin());
  }
  return result;
}

// The device's scores are near the reference's (equal when `exact`), and what it selects is right by its own scores.
void expect_right(const Selection& s, bool exact = false) {
  const auto reference = reference_scores(s);
  const OnDevice device(s);
  const Result result = device.run();
  std::vector<float> scores = reference;  // those that the device does not write need not be right
  for (int64_t r = 0; r < s.rows; ++r) {
    double square = 0;
    for (int64_t j = 0; j < s.counts()[r]; ++j) square += std::pow(double{reference[r * s.stride() + j]}, 2);
    const double size = std::sqrt(square / std::max(1, s.counts()[r]));
    for (int64_t j = 0; j < s.counts()[r]; ++j) {
      const float score = result.scores[r * s.stride() + j], wanted = reference[r * s.stride() + j];
      const bool scored = s.counts()[r] > s.shape.k;
      ASSERT_TRUE(!scored || !std::isnan(score)) << "row " << r << ", " << j;
      if (std::isnan(score)) continue;
      if (exact) {
        ASSERT_EQ(score, wanted) << "row " << r << ", " << j;
      } else {
        ASSERT_NEAR(score, wanted, 1e-5 * size + 1e-6 * std::fabs(wanted)) << "row " << r << ", " << j;
      }
      scores[r * s.stride() + j] = score;
    }
  }
  const Result wanted = expected(s, scores);
  ASSERT_EQ(result.selected_counts, wanted.selected_counts);
  ASSERT_EQ(result.candidate_counts, wanted.candidate_counts);
  for (int64_t r = 0; r < s.most; ++r) {
    for (int64_t i = 0; i < s.shape.k + 3; ++i) {
      const int64_t at = r * (s.shape.k + 3) + i;
      ASSERT_EQ(result.selected[at], wanted.selected[at]) << "row " << r << ", " << i;
    }
    for (int64_t i = 0; i < s.limit(); ++i) {
      ASSERT_EQ(result.candidates[r * s.limit() + i], wanted.candidates[r * s.limit() + i]) << "row " << r << ", " << i;
    }
  }
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(same(device.run(), result));
}

const Shape kReleased{};
const Shape kNano{.heads = 4, .k = 64, .max_blocks = 64};
const Shape kHeads{.heads = 8, .k = 64, .ratio = 1, .max_blocks = 20, .block_records = 24};
const Shape kMany{.heads = 64, .k = 100};

Shape making(Shape shape) {
  shape.make_candidates = true;
  shape.ratio = 1;
  return shape;
}
Shape using_candidates(Shape shape) {
  shape.use_candidates = true;
  shape.ratio = 1;
  return shape;
}

TEST(IndexSelectSm90, NoRows) {
  expect_right(Selection(kReleased, {}, 0, 1));
  expect_right(Selection(kReleased, {}, 3, 1));
}

TEST(IndexSelectSm90, OneRow) {
  for (const int64_t position : {0, 1, 2, 1022, 1023, 1024, 1025, 3000, 20001}) {
    SCOPED_TRACE(position);
    expect_right(Selection(kReleased, {{position, 1}}, 1, 2));
  }
}

TEST(IndexSelectSm90, RowsOfDifferentSequences) {
  expect_right(Selection(kReleased, {{0, 1}, {5000, 1}, {900, 1}, {1, 1}, {2222, 1}}, 8, 3));
  expect_right(Selection(kNano, {{0, 1}, {5000, 1}, {900, 1}, {77, 1}, {2222, 1}}, 5, 4));
  expect_right(Selection(kHeads, {{3000, 1}, {63, 1}, {64, 1}, {65, 1}, {1, 1}}, 6, 5));
  expect_right(Selection(kMany, {{3000, 1}, {400, 1}}, 2, 6));
}

TEST(IndexSelectSm90, RowsOfOneSequence) {
  expect_right(Selection(kReleased, {{1010, 37}}, 40, 7));
  expect_right(Selection(kReleased, {{6000, 16}}, 150, 8));
  for (const int64_t rows : {24, 37}) {
    expect_right(Selection(kReleased, {{3000, rows}}, rows, 46));
    expect_right(Selection(making(kNano), {{3000, rows}}, rows, 47));
  }
  expect_right(Selection(kNano, {{0, 300}}, 300, 9));
  expect_right(Selection(kHeads, {{40, 100}}, 128, 10));
  expect_right(Selection(kMany, {{500, 21}}, 21, 11));
}

TEST(IndexSelectSm90, MixedRows) {
  expect_right(Selection(kReleased, {{2000, 3}, {1030, 1}, {0, 1}, {1500, 20}, {700, 1}}, 32, 12));
  expect_right(Selection(kNano, {{100, 200}, {1030, 1}, {0, 1}, {1500, 20}, {700, 1}, {3000, 60}}, 283, 13));
  expect_right(Selection(kNano, {{100, 200}, {1030, 1}, {0, 1}, {1500, 20}, {700, 1}, {3000, 60}}, 1200, 13));
}

TEST(IndexSelectSm90, MakesCandidates) {
  for (const int64_t position : {0, 500, 511, 512, 513, 3000, 9999}) {
    SCOPED_TRACE(position);
    expect_right(Selection(making(kNano), {{position, 1}}, 1, 14));
  }
  expect_right(Selection(making(kNano), {{0, 1}, {3000, 1}, {520, 1}}, 70, 15));
  expect_right(Selection(making(kNano), {{500, 40}, {3000, 3}, {10, 1}}, 44, 16));
  expect_right(Selection(making(kHeads), {{100, 90}, {800, 1}}, 91, 17));
  expect_right(Selection(making(kMany), {{18000, 1}}, 1, 18));
  expect_right(Selection(making(kReleased), {{19000, 1}}, 1, 19));
  expect_right(Selection(making(kReleased), {{16380, 20}}, 20, 20));
}

TEST(IndexSelectSm90, OtherBlockSizes) {
  for (const int64_t size : {1, 4, 32}) {
    Shape shape = making(kHeads);
    shape.block_size = size;
    expect_right(Selection(shape, {{1500, 1}, {600, 1}}, 2, 21));
    expect_right(Selection(shape, {{640, 33}}, 33, 22));
  }
}

TEST(IndexSelectSm90, UsesCandidates) {
  expect_right(Selection(using_candidates(kNano), {{3000, 1}}, 1, 23));
  expect_right(Selection(using_candidates(kNano), {{0, 1}, {3000, 1}, {63, 1}, {64, 1}, {400, 40}}, 60, 24));
  expect_right(Selection(using_candidates(kReleased), {{30000, 1}, {700, 2}}, 3, 25));
}

TEST(IndexSelectSm90, TiesGoToTheLowestEntries) {
  for (const int patterns : {1, 2, 40, 3000}) {
    SCOPED_TRACE(patterns);
    for (const int64_t most : {1, 16, 140}) {
      Shape shape = kReleased;
      shape.ratio = 1;
      for (const int64_t position : {12000, 40000}) {
        Selection plain(shape, {{position, 1}}, most, 26);
        plain.make_exact(27, patterns);
        expect_right(plain, true);
      }
      Selection segments(making(kNano), {{33000, 2}}, most, 26);
      segments.make_exact(27, patterns);
      expect_right(segments, true);
      Selection tile(making(kNano), {{2000, 11}, {900, 1}}, most, 28);
      tile.make_exact(29, patterns);
      expect_right(tile, true);
      Selection used(using_candidates(kHeads), {{2000, 3}}, most, 30);
      used.make_exact(31, patterns);
      expect_right(used, true);
    }
  }
}

// Scores that rise, so that each key is better than all before, or fall.
void expect_right_on_slope(bool rising, int64_t entries, int64_t most) {
  Selection s(making(kNano), {{entries - 1, 1}}, most, 32);
  s.make_exact(33, 1);
  for (float& w : s.weights) w = std::fabs(w);
  for (float& v : s.q) v = std::fabs(v);
  for (int64_t e = 0; e < entries; ++e) {
    std::byte* key = s.key_at(0, e);
    const int64_t level = (rising ? e : entries - 1 - e) * 128 * 7 / entries;  // of all nibbles together
    const auto nibble = [&](int64_t channel) {
      return std::clamp<int64_t>(level / 128 + (channel < level % 128 ? 1 : 0), 0, 7);
    };
    for (int64_t c = 0; c < 64; ++c) key[c] = static_cast<std::byte>(nibble(2 * c) | nibble(2 * c + 1) << 4);
  }
  expect_right(s, true);
}
TEST(IndexSelectSm90, RisingAndFallingScores) {
  for (const bool rising : {false, true}) {
    for (const int64_t entries : {6000, 30000}) {
      for (const int64_t most : {1, 16, 1100}) expect_right_on_slope(rising, entries, most);
    }
  }
}

// Beyond what is kept as single scores.
TEST(IndexSelectSm90, LongContexts) {
  for (const int64_t position : {16382, 16383, 16384, 70000}) {
    SCOPED_TRACE(position);
    for (const int64_t most : {1, 20, 140}) expect_right(Selection(making(kNano), {{position, 1}}, most, 41));
  }
  expect_right(Selection(kNano, {{40000, 1}, {33000, 1}, {500, 1}}, 9, 42));
  expect_right(Selection(making(kHeads), {{16370, 21}, {9000, 1}}, 22, 43));
  expect_right(Selection(making(kNano), {{16370, 21}, {30000, 9}, {17000, 1}}, 1100, 44));
  expect_right(Selection(kMany, {{35000, 9}}, 60, 45));
}

TEST(IndexSelectSm90, WideRanges) {
  Selection s(kReleased, {{4000, 1}, {3000, 20}}, 21, 34);
  Random random(35);
  for (float& v : s.q) v *= std::exp2(static_cast<float>(random.integer(-12, 12)));
  for (float& w : s.weights) w *= std::exp2(static_cast<float>(random.integer(-12, 12)));
  for (size_t i = 0; i < s.sequences.size(); ++i) {
    for (int64_t e = 0; e < (s.sequences[i].start + s.sequences[i].rows) / 2; ++e) {
      for (int64_t g = 0; g < 4; ++g) {
        s.key_at(static_cast<int64_t>(i), e)[64 + g] = static_cast<std::byte>(random.integer(107, 147));
      }
    }
  }
  expect_right(s);
}

TEST(IndexSelectSm90, MoreThanHalfAMillionEntries) {
  expect_right(Selection(making(kNano), {{600000, 1}}, 1, 36));
}

TEST(IndexSelectSm90, RepeatsBitForBit) {
  for (const Shape& shape : {making(kNano), kReleased}) {
    const Selection s(shape, {{3000, 20}, {2500, 1}, {700, 1}}, 24, 37);
    const OnDevice device(s);
    const Result first = device.run();
    for (int i = 0; i < 30; ++i) EXPECT_TRUE(same(device.run(), first));
  }
}

TEST(IndexSelectSm90, RowsDoNotDependOnTheirNeighbours) {
  const Selection s(making(kNano), {{3000, 20}, {2500, 1}}, 24, 38);
  const Result all = OnDevice(s).run();
  for (const int64_t r : {0, 7, 13, 20}) {
    Selection alone = s;
    alone.rows = 1;
    alone.positions = {s.positions[r]};
    alone.visible = {s.visible[r]};
    alone.sequence_of = {s.sequence_of[r]};
    alone.q.assign(s.q.begin() + r * 4 * kDim, s.q.begin() + (r + 1) * 4 * kDim);
    alone.weights.assign(s.weights.begin() + r * 4, s.weights.begin() + (r + 1) * 4);
    const Result one = OnDevice(alone).run();
    EXPECT_EQ(one.selected_counts[0], all.selected_counts[r]);
    EXPECT_EQ(one.candidate_counts[0], all.candidate_counts[r]);
    EXPECT_EQ(std::memcmp(&one.selected[0], &all.selected[r * 67], 64 * 4), 0);
    EXPECT_EQ(std::memcmp(&one.candidates[0], &all.candidates[r * s.limit()], 64 * 8 * 4), 0);
    EXPECT_EQ(std::memcmp(&one.scores[0], &all.scores[r * s.stride()], s.visible[r] * 4), 0);
  }
}

// The keys come from other places of memory each time, so that they do not come out of the cache.
void time_selection(const std::string& what, const Shape& shape, const std::vector<Span>& spans, int64_t most,
                    double bytes, double operations) {
  const Selection s(shape, spans, most, 40);
  const OnDevice device(s);
  const int64_t copies = std::clamp<int64_t>((int64_t{200} << 20) / device.pool.bytes(), 1, 20);
  const Array<std::byte> pools(copies * device.pool.bytes());
  for (int64_t i = 0; i < copies; ++i) {
    GANNET_CUDA_CHECK(cudaMemcpy(pools.get() + i * device.pool.bytes(), device.pool.get(), device.pool.bytes(),
                                 cudaMemcpyDeviceToDevice));
  }
  const double us = time_launch([&](cudaStream_t stream, int i) {
    auto params = device.params();
    params.keys.base = pools.get() + i % copies * device.pool.bytes();
    index_select(stream, params);
  });
  report(what.c_str(), us, bytes, operations);
}

double pairs(const std::vector<Span>& spans, int64_t ratio) {
  double sum = 0;
  for (const Span& span : spans) {
    for (int64_t i = 0; i < span.rows; ++i) sum += static_cast<double>((span.start + i + 1) / ratio);
  }
  return sum;
}

TEST(Benchmark, IndexSelect) {
  Shape dense = kReleased;
  for (const int64_t entries : {512, 1024, 4096, 16384, 131072, 524288}) {
    const std::vector<Span> spans{{2 * entries - 1, 1}};
    time_selection("1 row, " + std::to_string(entries) + " entries", dense, spans, 1, pairs(spans, 2) * 68, 0);
  }
  for (const int64_t entries : {4096, 16384, 131072, 1048576}) {
    const std::vector<Span> spans{{entries - 1, 1}};
    time_selection("1 row, makes candidates of " + std::to_string(entries), making(dense), spans, 1,
                   pairs(spans, 1) * 68, 0);
  }
  time_selection("1 row, 16384 candidates", using_candidates(dense), {{100000, 1}}, 1, 16384 * 68, 0);
  for (const int64_t entries : {1024, 4096}) {
    const std::vector<Span> spans{{2 * entries - 1, 1}};
    time_selection("1 row where 140 might be, " + std::to_string(entries) + " entries", dense, spans, 140,
                   pairs(spans, 2) * 68, 0);
  }
  for (const int64_t rows : {8, 64, 256}) {
    const std::vector<Span> spans(rows, {2 * 16384 - 1, 1});
    time_selection(std::to_string(rows) + " rows, 16384 entries each", dense, spans, rows, pairs(spans, 2) * 68,
                   pairs(spans, 2) * 8192);
    const std::vector<Span> wide(rows, {30000, 1});
    time_selection(std::to_string(rows) + " rows, 16384 candidates each", using_candidates(dense), wide, rows,
                   static_cast<double>(rows) * 16384 * 68, static_cast<double>(rows) * 16384 * 8192);
  }
  for (const auto& [start, rows] :
       {std::pair<int64_t, int64_t>{8192 - 128, 128}, {0, 1024}, {0, 8192}, {8192, 8192}, {24576, 8192}}) {
    const std::vector<Span> spans{{start, rows}};
    time_selection((std::to_string(rows) + " rows of one sequence, from " + std::to_string(start)), dense, spans, rows,
                   0, pairs(spans, 2) * 8192);
  }
  const std::vector<Span> last{{32768 - 128, 128}};
  time_selection("128 rows of one sequence make candidates", making(dense), last, 128, 0, pairs(last, 1) * 8192);
}

}  // namespace
}  // namespace gannet::ops::cuda::test

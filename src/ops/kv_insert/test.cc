#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/quantize.h"
#include "ops/kv_insert/op.h"
#include "ops/rope/op.h"
#include "ops/testing.h"

namespace gannet::ops::test {
namespace {

using ::testing::Each;
using Bytes = std::vector<std::byte>;

constexpr auto kUntouched = std::byte{0xA5};

const uint8_t* codes(const std::byte* record) {
  return reinterpret_cast<const uint8_t*>(record);
}

std::vector<float> decode_q8(const std::byte* record, int64_t n) {
  std::vector<float> x(n);
  q8_unpack(codes(record), codes(record) + n, x);
  return x;
}

std::vector<float> decode_q4mx(const std::byte* record, int64_t n) {
  std::vector<float> x(n);
  q4mx_unpack(codes(record), codes(record) + n / 2, x);
  return x;
}

std::vector<float> decode_q4nv(const std::byte* record, int64_t n) {
  std::vector<float> x(n);
  q4nv_unpack(codes(record), codes(record) + n / 2, x);
  return x;
}

// Values that went through a block format in fp32 and in double: nearly all are equal, and one that lay on the edge
// between two codes may have gone to the other.
void expect_same_codes(std::span<const float> actual, std::span<const double> expected, double largest_step) {
  ASSERT_EQ(actual.size(), expected.size());
  int64_t different = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double error = std::fabs(static_cast<double>(actual[i]) - expected[i]);
    ASSERT_LE(error, largest_step) << "channel " << i << ": " << actual[i] << ", expected " << expected[i];
    different += error != 0 ? 1 : 0;
  }
  EXPECT_LE(different, std::ssize(actual) / 50);
}

std::vector<float> to_floats(std::span<const double> values) {
  std::vector<float> result;
  for (const double value : values) result.push_back(static_cast<float>(value));
  return result;
}

// --- window records

struct Window {
  int64_t head_dim, rows;
  std::vector<float> kv;
  std::vector<int32_t> positions;
  std::vector<uint16_t> norm;
  std::vector<float> frequencies;
  Bytes records;

  Window(int64_t dim, int64_t row_count)
      : head_dim(dim),
        rows(row_count),
        kv(dim * row_count),
        positions(row_count),
        norm(bf16_ones(dim)),
        records(row_count * q8_bytes(dim), kUntouched) {}

  InsertWindowParams params() {
    return {.kv = kv.data(),
            .positions = positions.data(),
            .rows = rows,
            .head_dim = head_dim,
            .norm = norm.data(),
            .norm_eps = 1e-20F,
            .frequencies = &frequencies,
            .records = records.data()};
  }
};

Window random_window(int64_t rows, uint32_t seed) {
  Random random(seed);
  Window window(128, rows);
  window.kv = random.activations(rows * 128, 2);
  window.norm = random.norm_weights(128);
  window.frequencies = rope_frequencies({.theta = 10000, .dim = 64});
  for (int32_t& position : window.positions) position = static_cast<int32_t>(random.integer(0, 1048575));
  return window;
}

TEST(InsertWindow, RecordIsCodesThenScales) {
  Window window(64, 1);
  for (int i = 0; i < 64; ++i) window.kv[i] = i % 2 == 0 ? 3.0F : -3.0F;  // normalised: 1 and -1
  insert_window_reference(window.params(), 0, 1);
  for (int i = 0; i < 64; ++i) {
    EXPECT_EQ(window.records[i], std::byte(i % 2 == 0 ? 0x78 : 0xf8)) << i;  // 256, with the scale 2^-8
  }
  EXPECT_EQ(window.records[64], std::byte{119});
  EXPECT_EQ(window.records[65], std::byte{119});
}

TEST(InsertWindow, NormRotationAndQ8AsInDouble) {  // model 3.5
  Window window = random_window(6, 1);
  insert_window_reference(window.params(), 0, window.rows);
  for (int64_t r = 0; r < window.rows; ++r) {
    auto x = rms_norm_in_double(doubles(std::span(window.kv).subspan(r * 128, 128)), window.norm, 1e-20);
    rotate_in_double(x, window.positions[r], window.frequencies);
    const auto values = decode_q8(window.records.data() + r * q8_bytes(128), 128);
    expect_same_codes(values, oracle::q8(to_floats(x)), 0.25);
    expect_bf16_values(values);
  }
}

TEST(InsertWindow, RotatesTheLastChannelsByTheRowsPosition) {
  Window window(32, 3);
  window.frequencies = {std::numbers::pi_v<float> / 2};
  window.positions = {0, 1, 3};
  std::fill(window.kv.begin(), window.kv.end(), 1.0F);
  insert_window_reference(window.params(), 0, 3);
  const auto pair = [&](int64_t r) {
    const auto x = decode_q8(window.records.data() + r * q8_bytes(32), 32);
    EXPECT_THAT(std::span(x).first(30), Each(1.0F));
    return std::vector{x[30], x[31]};
  };
  EXPECT_EQ(pair(0), (std::vector{1.0F, 1.0F}));
  EXPECT_EQ(pair(1), (std::vector{-1.0F, 1.0F}));
  EXPECT_EQ(pair(2), (std::vector{1.0F, -1.0F}));
}

TEST(InsertWindow, DevicesWriteTheReferencesBytes) {
  for (const int64_t rows : {0, 1, 5}) {
    const Window window = random_window(rows, 2);
    Window reference = window;
    insert_window_reference(reference.params(), 0, rows);
    on_each_device([&](const Device& device) {
      Window run = window;
      insert_window(device, run.params());
      EXPECT_EQ(run.records, reference.records);
    });
  }
}

// --- global entries and index keys

// A source layer and one sequence's cache; the compressor's outputs of all tokens from position 0 on are there, and a
// test inserts them in whatever portions it likes.
struct Source {
  int64_t ratio, head_dim, index_dim, tokens;
  std::vector<float> a, gate, index_key;
  std::vector<uint16_t> norm, index_norm;
  std::vector<float> frequencies;
  std::vector<float> pending;
  std::vector<int32_t> block_table;
  Bytes entries, keys;

  // Blocks lie scattered, and further apart than their records need.
  static constexpr int64_t kBlockRecords = 4;
  static int64_t block_stride(int64_t record_bytes) { return kBlockRecords * record_bytes + 24; }

  Source(int64_t pooling, int64_t dim, int64_t key_dim, int64_t token_count)
      : ratio(pooling),
        head_dim(dim),
        index_dim(key_dim),
        tokens(token_count),
        a(token_count * dim),
        gate(token_count * dim),
        index_key(key_dim * dim),
        norm(bf16_ones(dim)),
        index_norm(bf16_ones(key_dim)),
        pending(poisoned(2 * dim)) {
    const int64_t blocks = token_count / kBlockRecords + 1;
    for (int64_t b = 0; b < blocks; ++b) block_table.push_back(static_cast<int32_t>(2 * (blocks - b) - 1));
    entries.assign(2 * blocks * block_stride(q4nv_bytes(dim)), kUntouched);
    keys.assign(2 * blocks * block_stride(q4mx_bytes(key_dim)), kUntouched);
  }

  PagedRecords paged(Bytes& pool, int64_t record_bytes) {
    return {.base = pool.data(),
            .block_table = block_table.data(),
            .block_stride = block_stride(record_bytes),
            .block_records = kBlockRecords,
            .record_bytes = record_bytes};
  }
  // `rows` tokens from position `start`, whose first is row `first_row` of the pass.
  InsertSequence sequence(int64_t start, int64_t rows, int64_t first_row) {
    return {.first_row = first_row,
            .rows = rows,
            .start = start,
            .pending = ratio == 1 ? nullptr : pending.data(),
            .entries = paged(entries, q4nv_bytes(head_dim)),
            .keys = paged(keys, q4mx_bytes(index_dim))};
  }
  InsertGlobalParams params(std::span<const InsertSequence> sequences, int64_t first_token,
                            Activations activations = Activations::bf16) const {
    return {.a = a.data() + first_token * head_dim,
            .gate = ratio == 1 ? nullptr : gate.data() + first_token * head_dim,
            .ratio = ratio,
            .head_dim = head_dim,
            .index_dim = index_dim,
            .sequences = sequences.data(),
            .sequence_count = std::ssize(sequences),
            .norm = norm.data(),
            .index_key = {.format = WeightFormat::f32, .rows = index_dim, .cols = head_dim, .data = index_key.data()},
            .index_norm = index_norm.data(),
            .norm_eps = 1e-20F,
            .frequencies = &frequencies,
            .activations = activations};
  }
  void insert(int64_t start, int64_t rows, Activations activations = Activations::bf16) {
    const InsertSequence one[] = {sequence(start, rows, 0)};
    insert_global_reference(params(one, start, activations));
  }
  const std::byte* entry(int64_t i) { return sequence(0, 0, 0).entries.at(i); }
  const std::byte* key(int64_t i) { return sequence(0, 0, 0).keys.at(i); }
};

// An index projection whose sums have one term only, so that no order of summation can change a bit.
void permute_into_keys(Source& source) {
  for (int64_t i = 0; i < source.index_dim; ++i) {
    source.index_key[i * source.head_dim + i * 5 % source.head_dim] = i % 3 == 0 ? -1.0F : 1.0F;
  }
}

Source random_source(int64_t ratio, int64_t tokens, uint32_t seed) {
  Random random(seed);
  Source source(ratio, 64, 32, tokens);
  source.a = random.activations(tokens * 64);
  source.gate = random.normals(tokens * 64, 2);
  source.norm = random.norm_weights(64);
  source.index_norm = random.norm_weights(32);
  source.frequencies = rope_frequencies({.theta = 160000, .dim = 16});
  permute_into_keys(source);
  return source;
}

void expect_same_cache(const Source& actual, const Source& expected) {
  EXPECT_EQ(actual.entries, expected.entries);
  EXPECT_EQ(actual.keys, expected.keys);
  if (expected.ratio == 2) expect_same_bits(actual.pending, expected.pending);
}

// Keys are quantised coarsely, yet show the latent finely: a key channel that is the difference of the latent and a
// guess has the sign of the guess's error, and the norm behind it makes any difference large.
TEST(InsertGlobal, PoolsThePairOfTheSpecification) {  // model 7.6, compressor
  Source source(2, 32, 32, 2);
  for (int c = 0; c < 32; c += 2) {
    const float pair[2][2] = {{1, -2}, {3, .5}};
    const float gates[2][2] = {{0, 1}, {1, -1}};
    for (int t = 0; t < 2; ++t) {
      for (int i = 0; i < 2; ++i) {
        source.a[t * 32 + c + i] = pair[t][i];
        source.gate[t * 32 + c + i] = gates[t][i];
      }
    }
  }
  // Channels 2 and 3 pool to one: the unit of the guesses.
  for (const int c : {2, 3, 34, 35}) source.a[c] = 1;
  const float guesses[4][2] = {{2.46211F, 0}, {2.46213F, 0}, {-1.70198F, 1}, {-1.70201F, 1}};
  for (int i = 0; i < 4; ++i) {
    source.index_key[i * 32 + static_cast<int>(guesses[i][1])] = 1;
    source.index_key[i * 32 + 2] = -guesses[i][0];
  }
  source.insert(0, 2, Activations::fp32);
  const auto key = decode_q4mx(source.key(0), 32);
  EXPECT_GT(key[0], 0) << "channel 0 pools to more than 2.46211";
  EXPECT_LT(key[1], 0) << "and to less than 2.46213";
  EXPECT_LT(key[2], 0) << "channel 1 pools to less than -1.70198";
  EXPECT_GT(key[3], 0) << "and to more than -1.70201";
}

// The latent of group j, and then its record and key, in double (spec: model 3.6, 3.7).
std::vector<double> latent_in_double(const Source& source, int64_t j) {
  std::vector<double> latent(source.head_dim);
  for (int64_t c = 0; c < source.head_dim; ++c) {
    const int64_t first = j * source.ratio * source.head_dim + c;
    latent[c] = static_cast<double>(source.a[first]);
    if (source.ratio == 2) {
      const int64_t second = first + source.head_dim;
      const double weight = 1 / (1 + std::exp(static_cast<double>(source.gate[second] - source.gate[first])));
      latent[c] = latent[c] * weight + static_cast<double>(source.a[second]) * (1 - weight);
    }
  }
  return rms_norm_in_double(latent, source.norm, 1e-20);
}

std::vector<double> key_in_double(const Source& source, int64_t j) {
  auto latent = latent_in_double(source, j);
  round_all_to_bf16(latent);
  std::vector<double> key(source.index_dim);
  for (int64_t i = 0; i < source.index_dim; ++i) {
    for (int64_t c = 0; c < source.head_dim; ++c) {
      key[i] += static_cast<double>(source.index_key[i * source.head_dim + c]) * latent[c];
    }
  }
  key = rms_norm_in_double(key, source.index_norm, 1e-20);
  rotate_in_double(key, j * source.ratio, source.frequencies);
  return oracle::q4mx(to_floats(key));
}

TEST(InsertGlobal, EntriesAndKeysAsInDouble) {
  for (const int64_t ratio : {1, 2}) {
    Source source = random_source(ratio, 12, 3);
    source.insert(0, 12);
    for (int64_t j = 0; j < 12 / ratio; ++j) {
      SCOPED_TRACE("ratio " + std::to_string(ratio) + ", entry " + std::to_string(j));
      auto entry = latent_in_double(source, j);
      rotate_in_double(entry, j * ratio, source.frequencies);
      expect_same_codes(decode_q4nv(source.entry(j), 64), oracle::q4nv(to_floats(entry)), 1.1);
      expect_same_codes(decode_q4mx(source.key(j), 32), key_in_double(source, j), 2.1);
    }
  }
}

// model 8, traps 5 and 11. All latents are ones and a position turns the last pair by quarters, so the pair tells how
// often and by which position it was rotated.
std::vector<float> signs_of_last_pair(const std::vector<float>& x) {
  return {std::copysign(1.0F, x[x.size() - 2]), std::copysign(1.0F, x[x.size() - 1])};
}

TEST(InsertGlobal, PositionIsThatOfTheGroupsFirstToken) {
  const std::vector<float> turned[4] = {{1, 1}, {-1, 1}, {-1, -1}, {1, -1}};
  for (const int64_t ratio : {1, 2}) {
    Source source(ratio, 32, 32, 8);
    source.frequencies = {std::numbers::pi_v<float> / 2};
    std::fill(source.a.begin(), source.a.end(), 1.0F);
    for (int64_t i = 0; i < 32; ++i) source.index_key[i * 32 + i] = 1;
    source.insert(0, 8);
    for (int64_t j = 0; j < 8 / ratio; ++j) {
      SCOPED_TRACE("ratio " + std::to_string(ratio) + ", entry " + std::to_string(j));
      const auto entry = decode_q4nv(source.entry(j), 32);
      EXPECT_THAT(std::span(entry).first(30), Each(1.03125F));  // 6 times the E4M3 scale 0.171875
      EXPECT_EQ(signs_of_last_pair(entry), turned[j * ratio % 4]);
      // Rotated once: the key is made from the latent before its rotation.
      EXPECT_EQ(signs_of_last_pair(decode_q4mx(source.key(j), 32)), turned[j * ratio % 4]);
    }
  }
}

// A latent of ones whose last pair is turned at position 1 so that its first channel becomes `first`.
Source turned_ones(double first) {
  Source source(1, 32, 32, 2);
  source.frequencies = {static_cast<float>(std::acos(first / std::numbers::sqrt2) - std::numbers::pi / 4)};
  std::fill(source.a.begin(), source.a.end(), 1.0F);
  for (int64_t i = 0; i < 32; ++i) source.index_key[i * 32 + i] = 1;
  return source;
}

// The rotated value lies just above a tie of the format behind it and goes up; rounded to bf16 in between, it would lie
// on the tie and go down to the even code.
TEST(InsertGlobal, RotatedChannelsAreNotRoundedBeforeTheirFormat) {
  Source entry_tie = turned_ones(2.5 * 0.21875 + 0.0005);  // the scale of a group with amax 1.304
  entry_tie.insert(0, 2);
  EXPECT_EQ(decode_q4nv(entry_tie.entry(1), 32)[30], 3 * 0.21875F);
  Source key_tie = turned_ones(2.5 * 0.25 + 0.0005);
  key_tie.insert(0, 2);
  EXPECT_EQ(decode_q4mx(key_tie.key(1), 32)[30], 3 * 0.25F);
}

TEST(InsertGlobal, EqualGatesPoolToTheMeanAndAFarGateTakesAll) {
  Source source(2, 32, 32, 4);
  permute_into_keys(source);
  for (int c = 0; c < 32; ++c) {
    source.a[c] = 2;  // first pair: mean of 2 and 4 is 3 everywhere, of which the norm makes 1
    source.a[32 + c] = 4;
    source.a[64 + c] = 100;  // second pair: the gate chooses the other token
    source.a[96 + c] = c % 2 == 0 ? 1.0F : -1.0F;
    source.gate[64 + c] = -200;
    source.gate[96 + c] = 200;
  }
  source.insert(0, 4);
  EXPECT_THAT(decode_q4nv(source.entry(0), 32), Each(1.03125F));
  const auto second = decode_q4nv(source.entry(1), 32);
  for (int c = 0; c < 32; ++c) EXPECT_EQ(second[c], c % 2 == 0 ? 1.03125F : -1.03125F);
}

TEST(InsertGlobal, HalfPairStaysPendingAndWritesNoRecord) {
  Source source = random_source(2, 5, 4);
  source.insert(0, 1);
  EXPECT_THAT(source.entries, Each(kUntouched));
  EXPECT_THAT(source.keys, Each(kUntouched));
  expect_same_bits(std::span(source.pending).first(64), std::span(source.a).first(64));
  expect_same_bits(std::span(source.pending).last(64), std::span(source.gate).first(64));
}

TEST(InsertGlobal, NothingBesideTheRecordsIsTouched) {
  for (const int64_t ratio : {1, 2}) {
    Source source = random_source(ratio, 7, 5);
    source.insert(0, 7);
    Bytes entries = source.entries;
    Bytes keys = source.keys;
    for (int64_t j = 0; j < 7 / ratio; ++j) {
      std::fill_n(entries.begin() + (source.entry(j) - source.entries.data()), q4nv_bytes(64), kUntouched);
      std::fill_n(keys.begin() + (source.key(j) - source.keys.data()), q4mx_bytes(32), kUntouched);
    }
    EXPECT_THAT(entries, Each(kUntouched));
    EXPECT_THAT(keys, Each(kUntouched));
  }
}

// Chunked equals whole: all 128 ways to cut eight tokens into calls.
TEST(InsertGlobal, AnySplitOfTheRowsGivesTheSameBytes) {
  for (const int64_t ratio : {1, 2}) {
    const Source empty = random_source(ratio, 8, 6);
    Source whole = empty;
    whole.insert(0, 8);
    for (int cuts = 0; cuts < 128; ++cuts) {
      SCOPED_TRACE(cuts);
      Source parts = empty;
      int64_t start = 0;
      for (int64_t end = 1; end <= 8; ++end) {
        if (end < 8 && (cuts >> (end - 1) & 1) == 0) continue;
        parts.insert(start, end - start);
        start = end;
      }
      expect_same_cache(parts, whole);
    }
  }
}

// A pass holds the rows of several sequences; each has its own start, pending pair and blocks.
TEST(InsertGlobal, SequencesOfOnePassDoNotMix) {
  for (const int64_t ratio : {1, 2}) {
    Source first = random_source(ratio, 9, 7);
    Source second = random_source(ratio, 9, 8);
    second.norm = first.norm;
    second.index_norm = first.index_norm;
    first.insert(0, 3);
    second.insert(0, 2);
    Source expected_first = first;
    Source expected_second = second;
    expected_first.insert(3, 4);
    expected_second.insert(2, 5);

    Source pass = first;  // rows: tokens 3..6 of the first, then 2..6 of the second
    pass.a.assign(first.a.begin() + 3 * 64, first.a.begin() + 7 * 64);
    pass.a.insert(pass.a.end(), second.a.begin() + 2 * 64, second.a.begin() + 7 * 64);
    pass.gate.assign(first.gate.begin() + 3 * 64, first.gate.begin() + 7 * 64);
    pass.gate.insert(pass.gate.end(), second.gate.begin() + 2 * 64, second.gate.begin() + 7 * 64);
    const InsertSequence both[] = {first.sequence(3, 4, 0), second.sequence(2, 5, 4)};
    insert_global_reference(pass.params(both, 0));
    expect_same_cache(first, expected_first);
    expect_same_cache(second, expected_second);
  }
}

TEST(InsertGlobal, NoSequencesAndNoRowsAreNothingToDo) {
  Source source = random_source(2, 4, 9);
  insert_global_reference(source.params({}, 0));
  source.insert(0, 0);
  source.insert(1, 0);
  EXPECT_THAT(source.entries, Each(kUntouched));
  EXPECT_THAT(source.keys, Each(kUntouched));
}

TEST(InsertGlobal, DevicesWriteTheReferencesBytes) {
  for (const int64_t ratio : {1, 2}) {
    for (const int64_t rows : {0, 1, 2, 11}) {
      const Source empty = random_source(ratio, 11, 10);
      Source reference = empty;
      reference.insert(0, rows);
      on_each_device([&](const Device& device) {
        Source run = empty;
        const InsertSequence one[] = {run.sequence(0, rows, 0)};
        insert_global(device, run.params(one, 0));
        expect_same_cache(run, reference);
      });
    }
  }
}

TEST(InsertGlobalDeathTest, OtherRatiosAreRefused) {
  Source source = random_source(1, 1, 11);
  auto params = source.params({}, 0);
  params.ratio = 4;
  EXPECT_DEATH(insert_global_reference(params), "ratio");
}

}  // namespace
}  // namespace gannet::ops::test

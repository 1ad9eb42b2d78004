#include "base/quantize.h"
#include "ops/attention/op.h"
#include "ops/attention/sm90.h"
#include "ops/attention/sm90_variants.h"
#include "ops/cuda/testing.h"
#include "ops/cuda/testing_kernels.h"
#include "ops/rope/op.h"

namespace gannet::ops::cuda::test {
namespace {

using ops::test::Random;

constexpr int64_t kDim = 512;
constexpr int64_t kBlockRecords = 16;
constexpr int64_t kBlockStride = kBlockRecords * 288 + 64;
constexpr auto kPoisonByte = std::byte{0xff};  // NaN as a code and as a scale
using Bytes = std::vector<std::byte>;
using Variant = std::function<void(cudaStream_t, const AttentionParams&)>;

struct Shape {
  int64_t heads = 4;
  int64_t window = 128;
  int64_t selected_stride = 512;  // 0: a layer without entries
  int64_t entries = 600;          // of each sequence
  float key_scale = 1;
  float query_scale = 1;
};

// Sequences with random keys, on the host for the reference and on the device.
struct Problem {
  Shape shape;
  std::vector<Sequence> sequences = {};
  std::vector<int32_t> positions = {}, sequence_of = {}, selected = {}, counts = {}, tables = {};
  Bytes chunk = {}, rings = {}, pool = {};
  std::vector<float> q = {}, sink = {}, frequencies = {};

  int64_t rows() const { return std::ssize(positions); }
  int64_t ring_stride() const { return 2 * shape.window * q8_bytes(kDim); }
  int64_t table_stride() const { return shape.entries / kBlockRecords + 1; }
};

void pack_window(Random& random, float scale, std::byte* at) {
  auto* record = reinterpret_cast<uint8_t*>(at);
  q8_pack(random.normals(kDim, scale * std::exp2(random.uniform(-2, 2))), record, record + kDim);
}

Problem random_problem(const Shape& shape, const std::vector<Sequence>& sequences, uint32_t seed) {
  Random random(seed);
  Problem p{.shape = shape, .sequences = sequences};
  const int64_t bytes = q8_bytes(kDim);
  int64_t slots = 0;
  for (const Sequence& s : sequences) slots = std::max<int64_t>(slots, s.slot + 1);
  p.rings.assign(slots * p.ring_stride(), kPoisonByte);
  p.pool.assign(slots * p.table_stride() * kBlockStride, kPoisonByte);
  for (int64_t i = 0; i < slots * p.table_stride(); ++i) p.tables.push_back(static_cast<int32_t>(i));
  for (size_t i = p.tables.size(); i > 1; --i) std::swap(p.tables[i - 1], p.tables[random.integer(0, int64_t(i) - 1)]);
  for (size_t s = 0; s < sequences.size(); ++s) {
    const Sequence& sequence = sequences[s];
    for (int64_t t = std::max<int64_t>(0, sequence.start - shape.window); t < sequence.start; ++t) {
      pack_window(random, shape.key_scale, &p.rings[sequence.slot * p.ring_stride() + t % shape.window * bytes]);
    }
    for (int64_t e = 0; shape.selected_stride > 0 && e < shape.entries; ++e) {
      auto* record = reinterpret_cast<uint8_t*>(
          &p.pool[p.tables[sequence.slot * p.table_stride() + e / kBlockRecords] * kBlockStride +
                  e % kBlockRecords * 288]);
      q4nv_pack(random.normals(kDim, shape.key_scale * std::exp2(random.uniform(-3, 2))), record, record + kDim / 2);
    }
    for (int32_t i = 0; i < sequence.rows; ++i) {
      p.positions.push_back(sequence.start + i);
      p.sequence_of.push_back(static_cast<int32_t>(s));
      p.chunk.resize(p.chunk.size() + bytes);
      pack_window(random, shape.key_scale, &p.chunk[p.chunk.size() - bytes]);
      const int64_t count = random.integer(0, 2) == 0 ? random.integer(0, shape.selected_stride)
                                                      : std::min<int64_t>(shape.selected_stride, p.positions.back());
      p.counts.push_back(static_cast<int32_t>(count));
      for (int64_t k = 0; k < shape.selected_stride; ++k) {
        p.selected.push_back(k < count ? static_cast<int32_t>(random.integer(0, shape.entries - 1)) : 1 << 30);
      }
    }
  }
  p.q = random.activations(p.rows() * shape.heads * kDim, shape.query_scale);
  p.sink = random.normals(shape.heads, 2);
  p.frequencies = rope_frequencies({.theta = 160000, .dim = 64, .factor = 16, .original_length = 65536});
  return p;
}

// A problem on the device, in buffers for `most` rows.
struct DeviceProblem {
  Array<int32_t> count, positions, sequence_of, sequence_count, selected, counts, tables;
  Array<Sequence> sequences;
  Array<std::byte> chunk, rings, pool;
  Array<__nv_bfloat16> q, out;
  Array<float> sink, frequencies;
  AttentionParams params;

  DeviceProblem(const Problem& p, int64_t most)
      : count(1),
        positions(most),
        sequence_of(most),
        sequence_count(std::vector{static_cast<int32_t>(p.sequences.size())}),
        selected(most * std::max<int64_t>(1, p.shape.selected_stride)),
        counts(most),
        tables(p.tables),
        sequences(p.sequences),
        chunk(most * q8_bytes(kDim)),
        rings(std::ssize(p.rings)),
        pool(std::ssize(p.pool)),
        q(most * p.shape.heads * kDim),
        out(most * p.shape.heads * kDim),
        sink(p.sink),
        frequencies(p.frequencies) {
    count.set(std::vector{static_cast<int32_t>(p.rows())});
    positions.set(p.positions);
    sequence_of.set(p.sequence_of);
    if (p.shape.selected_stride > 0) selected.set(p.selected);
    counts.set(p.counts);
    chunk.set(p.chunk);
    rings.set(p.rings);
    pool.set(p.pool);
    q.set(to_bf16(p.q));
    params = {.q = q.get(),
              .rows = {.count = count.get(),
                       .most = most,
                       .positions = positions.get(),
                       .sequence_of = sequence_of.get(),
                       .sequences = sequences.get(),
                       .sequence_count = sequence_count.get(),
                       .most_sequences = sequences.size()},
              .heads = p.shape.heads,
              .window = p.shape.window,
              .chunk = chunk.get(),
              .rings = rings.get(),
              .ring_stride = p.ring_stride(),
              .entries = {.base = pool.get(),
                          .block_tables = tables.get(),
                          .table_stride = p.table_stride(),
                          .block_stride = kBlockStride,
                          .block_records = kBlockRecords,
                          .record_bytes = 288},
              .selected = p.shape.selected_stride > 0 ? selected.get() : nullptr,
              .selected_counts = counts.get(),
              .selected_stride = p.shape.selected_stride,
              .sink = sink.get(),
              .frequencies = frequencies.get(),
              .out = out.get()};
  }
  std::vector<__nv_bfloat16> operator()(const Variant& variant) {
    out.poison();
    variant(nullptr, params);
    return out.host();
  }
};

std::vector<float> expected(const Problem& p) {
  std::vector<AttentionSequence> sequences;
  for (const Sequence& s : p.sequences) {
    sequences.push_back({.ring = p.rings.data() + s.slot * p.ring_stride(),
                         .chunk = p.chunk.data() + s.first_row * q8_bytes(kDim),
                         .chunk_start = s.start,
                         .window_from = s.window_from,
                         .entries = {.base = const_cast<std::byte*>(p.pool.data()),
                                     .block_table = p.tables.data() + s.slot * p.table_stride(),
                                     .block_stride = kBlockStride,
                                     .block_records = kBlockRecords,
                                     .record_bytes = 288}});
  }
  auto q = p.q;
  std::vector<float> out(q.size());
  const ops::AttentionParams params{.q = q.data(),
                                    .positions = p.positions.data(),
                                    .sequence_of = p.sequence_of.data(),
                                    .rows = p.rows(),
                                    .heads = p.shape.heads,
                                    .head_dim = kDim,
                                    .window = p.shape.window,
                                    .sequences = sequences.data(),
                                    .selected = p.shape.selected_stride > 0 ? p.selected.data() : nullptr,
                                    .selected_counts = p.counts.data(),
                                    .selected_stride = p.shape.selected_stride,
                                    .sink = p.sink.data(),
                                    .frequencies = &p.frequencies,
                                    .out = out.data()};
  ThreadPool pool(16, false);
  pool.parallel_for(p.rows(), 1, [&](int64_t begin, int64_t end) { attention_reference(params, begin, end); });
  return out;
}

// Both round to bf16 in the end (half a step each), and the weights of the sum are rounded to bf16 too: an error of up
// to 2^-9 of what is added up, which may be larger than the sum.
void expect_attention(const std::vector<float>& actual, const std::vector<float>& reference) {
  for (size_t head = 0; head < reference.size(); head += kDim) {
    double squares = 0;
    for (int64_t c = 0; c < kDim; ++c) squares += std::pow(static_cast<double>(reference[head + c]), 2);
    const double typical = std::sqrt(squares / kDim);
    for (size_t i = head; i < head + kDim; ++i) {
      const double error = std::fabs(static_cast<double>(actual[i]) - reference[i]);
      ASSERT_LE(error, std::fabs(reference[i]) / 128 + typical / 64) << i << ": " << actual[i] << ", " << reference[i];
    }
  }
}

struct NamedVariant {
  std::string name;
  Variant run;
};
std::vector<NamedVariant> variants(int64_t heads) {
  std::vector<NamedVariant> all{{"chosen", attention}};
  for (const int splits : {1, 2, 4, 8, 16}) {
    all.push_back({"few, splits " + std::to_string(splits),
                   [=](cudaStream_t stream, const AttentionParams& p) { attention_few(stream, p, splits); }});
  }
  for (const int splits : {1, 2}) {
    if (heads > 64) break;
    all.push_back({"many, splits " + std::to_string(splits),
                   [=](cudaStream_t stream, const AttentionParams& p) { attention_many(stream, p, splits); }});
  }
  return all;
}

void check(const Problem& p, int64_t most) {
  SCOPED_TRACE("heads " + std::to_string(p.shape.heads) + ", rows " + std::to_string(p.rows()) + " of " +
               std::to_string(most));
  const auto reference = expected(p);
  DeviceProblem run(p, most);
  for (const auto& [name, variant] : variants(p.shape.heads)) {
    SCOPED_TRACE(name);
    const auto result = run(variant);
    const auto values = to_float(result);
    EXPECT_TRUE(run.out.guard_intact());
    expect_attention({values.begin(), values.begin() + std::ssize(reference)}, reference);
    for (size_t i = reference.size(); i < values.size(); ++i) ASSERT_TRUE(std::isnan(values[i])) << "written: " << i;
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(same_bits(run(variant), result));
  }
}

std::vector<Sequence> mixed_sequences() {
  return {{.slot = 2, .first_row = 0, .rows = 1, .start = 0},
          {.slot = 0, .first_row = 1, .rows = 1, .start = 5},
          {.slot = 4, .first_row = 2, .rows = 3, .start = 126},
          {.slot = 1, .first_row = 5, .rows = 1, .start = 1000003, .window_from = 999999},
          {.slot = 3, .first_row = 6, .rows = 0, .start = 4},
          {.slot = 5, .first_row = 6, .rows = 6, .start = 777}};
}

TEST(CudaAttention, AsTheReference) {
  check(random_problem({.heads = 4}, mixed_sequences(), 1), 12);
  check(random_problem({.heads = 64}, mixed_sequences(), 2), 12);
  check(random_problem({.heads = 64}, mixed_sequences(), 2), 300);
  check(random_problem({.heads = 20, .selected_stride = 37}, mixed_sequences(), 3), 14);
  check(random_problem({.heads = 32, .window = 40, .selected_stride = 0}, mixed_sequences(), 4), 12);
  check(random_problem({.heads = 64, .selected_stride = 0}, mixed_sequences(), 4), 200);
}

TEST(CudaAttention, SomeRowsOfOneSequence) {
  for (const int32_t rows : {24, 37}) {
    const std::vector<Sequence> sequences{{.slot = 0, .first_row = 0, .rows = rows, .start = 1000}};
    check(random_problem({.heads = 64}, sequences, 11), rows);
    check(random_problem({.heads = 20, .selected_stride = 0}, sequences, 12), rows + 3);
  }
}

TEST(CudaAttention, LargeChunk) {
  const std::vector<Sequence> sequences{{.slot = 1, .first_row = 0, .rows = 150, .start = 30}};
  check(random_problem({.heads = 8, .selected_stride = 24, .entries = 40}, sequences, 5), 150);
  check(random_problem({.heads = 64, .selected_stride = 24, .entries = 40}, sequences, 5), 160);
}

TEST(CudaAttention, SharpAndLargeScores) {
  check(random_problem({.heads = 64, .key_scale = 30, .query_scale = 4}, mixed_sequences(), 6), 12);
  check(random_problem({.heads = 64, .key_scale = 1e-3F, .query_scale = 100}, mixed_sequences(), 7), 12);
}

TEST(CudaAttention, RowWithoutKeysGivesZerosAndTheSinkCounts) {
  Problem p = random_problem({.heads = 64}, {{.slot = 0, .rows = 2, .start = 3, .window_from = 4}}, 8);
  p.counts = {0, 2};
  p.selected[512] = 5;
  p.selected[513] = 7;
  p.sink[3] = 60;
  p.sink[4] = -INFINITY;
  p.sink[5] = INFINITY;
  check(p, 2);
  check(p, 200);
}

TEST(CudaAttention, NoRows) {
  const Problem p = random_problem({.heads = 64}, {{.slot = 0, .rows = 0, .start = 3}}, 8);
  check(p, 3);
  check(p, 300);
}

TEST(CudaAttention, ARowDoesNotSeeItsNeighbours) {
  for (const int64_t most : {12, 300}) {
    for (const int64_t heads : {4, 64}) {
      const Problem all = random_problem({.heads = heads}, mixed_sequences(), 9);
      DeviceProblem run_all(all, most);
      for (const auto& [name, variant] : variants(heads)) {
        const auto batch = run_all(variant);
        int64_t row = 0;
        for (const Sequence& sequence : all.sequences) {
          if (sequence.rows == 1) {
            Problem one = all;
            one.sequences = {sequence};
            one.sequences[0].first_row = 0;
            one.positions = {all.positions[row]};
            one.sequence_of = {0};
            one.selected.assign(all.selected.begin() + row * 512, all.selected.begin() + (row + 1) * 512);
            one.counts = {all.counts[row]};
            one.chunk.assign(all.chunk.begin() + row * 528, all.chunk.begin() + (row + 1) * 528);
            one.q.assign(all.q.begin() + row * heads * kDim, all.q.begin() + (row + 1) * heads * kDim);
            const auto alone = DeviceProblem(one, most)(variant);
            ASSERT_EQ(std::memcmp(alone.data(), batch.data() + row * heads * kDim, heads * kDim * 2), 0)
                << name << ", row " << row;
          }
          row += sequence.rows;
        }
      }
    }
  }
}

TEST(CudaAttention, RepeatsBitForBit) {
  for (const int64_t most : {12, 300}) {
    const Problem p = random_problem({.heads = 64}, mixed_sequences(), 10);
    DeviceProblem run(p, most);
    const auto first = run(attention);
    for (int i = 0; i < 30; ++i) ASSERT_TRUE(same_bits(run(attention), first));
  }
}

// --- speed

template <class T>
void fill_random(const Array<T>& array, uint32_t mask, uint32_t bits) {
  fill_words(reinterpret_cast<uint32_t*>(array.get()), array.bytes() / 4, mask, bits);
}

// `rows` rows, `sequence_rows` of each sequence, with full windows and 512 of 16384 entries each.
void benchmark(const std::string& name, int64_t heads, int32_t rows, int32_t sequence_rows, const Variant& variant) {
  constexpr int64_t kEntries = 16384, kSelected = 512;
  const int32_t sequences = rows / sequence_rows;
  const int copies = rows >= 1024 ? 1 : 8;
  Shape shape{.heads = heads, .entries = kEntries};
  Problem p{.shape = shape};
  Random random(1);
  for (int32_t s = 0; s < sequences; ++s) {
    p.sequences.push_back({.slot = s, .first_row = s * sequence_rows, .rows = sequence_rows, .start = 32768});
    for (int32_t i = 0; i < sequence_rows; ++i) {
      p.positions.push_back(32768 + i);
      p.sequence_of.push_back(s);
      p.counts.push_back(kSelected);
    }
  }
  for (int64_t i = 0; i < sequences * p.table_stride(); ++i) p.tables.push_back(static_cast<int32_t>(i));
  p.sink.assign(heads, 0);
  p.frequencies = rope_frequencies({});
  DeviceProblem run(p, rows);
  std::vector<int32_t> selected(copies * rows * kSelected);
  for (int32_t& entry : selected) entry = static_cast<int32_t>(random.integer(0, kEntries - 1));
  const Array<int32_t> lists(selected);
  const Array<std::byte> rings(copies * sequences * p.ring_stride());
  const Array<std::byte> pool(sequences * p.table_stride() * kBlockStride);
  const Array<__nv_bfloat16> q(copies * rows * heads * kDim);
  // Codes and scales below 1.
  fill_random(rings, 0x37373737U, 0x30303030U);
  fill_random(pool, 0x37373737U, 0);
  fill_random(run.chunk, 0x37373737U, 0x30303030U);
  fill_random(q, 0x807f807fU, 0x3f003f00U);
  const double us = time_launch(
      [&](cudaStream_t stream, int i) {
        AttentionParams params = run.params;
        const int copy = i % copies;
        params.q = q.get() + copy * rows * heads * kDim;
        params.selected = lists.get() + copy * rows * kSelected;
        params.rings = rings.get() + copy * sequences * p.ring_stride();
        params.entries.base = pool.get();
        variant(stream, params);
      },
      rows >= 1024 ? 3 : 16);
  report((name + ", " + std::to_string(heads) + " heads, " + std::to_string(rows) + " rows").c_str(), us,
         rows * (128 * 528.0 + 512 * 288.0 + static_cast<double>(heads * kDim) * 4.0),
         rows * 4.0 * 640 * 512 * static_cast<double>(heads));
}

TEST(Benchmark, Attention) {
  for (const int64_t heads : {64, 16}) {
    for (const int32_t rows : {1, 2, 4, 8, 16, 32, 64, 128, 256}) {
      benchmark("attention", heads, rows, 1, attention);
    }
    for (const int32_t rows : {1024, 8192}) benchmark("attention, one sequence", heads, rows, rows, attention);
  }
}

}  // namespace
}  // namespace gannet::ops::cuda::test

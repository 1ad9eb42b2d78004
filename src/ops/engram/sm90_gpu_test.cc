#include <cmath>

#include "base/quantize.h"
#include "ops/cuda/pinned_memory.h"
#include "ops/cuda/testing.h"
#include "ops/cuda/testing_kernels.h"
#include "ops/engram/op.h"
#include "ops/engram/sm90.h"

namespace gannet::ops::cuda::test {
namespace {

using ops::test::Random;

// ---- Rows of the tables ----

struct Table {
  static constexpr int64_t kRows = 37;
  int64_t dim;
  std::vector<uint8_t> codes, scales;

  Table(int64_t row_dim, uint32_t seed) : dim(row_dim) {
    Random random(seed);
    for (int64_t i = 0; i < kRows * dim; ++i) {
      const auto code = static_cast<uint8_t>(random.integer(0, 255));
      codes.push_back((code & 0x7f) == 0x7f ? 0 : code);
    }
    for (int64_t i = 0; i < kRows * dim / 32; ++i) scales.push_back(static_cast<uint8_t>(random.integer(90, 140)));
  }
  std::vector<float> quantized_row(int64_t row) const {
    std::vector<float> values(dim);
    q8_unpack(&codes[row * dim], &scales[row * dim / 32], values);
    q8_round(values);
    return values;
  }
};

struct Lookups {
  int64_t count, most, columns;
};

TEST(CudaEngramGather, GivesTheQuantizedRows) {
  for (const int64_t dim : {32, 64, 96, 256}) {
    for (const auto& [count, most, columns] : {Lookups{0, 2, 3}, {1, 1, 24}, {5, 9, 3}, {100, 100, 24}}) {
      SCOPED_TRACE(std::to_string(count) + " rows of " + std::to_string(columns) + " x " + std::to_string(dim));
      const Table table(dim, 1);
      Random random(2);
      std::vector<int64_t> rows;
      for (int64_t i = 0; i < most * columns; ++i) rows.push_back(random.integer(0, Table::kRows - 1));
      std::vector<float> expected;
      for (int64_t i = 0; i < count * columns; ++i) {
        const auto row = table.quantized_row(rows[i]);
        expected.insert(expected.end(), row.begin(), row.end());
      }
      const Array<uint8_t> codes(table.codes), scales(table.scales);
      const PinnedMemory host_codes(table.codes.size()), host_scales(table.scales.size());
      std::memcpy(host_codes.data(), table.codes.data(), table.codes.size());
      std::memcpy(host_scales.data(), table.scales.data(), table.scales.size());
      const Array<int64_t> row_array(rows);
      const Array<int32_t> counts(std::vector{static_cast<int32_t>(count)});
      for (const bool on_host : {false, true}) {
        const Array<__nv_bfloat16> out(most * columns * dim);
        const auto* host_table = reinterpret_cast<const uint8_t*>(host_codes.data());
        const auto* host_scale = reinterpret_cast<const uint8_t*>(host_scales.data());
        engram_gather(nullptr, {.table_rows = row_array.get(),
                                .count = counts.get(),
                                .most = most,
                                .columns = columns,
                                .table = on_host ? host_table : codes.get(),
                                .table_scale = on_host ? host_scale : scales.get(),
                                .dim = dim,
                                .half_of_device = on_host,
                                .out = out.get()});
        const auto actual = out.host();
        EXPECT_TRUE(same_bits(std::vector(actual.begin(), actual.begin() + static_cast<int64_t>(expected.size())),
                              to_bf16(expected)));
        for (size_t i = expected.size(); i < actual.size(); ++i) ASSERT_TRUE(std::isnan(__bfloat162float(actual[i])));
        EXPECT_TRUE(out.guard_intact());
      }
    }
  }
}

TEST(PinnedMemory, HoldsZerosThatTheDeviceReads) {
  PinnedMemory memory((size_t{5} << 20) + 100);
  EXPECT_EQ(memory.bytes(), (size_t{5} << 20) + 100);
  EXPECT_LE(memory.huge_bytes(), memory.bytes());
  EXPECT_TRUE(
      std::all_of(memory.data(), memory.data() + memory.bytes(), [](std::byte b) { return b == std::byte{0}; }));
  memory.data()[memory.bytes() - 1] = std::byte{7};
  const PinnedMemory moved(std::move(memory));
  const Array<std::byte> copy(1);
  GANNET_CUDA_CHECK(cudaMemcpy(copy.get(), moved.data() + moved.bytes() - 1, 1, cudaMemcpyDefault));
  EXPECT_EQ(copy.host()[0], std::byte{7});
  EXPECT_EQ(PinnedMemory(1000, PageSize::small).huge_bytes(), 0U);
  EXPECT_EQ(PinnedMemory().data(), nullptr);
}

// ---- The gate ----

constexpr float kEps = 1e-20F;

struct Gate {
  int64_t count, most, hidden;
  std::vector<float> streams, kv, q_weight, k_weight;

  Gate(int64_t rows, int64_t most_rows, int64_t hidden_size, uint32_t seed)
      : count(rows), most(most_rows), hidden(hidden_size) {
    Random random(seed);
    streams = random.activations(most * 4 * hidden);
    kv = random.normals(most * 5 * hidden, 3);
    for (const uint16_t code : random.norm_weights(4 * hidden)) q_weight.push_back(bf16_to_float(code));
    for (const uint16_t code : random.norm_weights(4 * hidden)) k_weight.push_back(bf16_to_float(code));
  }
};

std::vector<__nv_bfloat16> run(const Gate& g) {
  const Array<__nv_bfloat16> streams(to_bf16(g.streams)), q(to_bf16(g.q_weight)), k(to_bf16(g.k_weight));
  const Array<float> kv(g.kv);
  const Array<int32_t> counts(std::vector{static_cast<int32_t>(g.count)});
  engram_gate(nullptr, {.kv = kv.get(),
                        .count = counts.get(),
                        .most = g.most,
                        .hidden = g.hidden,
                        .q_weight = q.get(),
                        .k_weight = k.get(),
                        .norm_eps = kEps,
                        .streams = streams.get()});
  auto result = streams.host();
  EXPECT_TRUE(streams.guard_intact());
  return result;
}

double gate_in_double(const Gate& g, const float* h, const float* key, int64_t j) {
  double dot = 0, h_squares = 0, key_squares = 0;
  for (int64_t i = 0; i < g.hidden; ++i) {
    const double weight = static_cast<double>(g.q_weight[j * g.hidden + i]) * g.k_weight[j * g.hidden + i];
    dot += h[i] * weight * key[i];
    h_squares += static_cast<double>(h[i]) * h[i];
    key_squares += static_cast<double>(key[i]) * key[i];
  }
  const auto n = static_cast<double>(g.hidden);
  dot /= std::sqrt(h_squares / n + kEps) * std::sqrt(key_squares / n + kEps) * std::sqrt(n);
  return 1 / (1 + std::exp(-std::copysign(std::sqrt(std::max(std::fabs(dot), 1e-6)), dot)));
}

void expect_matches(const Gate& g) {
  const auto actual = to_float(run(g));
  for (int64_t r = 0; r < g.most; ++r) {
    const float* kv = &g.kv[r * 5 * g.hidden];
    for (int64_t j = 0; j < 4; ++j) {
      const float* h = &g.streams[(r * 4 + j) * g.hidden];
      const double gate = r < g.count ? gate_in_double(g, h, kv + j * g.hidden, j) : 0;
      for (int64_t i = 0; i < g.hidden; ++i) {
        const double expected = h[i] + gate * static_cast<double>(kv[4 * g.hidden + i]);
        ASSERT_NEAR(actual[(r * 4 + j) * g.hidden + i], expected, std::fabs(expected) * 0x1.01p-8 + 1e-6) << r;
      }
    }
  }
}

TEST(CudaEngramGate, MatchesTheFormulasInDouble) {
  for (const auto& [count, most, hidden] : {std::tuple<int64_t, int64_t, int64_t>{0, 2, 32},
                                            {1, 1, 32},
                                            {3, 5, 384},
                                            {7, 7, 256},
                                            {2, 2, 5120},
                                            {1, 1, 8192}}) {
    SCOPED_TRACE(std::to_string(count) + " of " + std::to_string(most) + " rows, hidden " + std::to_string(hidden));
    expect_matches(Gate(count, most, hidden, 1));
  }
}

TEST(CudaEngramGate, RepeatsBitForBitAndRowsStandAlone) {
  const int64_t hidden = 1280;
  const Gate all(6, 6, hidden, 3);
  const auto first = run(all);
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(same_bits(run(all), first));
  Gate alone = all;
  alone.count = 1;
  std::copy_n(all.streams.begin() + 4 * 4 * hidden, 4 * hidden, alone.streams.begin());
  std::copy_n(all.kv.begin() + 4 * 5 * hidden, 5 * hidden, alone.kv.begin());
  EXPECT_EQ(std::memcmp(run(alone).data(), &first[4 * 4 * hidden], 8 * hidden), 0);
}

// ---- Benchmarks ----

constexpr int64_t kColumns = 24, kDim = 256;

// Rows of column c are drawn from the (c % ranges)-th part of the table.
struct Lookup {
  int64_t table_rows = 0;
  int64_t ranges = 1;
  int64_t tokens = 0;
  bool sorted = false;
  bool half_of_device = true;
};

void time_gather(const std::string& name, const uint8_t* table, const uint8_t* scale, const Lookup& lookup) {
  constexpr int kSets = 8;
  const int64_t reads = lookup.tokens * kColumns, part = lookup.table_rows / lookup.ranges;
  std::vector<int64_t> rows;
  Random random(static_cast<uint32_t>(lookup.tokens));
  for (int64_t i = 0; i < kSets * reads; ++i) {
    rows.push_back(i % kColumns % lookup.ranges * part + random.integer(0, part - 1));
  }
  if (lookup.sorted) {
    for (int s = 0; s < kSets; ++s) std::sort(rows.begin() + s * reads, rows.begin() + (s + 1) * reads);
  }
  const Array<int64_t> row_array(rows);
  const Array<int32_t> count(std::vector{static_cast<int32_t>(lookup.tokens)});
  const Array<__nv_bfloat16> out(reads * kDim);
  const double time = time_launch(
      [&](cudaStream_t stream, int i) {
        engram_gather(stream, {.table_rows = row_array.get() + i % kSets * reads,
                               .count = count.get(),
                               .most = lookup.tokens,
                               .columns = kColumns,
                               .table = table,
                               .table_scale = scale,
                               .dim = kDim,
                               .half_of_device = lookup.half_of_device,
                               .out = out.get()});
      },
      kSets);
  report(("engram_gather, " + name + ", tokens: " + std::to_string(lookup.tokens)).c_str(), time,
         static_cast<double>(reads) * 264, 0);
  std::printf("    %.1f M rows/s\n", static_cast<double>(reads) / time);
}

// A part of the table is as large as that of a column of the released model.
TEST(Benchmark, EngramGatherFromHost) {
  constexpr int64_t kPart = 16'000'000, kParts = 2;  // 8.4 GB
  for (const PageSize pages : {PageSize::small, PageSize::huge}) {
    const PinnedMemory table(kParts * kPart * kDim, pages), scale(kParts * kPart * kDim / 32, pages);
    std::printf("huge pages: %.2f of %.2f GiB\n", static_cast<double>(table.huge_bytes()) / 0x1p30,
                static_cast<double>(table.bytes()) / 0x1p30);
    const auto* codes = reinterpret_cast<const uint8_t*>(table.data());
    const auto* scales = reinterpret_cast<const uint8_t*>(scale.data());
    const std::string name = pages == PageSize::huge ? "2 MiB pages" : "4 KiB pages";
    for (const int64_t tokens : {1, 8, 64, 256, 1024, 4096, 16384}) {
      time_gather(name, codes, scales, {.table_rows = kParts * kPart, .ranges = kParts, .tokens = tokens});
    }
    for (const int64_t tokens : {1024, 4096, 16384}) {
      time_gather(name + ", sorted", codes, scales,
                  {.table_rows = kParts * kPart, .ranges = kParts, .tokens = tokens, .sorted = true});
    }
    for (const int64_t millions : {2, 4, 8}) {
      time_gather(name + ", " + std::to_string(millions) + " M rows", codes, scales,
                  {.table_rows = millions * 1'000'000, .tokens = 4096});
    }
  }
}

TEST(Benchmark, EngramGatherFromDevice) {
  constexpr int64_t kRows = 24'000'000;
  const Array<uint8_t> table(kRows * kDim), scale(kRows * kDim / 32);
  fill(table.get(), table.size(), 1);
  fill(scale.get(), scale.size(), 2);
  for (const int64_t tokens : {1, 64, 1024, 16384}) {
    time_gather("device", table.get(), scale.get(), {.table_rows = kRows, .tokens = tokens, .half_of_device = false});
  }
}

TEST(Benchmark, EngramGate) {
  constexpr int64_t kHidden = 5120;
  const Array<__nv_bfloat16> weights(4 * kHidden);
  fill(weights.get(), weights.size(), 1);
  for (const int64_t rows : {1, 8, 64, 256, 1024, 8192}) {
    const int sets = static_cast<int>(std::clamp<int64_t>(4096 / rows, 2, 20));
    const Array<__nv_bfloat16> streams(sets * rows * 4 * kHidden);
    const Array<float> kv(sets * rows * 5 * kHidden);
    const Array<int32_t> count(std::vector{static_cast<int32_t>(rows)});
    fill(streams.get(), streams.size(), 2);
    fill(kv.get(), kv.size(), 3);
    const double time = time_launch([&](cudaStream_t stream, int i) {
      engram_gate(stream, {.kv = kv.get() + i % sets * rows * 5 * kHidden,
                           .count = count.get(),
                           .most = rows,
                           .hidden = kHidden,
                           .q_weight = weights.get(),
                           .k_weight = weights.get(),
                           .norm_eps = kEps,
                           .streams = streams.get() + i % sets * rows * 4 * kHidden});
    });
    report(("engram_gate, rows: " + std::to_string(rows)).c_str(), time, static_cast<double>(rows * kHidden * 36), 0);
  }
}

}  // namespace
}  // namespace gannet::ops::cuda::test

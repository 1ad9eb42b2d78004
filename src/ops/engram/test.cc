#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "ops/engram/op.h"
#include "ops/testing.h"

namespace gannet::ops::test {
namespace {

TEST(Engram, GateValuesOfTheSpecification) {  // model 7.6
  EXPECT_NEAR(engram_gate(0), .50025F, 1e-7);
  EXPECT_NEAR(engram_gate(.25F), .62245933F, 1e-7);
  EXPECT_NEAR(engram_gate(-.25F), .37754067F, 1e-7);
  EXPECT_NEAR(engram_gate(4), .88079708F, 1e-7);
  EXPECT_NEAR(engram_gate(-4), .11920292F, 1e-7);
}

TEST(Engram, GateIsAntisymmetricAndFinite) {
  for (const float dot : {1e-30F, 1e-6F, 0.1F, 3.0F, 1e4F, 1e30F}) {
    EXPECT_NEAR(engram_gate(dot) + engram_gate(-dot), 1, 1e-6) << dot;
    EXPECT_GE(engram_gate(dot), 0.5F);
    EXPECT_LE(engram_gate(dot), 1.0F);
  }
}

// A table of a few rows, a projection in FP8, two streams.
struct Lookup {
  int64_t rows;
  static constexpr int64_t kColumns = 3, kDim = 32, kStreams = 2, kHidden = 32, kTable = 20;
  static constexpr int64_t kOutputs = (kStreams + 1) * kHidden, kInputs = kColumns * kDim;
  std::vector<int64_t> table_rows;
  std::vector<uint8_t> table, table_scale, wkv, wkv_scale;
  std::vector<uint16_t> q_weight, k_weight;
  std::vector<float> streams;
  bool quantize = false;
  Activations activations = Activations::fp32;

  Lookup(int64_t row_count, uint32_t seed) : rows(row_count) {
    Random random(seed);
    for (int64_t i = 0; i < rows * kColumns; ++i) table_rows.push_back(random.integer(0, kTable - 1));
    fill_codes(random, table, kTable * kDim);
    fill_codes(random, wkv, kOutputs * kInputs);
    for (int64_t i = 0; i < kTable * kDim / 32; ++i) table_scale.push_back(uint8_t(random.integer(121, 123)));
    for (int64_t i = 0; i < kOutputs / 32 * kInputs / 32; ++i) wkv_scale.push_back(uint8_t(random.integer(118, 121)));
    q_weight = random.norm_weights(kStreams * kHidden);
    k_weight = random.norm_weights(kStreams * kHidden);
    streams = random.activations(rows * kStreams * kHidden);
  }
  // Finite E4M3 codes of moderate size.
  static void fill_codes(Random& random, std::vector<uint8_t>& codes, int64_t n) {
    for (int64_t i = 0; i < n; ++i) codes.push_back(float_to_e4m3(4 * random.normal()));
  }
};

// The streams afterwards; by the reference for a null device.
std::vector<float> run(const Lookup& l, const Device* device = nullptr) {
  auto streams = l.streams;
  const EngramParams params{.table_rows = l.table_rows.data(),
                            .rows = l.rows,
                            .columns = Lookup::kColumns,
                            .table = l.table.data(),
                            .table_scale = l.table_scale.data(),
                            .dim = Lookup::kDim,
                            .wkv = {.format = WeightFormat::fp8,
                                    .rows = Lookup::kOutputs,
                                    .cols = Lookup::kInputs,
                                    .data = l.wkv.data(),
                                    .scale = l.wkv_scale.data()},
                            .q_weight = l.q_weight.data(),
                            .k_weight = l.k_weight.data(),
                            .norm_eps = 1e-20F,
                            .streams = streams.data(),
                            .streams_per_row = Lookup::kStreams,
                            .hidden = Lookup::kHidden,
                            .quantize_input = l.quantize,
                            .activations = l.activations};
  if (device != nullptr) {
    engram(*device, params);
  } else {
    engram_reference(params);
  }
  return streams;
}

// Keys of all streams, then the value, of row r (spec: model 3.10, "Read").
std::vector<double> project_in_double(const Lookup& l, int64_t r) {
  std::vector<double> e;
  for (int64_t c = 0; c < Lookup::kColumns; ++c) {
    const int64_t row = l.table_rows[r * Lookup::kColumns + c];
    for (int64_t i = 0; i < Lookup::kDim; ++i) {
      e.push_back(oracle::e4m3_value(l.table[row * Lookup::kDim + i]) * oracle::e8m0_value(l.table_scale[row]));
    }
  }
  if (l.quantize) e = oracle::q8(std::vector<float>(e.begin(), e.end()));
  std::vector<double> kv(Lookup::kOutputs);
  for (int64_t o = 0; o < Lookup::kOutputs; ++o) {
    for (int64_t i = 0; i < Lookup::kInputs; ++i) {
      const int scale = l.wkv_scale[o / 32 * (Lookup::kInputs / 32) + i / 32];
      kv[o] += oracle::e4m3_value(l.wkv[o * Lookup::kInputs + i]) * oracle::e8m0_value(scale) * e[i];
    }
  }
  return kv;
}

double gate_in_double(const Lookup& l, const float* h, const double* key, int64_t stream) {
  double dot = 0;
  double h_square = 0;
  double key_square = 0;
  for (int64_t i = 0; i < Lookup::kHidden; ++i) {
    const int64_t at = stream * Lookup::kHidden + i;
    const double value = static_cast<double>(h[i]);
    dot += value * oracle::bf16_value(l.q_weight[at]) * oracle::bf16_value(l.k_weight[at]) * key[i];
    h_square += value * value;
    key_square += key[i] * key[i];
  }
  const double n = Lookup::kHidden;
  dot /= std::sqrt(h_square / n + 1e-20) * std::sqrt(key_square / n + 1e-20) * std::sqrt(n);
  const double root = std::copysign(std::sqrt(std::max(std::fabs(dot), 1e-6)), dot);
  return 1 / (1 + std::exp(-root));
}

std::vector<double> engram_in_double(const Lookup& l) {
  std::vector<double> streams = doubles(l.streams);
  for (int64_t r = 0; r < l.rows; ++r) {
    const auto kv = project_in_double(l, r);
    const double* value = kv.data() + Lookup::kStreams * Lookup::kHidden;
    for (int64_t j = 0; j < Lookup::kStreams; ++j) {
      const int64_t at = (r * Lookup::kStreams + j) * Lookup::kHidden;
      const double gate = gate_in_double(l, l.streams.data() + at, kv.data() + j * Lookup::kHidden, j);
      for (int64_t i = 0; i < Lookup::kHidden; ++i) streams[at + i] += gate * value[i];
    }
  }
  if (l.activations == Activations::bf16) round_all_to_bf16(streams);
  return streams;
}

TEST(Engram, MatchesTheFormulasInDoubleOnEachDevice) {
  for (const bool quantize : {false, true}) {
    Lookup lookup(5, 1);
    lookup.quantize = quantize;
    const auto expected = engram_in_double(lookup);
    on_each_device([&](const Device& device) { expect_close(run(lookup, &device), expected, 1e-5, 1e-4); });
  }
}

TEST(Engram, Bf16ModeRoundsProjectionAndStreams) {
  Lookup lookup(5, 2);
  lookup.activations = Activations::bf16;
  const auto expected = engram_in_double(lookup);
  on_each_device([&](const Device& device) {
    const auto streams = run(lookup, &device);
    expect_bf16_values(streams);
    expect_close(streams, expected, kBf16Step, 0.05);
  });
}

TEST(Engram, DevicesAgreeForAnyNumberOfRows) {
  for (const int64_t rows : {0, 1, 2, 6}) {
    const Lookup lookup(rows, 3);
    expect_devices_close([&](const Device* device) { return run(lookup, device); }, 1e-5, 1e-4);
  }
}

// The tables are far larger than memory: a row that no n-gram names must not be touched. Here it would give NaN.
TEST(Engram, OnlyNamedRowsAreRead) {
  Lookup lookup(4, 4);
  for (int64_t row = 0; row < Lookup::kTable; ++row) {
    if (std::find(lookup.table_rows.begin(), lookup.table_rows.end(), row) != lookup.table_rows.end()) continue;
    std::fill_n(lookup.table.begin() + row * Lookup::kDim, Lookup::kDim, uint8_t{0x7f});
    lookup.table_scale[row] = 255;
  }
  for (const float value : run(lookup)) EXPECT_TRUE(std::isfinite(value));
}

TEST(Engram, ZeroTableRowsChangeNothing) {
  Lookup lookup(3, 5);
  std::fill(lookup.table.begin(), lookup.table.end(), uint8_t{0});
  EXPECT_EQ(run(lookup), lookup.streams);
}

TEST(Engram, RowsDoNotDependOnTheirNeighbours) {
  const Lookup together(6, 6);
  on_each_device([&](const Device& device) {
    const auto all = run(together, &device);
    const int64_t width = Lookup::kStreams * Lookup::kHidden;
    for (int64_t r = 0; r < 6; ++r) {
      Lookup alone = together;
      alone.rows = 1;
      alone.table_rows.assign(together.table_rows.begin() + r * 3, together.table_rows.begin() + r * 3 + 3);
      alone.streams.assign(together.streams.begin() + r * width, together.streams.begin() + (r + 1) * width);
      expect_same_bits(run(alone, &device), std::span(all).subspan(r * width, width));
    }
  });
}

}  // namespace
}  // namespace gannet::ops::test

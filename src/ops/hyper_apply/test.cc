#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "ops/hyper_apply/op.h"
#include "ops/testing.h"

namespace gannet::ops::test {
namespace {

struct Boundary {
  int64_t rows, s, hidden;
  std::vector<float> streams, y, post, mix, pre, x, operand;
  std::vector<uint16_t> norm;

  Boundary(int64_t row_count, int64_t streams_per_row, int64_t hidden_size)
      : rows(row_count),
        s(streams_per_row),
        hidden(hidden_size),
        streams(rows * s * hidden),
        y(rows * hidden),
        post(rows * s),
        mix(rows * s * s),
        pre(rows * s),
        x(poisoned(rows * hidden)),
        operand(poisoned(rows * hidden)),
        norm(bf16_ones(hidden)) {}

  HyperApplyParams params(Activations activations = Activations::bf16) {
    return {.streams = streams.data(),
            .rows = rows,
            .streams_per_row = s,
            .hidden = hidden,
            .y = y.data(),
            .post = post.data(),
            .mix = mix.data(),
            .pre = pre.data(),
            .norm = norm.data(),
            .norm_eps = 1e-20F,
            .x = x.data(),
            .operand = operand.data(),
            .activations = activations};
  }
  std::vector<float> outputs() const {
    std::vector<float> all = streams;
    all.insert(all.end(), operand.begin(), operand.end());
    return all;
  }
};

Boundary random_boundary(int64_t rows, int64_t s, int64_t hidden, uint32_t seed) {
  Random random(seed);
  Boundary b(rows, s, hidden);
  b.streams = random.activations(rows * s * hidden);
  b.y = random.activations(rows * hidden);
  b.norm = random.norm_weights(hidden);
  for (float& value : b.post) value = random.uniform(0, 2);
  for (float& value : b.mix) value = random.uniform(0, 1);
  for (float& value : b.pre) value = random.uniform(0, 1);
  return b;
}

// spec: model 3.3, "Sublayer use", in double; streams, then x, as in Boundary::outputs.
std::vector<double> apply_in_double(const Boundary& b, bool round) {
  std::vector<double> streams = doubles(b.streams);
  std::vector<double> x;
  for (int64_t r = 0; r < b.rows; ++r) {
    std::vector<double> z(b.hidden);
    for (int64_t k = 0; k < b.s; ++k) {
      for (int64_t i = 0; i < b.hidden; ++i) {
        double sum = static_cast<double>(b.post[r * b.s + k]) * static_cast<double>(b.y[r * b.hidden + i]);
        for (int64_t j = 0; j < b.s; ++j) {
          sum += static_cast<double>(b.mix[(r * b.s + j) * b.s + k]) *
                 static_cast<double>(b.streams[(r * b.s + j) * b.hidden + i]);
        }
        if (round) sum = oracle::round_bf16(sum);
        streams[(r * b.s + k) * b.hidden + i] = sum;
        z[i] += static_cast<double>(b.pre[r * b.s + k]) * sum;
      }
    }
    auto normed = rms_norm_in_double(z, b.norm, 1e-20);
    if (round) round_all_to_bf16(normed);
    x.insert(x.end(), normed.begin(), normed.end());
  }
  streams.insert(streams.end(), x.begin(), x.end());
  return streams;
}

TEST(HyperApply, MatchesTheFormulasInDouble) {
  for (const int64_t s : {1, 2, 4, 8}) {
    for (const int64_t hidden : {1, 7, 32, 100}) {
      SCOPED_TRACE(std::to_string(s) + " streams of " + std::to_string(hidden));
      Boundary b = random_boundary(3, s, hidden, 1);
      const auto expected = apply_in_double(b, false);
      hyper_apply_reference(b.params(Activations::fp32), 0, b.rows);
      expect_close(b.outputs(), expected, 1e-5, 1e-6);
    }
  }
}

TEST(HyperApply, RoundsStreamsAndResult) {
  Boundary b = random_boundary(4, 4, 64, 2);
  const auto expected = apply_in_double(b, true);
  hyper_apply_reference(b.params(), 0, b.rows);
  expect_bf16_values(b.outputs());
  expect_close(b.outputs(), expected, 2 * kBf16Step, 1e-3);
}

// model 3.3 and trap 4: the first index of the matrix is the source stream.
TEST(HyperApply, MatrixGoesFromSourceToTarget) {
  Boundary b(1, 4, 2);
  for (int i = 0; i < 8; ++i) b.streams[i] = static_cast<float>(i + 1);
  b.mix[0 * 4 + 1] = 1;    // stream 0 to stream 1
  b.mix[3 * 4 + 2] = 0.5;  // half of stream 3 to stream 2
  b.pre = {1, 0, 0, 0};
  hyper_apply_reference(b.params(), 0, 1);
  EXPECT_EQ(b.streams, (std::vector<float>{0, 0, 1, 2, 3.5, 4, 0, 0}));
}

TEST(HyperApply, OutputGoesToEachStreamWithItsPost) {
  Boundary b(1, 4, 2);
  b.y = {2, -3};
  b.post = {1, 0, 2, 0.5};
  b.pre = {1, 0, 0, 0};
  hyper_apply_reference(b.params(), 0, 1);
  EXPECT_EQ(b.streams, (std::vector<float>{2, -3, 0, 0, 4, -6, 1, -1.5}));
}

TEST(HyperApply, NextInputComesFromTheNewStreams) {
  Boundary b(1, 2, 2);
  b.streams = {100, 100, 100, 100};
  b.y = {3, 4};
  b.post = {1, 0};
  b.pre = {0.5, 9};  // of which stream 1, now zero, sees nothing
  hyper_apply_reference(b.params(Activations::fp32), 0, 1);
  expect_close(b.x, std::vector{3 / std::sqrt(12.5), 4 / std::sqrt(12.5)}, 1e-6, 0);
}

// The collapse of channel 0 lies just above the middle of 1 and the next bf16 value; the norm takes it below the
// middle, so the result is 1 unless the collapse was rounded first.
TEST(HyperApply, CollapseIsNotRoundedBeforeItsNorm) {
  Boundary b(1, 2, 64);
  std::fill_n(b.streams.begin(), 64, 1.0F);
  b.streams[64] = 1;
  b.pre = {1, 0x1p-8F + 0x1p-15F};
  auto params = b.params();
  params.y = nullptr;
  hyper_apply_reference(params, 0, 1);
  EXPECT_EQ(b.operand[0], 1.0F);
  EXPECT_EQ(b.operand[1], 1.0F);
}

TEST(HyperApply, WithoutOutputStreamsStayAndTheInputIsMade) {
  Boundary b = random_boundary(3, 4, 32, 3);
  const auto streams = b.streams;
  b.pre.assign(12, 0.0F);
  for (int r = 0; r < 3; ++r) b.pre[r * 4] = 1;
  auto params = b.params(Activations::fp32);
  params.y = params.post = params.mix = nullptr;
  hyper_apply_reference(params, 0, b.rows);
  expect_same_bits(b.streams, streams);
  for (int64_t r = 0; r < 3; ++r) {  // a one-hot pre: the norm of stream 0
    const auto first = doubles(std::span(streams).subspan(r * 4 * 32, 32));
    expect_close(std::span(b.x).subspan(r * 32, 32), rms_norm_in_double(first, b.norm, 1e-20), 1e-6, 0);
  }
}

TEST(HyperApply, ZeroStreamsGiveZeros) {
  Boundary b(1, 4, 32);
  b.pre = {1, 1, 1, 1};
  hyper_apply_reference(b.params(), 0, 1);
  for (const float value : b.outputs()) EXPECT_EQ(value, 0.0F);
}

TEST(HyperApply, EveryDeviceGivesTheReferencesBits) {
  for (const auto& [rows, streams, hidden] :
       {std::tuple{0, 4, 80}, {1, 4, 80}, {2, 4, 7}, {7, 4, 100}, {33, 4, 48}, {3, 2, 40}}) {
    for (const Activations activations : {Activations::bf16, Activations::fp32}) {
      const Boundary b = random_boundary(rows, streams, hidden, 4);
      Boundary expected = b;
      hyper_apply_reference(expected.params(activations), 0, rows);
      on_each_device([&](const Device& device) {
        Boundary run = b;
        hyper_apply(device, run.params(activations));
        expect_same_bits(run.outputs(), expected.outputs());
        expect_same_bits(run.operand, expected.operand);
      });
    }
  }
}

TEST(HyperApply, RowsDoNotDependOnTheirNeighbours) {
  const Boundary all = random_boundary(5, 4, 48, 5);
  on_each_device([&](const Device& device) {
    Boundary together = all;
    hyper_apply(device, together.params());
    Boundary alone(1, 4, 48);
    const int64_t r = 3;
    std::copy_n(all.streams.begin() + r * 192, 192, alone.streams.begin());
    std::copy_n(all.y.begin() + r * 48, 48, alone.y.begin());
    std::copy_n(all.post.begin() + r * 4, 4, alone.post.begin());
    std::copy_n(all.mix.begin() + r * 16, 16, alone.mix.begin());
    std::copy_n(all.pre.begin() + r * 4, 4, alone.pre.begin());
    alone.norm = all.norm;
    hyper_apply(device, alone.params());
    expect_same_bits(alone.operand, std::span(together.operand).subspan(r * 48, 48));
    expect_same_bits(alone.streams, std::span(together.streams).subspan(r * 192, 192));
  });
}

}  // namespace
}  // namespace gannet::ops::test

#include "ops/head/sm90.h"

#include "ops/cuda/testing.h"
#include "ops/hyper_apply/op.h"

namespace gannet::ops::cuda::test {
namespace {

using ops::test::Random;

struct Head {
  int64_t hidden, streams_rows, most;
  std::vector<float> streams, pre;
  std::vector<uint16_t> norm;
  std::vector<int32_t> rows;

  Head(int64_t width, int64_t wanted, int64_t most_rows, uint32_t seed)
      : hidden(width), streams_rows(9), most(most_rows) {
    Random random(seed);
    streams = random.activations(streams_rows * 4 * hidden, 3);
    pre = random.normals(streams_rows * 4);
    norm = random.norm_weights(hidden);
    for (int64_t i = 0; i < wanted; ++i) rows.push_back(static_cast<int32_t>(random.integer(0, streams_rows - 1)));
  }

  std::vector<float> run() const {
    const Array<__nv_bfloat16> device_streams(to_bf16(streams)), device_norm(reinterpret(norm));
    const Array<float> device_pre(pre);
    std::vector<int32_t> padded = rows;
    padded.resize(most);
    const Array<int32_t> device_rows(padded), count(std::vector<int32_t>{static_cast<int32_t>(rows.size())});
    const Array<__nv_bfloat16> x(most * hidden);
    head_input(nullptr, {.streams = device_streams.get(),
                         .pre = device_pre.get(),
                         .rows = device_rows.get(),
                         .count = count.get(),
                         .most = most,
                         .hidden = hidden,
                         .norm = device_norm.get(),
                         .norm_eps = 1e-20F,
                         .x = x.get()});
    EXPECT_TRUE(x.guard_intact());
    return to_float(x.host());
  }
  std::vector<float> reference() const {
    std::vector<float> x(rows.size() * hidden), operand(rows.size() * hidden), copy, factors;
    for (const int32_t row : rows) {
      copy.insert(copy.end(), streams.begin() + row * 4 * hidden, streams.begin() + (row + 1) * 4 * hidden);
      factors.insert(factors.end(), pre.begin() + row * 4, pre.begin() + (row + 1) * 4);
    }
    hyper_apply_reference({.streams = copy.data(),
                           .rows = std::ssize(rows),
                           .streams_per_row = 4,
                           .hidden = hidden,
                           .pre = factors.data(),
                           .norm = norm.data(),
                           .norm_eps = 1e-20F,
                           .x = x.data(),
                           .operand = operand.data(),
                           .activations = Activations::bf16},
                          0, std::ssize(rows));
    return operand;
  }
  static std::vector<__nv_bfloat16> reinterpret(const std::vector<uint16_t>& codes) {
    std::vector<__nv_bfloat16> values(codes.size());
    std::memcpy(static_cast<void*>(values.data()), codes.data(), codes.size() * 2);
    return values;
  }
};

TEST(HeadInputSm90, MatchesTheReference) {
  for (const int64_t hidden : {256, 384, 5120, 32}) {
    const Head head(hidden, 5, 7, 1);
    const auto x = head.run(), expected = head.reference();
    for (size_t i = 0; i < x.size(); ++i) {
      if (i < expected.size()) {
        ASSERT_NEAR(x[i], expected[i], std::fabs(expected[i]) * 0x1p-7F) << i;
      } else {
        ASSERT_TRUE(std::isnan(x[i])) << i;
      }
    }
    for (int i = 0; i < 30; ++i) ASSERT_TRUE(same_bits(head.run(), x));
  }
}

TEST(HeadInputSm90, NoRows) {
  for (const float v : Head(256, 0, 3, 2).run()) EXPECT_TRUE(std::isnan(v));
  Head(256, 0, 0, 2).run();
}

TEST(Benchmark, Head) {
  for (const int64_t rows : {1, 8, 64, 256}) {
    const int64_t hidden = 5120, copies = rows <= 8 ? 50 : 2;
    Array<__nv_bfloat16> streams(copies * rows * 4 * hidden), norm(hidden), x(rows * hidden);
    Array<float> pre(rows * 4);
    std::vector<int32_t> numbers(rows);
    for (int64_t i = 0; i < rows; ++i) numbers[i] = static_cast<int32_t>(i);
    Array<int32_t> wanted(numbers), count(std::vector<int32_t>{static_cast<int32_t>(rows)});
    const double input = time_launch([&](cudaStream_t stream, int i) {
      head_input(stream, {.streams = streams.get() + i % copies * rows * 4 * hidden,
                          .pre = pre.get(),
                          .rows = wanted.get(),
                          .count = count.get(),
                          .most = rows,
                          .hidden = hidden,
                          .norm = norm.get(),
                          .x = x.get()});
    });
    report(("head input, rows " + std::to_string(rows)).c_str(), input, static_cast<double>(rows * hidden * 10), 0);
  }
}

}  // namespace
}  // namespace gannet::ops::cuda::test

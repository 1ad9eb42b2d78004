#include "ops/cuda/testing.h"
#include "ops/cuda/testing_kernels.h"
#include "ops/embed/sm90.h"

namespace gannet::ops::cuda::test {
namespace {

using ops::test::Random;

struct Cut {
  int64_t count, most, hidden;
};

std::vector<float> to_floats(const Array<__nv_bfloat16>& values, int64_t n) {
  auto all = to_float(values.host());
  all.resize(n);
  return all;
}

template <class T>
bool poisoned_from(const Array<T>& array, int64_t first) {
  const auto values = array.host();
  const auto* bytes = reinterpret_cast<const unsigned char*>(values.data());
  return std::all_of(bytes + first * sizeof(T), bytes + values.size() * sizeof(T), [](auto b) { return b == 0xff; });
}

TEST(CudaEmbed, CopiesRowsIntoAllStreams) {
  for (const auto& [count, most, hidden] : {Cut{0, 2, 32}, {1, 1, 384}, {3, 5, 256}, {5, 5, 5120}}) {
    Random random(1);
    constexpr int64_t kVocabulary = 50;
    const auto weight = to_bf16(random.normals(kVocabulary * hidden));
    std::vector<int32_t> ids;
    for (int64_t r = 0; r < most; ++r) ids.push_back(static_cast<int32_t>(random.integer(0, kVocabulary - 1)));
    const Array<__nv_bfloat16> table(weight);
    const Array<int32_t> id_array(ids), counts(std::vector{static_cast<int32_t>(count)});
    const Array<__nv_bfloat16> streams(most * 4 * hidden);
    const Array<float> pre(most * 4);
    embed(nullptr, {.ids = id_array.get(),
                    .count = counts.get(),
                    .most = most,
                    .weight = table.get(),
                    .hidden = hidden,
                    .streams = streams.get(),
                    .pre = pre.get()});
    std::vector<float> expected, expected_pre;
    const auto values = to_float(weight);
    for (int64_t r = 0; r < count; ++r) {
      for (int j = 0; j < 4; ++j) {
        expected.insert(expected.end(), values.begin() + ids[r] * hidden, values.begin() + (ids[r] + 1) * hidden);
        expected_pre.push_back(j == 0 ? 1.0F : 0.0F);
      }
    }
    EXPECT_EQ(to_floats(streams, count * 4 * hidden), expected);
    auto pres = pre.host();
    pres.resize(count * 4);
    EXPECT_EQ(pres, expected_pre);
    EXPECT_TRUE(poisoned_from(streams, count * 4 * hidden) && poisoned_from(pre, count * 4));
    EXPECT_TRUE(streams.guard_intact() && pre.guard_intact());
  }
}

TEST(CudaCutRows, KeepsTheNamedRows) {
  for (const auto& [count, most, hidden] : {Cut{0, 2, 32}, {1, 1, 384}, {3, 5, 256}, {4, 4, 5120}}) {
    Random random(2);
    constexpr int64_t kRows = 9;
    const auto streams = to_bf16(random.normals(kRows * 4 * hidden)), x = to_bf16(random.normals(kRows * hidden)),
               operand = to_bf16(random.normals(kRows * hidden));
    const auto pre = random.normals(kRows * 4);
    const std::vector<int32_t> rows{1, 2, 5, 8, 8};
    const Array<__nv_bfloat16> streams_in(streams), x_in(x), operand_in(operand);
    const Array<float> pre_in(pre), pre_out(most * 4);
    const Array<int32_t> row_array(rows), counts(std::vector{static_cast<int32_t>(count)});
    const Array<__nv_bfloat16> streams_out(most * 4 * hidden), x_out(most * hidden), operand_out(most * hidden);
    cut_rows(nullptr, {.rows = row_array.get(),
                       .count = counts.get(),
                       .most = most,
                       .hidden = hidden,
                       .streams = streams_in.get(),
                       .pre = pre_in.get(),
                       .x = x_in.get(),
                       .operand = operand_in.get(),
                       .streams_out = streams_out.get(),
                       .pre_out = pre_out.get(),
                       .x_out = x_out.get(),
                       .operand_out = operand_out.get()});
    const auto expect_rows = [&](const auto& out, const auto& in, int64_t width) {
      const auto values = out.host();
      for (int64_t r = 0; r < count; ++r) {
        EXPECT_EQ(std::memcmp(&values[r * width], &in[rows[r] * width], width * sizeof(in[0])), 0) << r;
      }
      EXPECT_TRUE(poisoned_from(out, count * width) && out.guard_intact());
    };
    expect_rows(streams_out, streams, 4 * hidden);
    expect_rows(pre_out, pre, 4);
    expect_rows(x_out, x, hidden);
    expect_rows(operand_out, operand, hidden);
  }
}

TEST(Benchmark, Embed) {
  constexpr int64_t kHidden = 5120, kVocabulary = 129280;
  const Array<__nv_bfloat16> weight(kVocabulary * kHidden);
  fill(weight.get(), weight.size(), 1);
  for (const int64_t rows : {1, 64, 8192}) {
    std::vector<int32_t> ids;
    Random random(1);
    for (int64_t i = 0; i < 20 * rows; ++i) ids.push_back(static_cast<int32_t>(random.integer(0, kVocabulary - 1)));
    const Array<int32_t> id_array(ids), count(std::vector{static_cast<int32_t>(rows)});
    const Array<__nv_bfloat16> streams(rows * 4 * kHidden);
    const Array<float> pre(rows * 4);
    const double time = time_launch([&](cudaStream_t stream, int i) {
      embed(stream, {.ids = id_array.get() + i * rows,
                     .count = count.get(),
                     .most = rows,
                     .weight = weight.get(),
                     .hidden = kHidden,
                     .streams = streams.get(),
                     .pre = pre.get()});
    });
    report(("embed, rows: " + std::to_string(rows)).c_str(), time, static_cast<double>(rows * kHidden * 10), 0);
  }
}

}  // namespace
}  // namespace gannet::ops::cuda::test

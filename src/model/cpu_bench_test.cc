#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "checkpoint/shapes.h"
#include "model/model_bench.h"

namespace gannet {
namespace {

Config small() {
  return named_shape("small", [](int64_t) -> Result<int64_t> { return 400; }).value();
}

constexpr int64_t kContext = 128;

ModelBenchOptions options(int64_t layers) {
  return {.unique_experts = 4,
          .layers = layers,
          .threads = 2,
          .max_rows = 64,
          .max_sequences = 2,
          .max_tokens = 2 * kContext,
          .cache_tokens = 4 * kContext};
}

const ModelBench::OpTime& op(const std::vector<ModelBench::OpTime>& ops, std::string_view name) {
  const auto found = std::find_if(ops.begin(), ops.end(), [&](const auto& each) { return each.name == name; });
  if (found != ops.end()) return *found;
  ADD_FAILURE() << "no " << name;
  static const ModelBench::OpTime kNone;
  return kNone;
}

TEST(CpuBench, LaunchesOfSomeLayersAreExtrapolatedToAll) {
  auto bench = create_cpu_bench(small(), options(3));
  ASSERT_TRUE(bench) << bench.error().message;
  EXPECT_FALSE((*bench)->runs_all_layers());
  const auto ops = (*bench)->ops(2, kContext);
  EXPECT_EQ(op(ops, "wq_b").launches, 10);
  EXPECT_EQ(op(ops, "experts").launches, 10);
  EXPECT_EQ(op(ops, "hyper mix").launches, 20);
  EXPECT_EQ(op(ops, "compressor").launches, 3);   // one for each source
  EXPECT_EQ(op(ops, "index query").launches, 4);  // one for each index source
  EXPECT_EQ(op(ops, "head").launches, 1);
  for (const auto& each : ops) EXPECT_GT(each.best_seconds, 0) << each.name;
}

TEST(CpuBench, PassesOfSomeLayersAreExtrapolatedToAll) {
  auto bench = create_cpu_bench(small(), options(3));
  ASSERT_TRUE(bench) << bench.error().message;
  const auto step = (*bench)->decode(2, kContext, 3);
  EXPECT_GT(step.seconds, 0);
  EXPECT_GT(step.all_seconds, step.seconds);
  EXPECT_GT(step.all_bytes, step.bytes);
  EXPECT_GE(step.active_experts, 2);
  EXPECT_LE(step.active_experts, 4);
  const auto prompt = (*bench)->prefill(kContext, false);
  EXPECT_GT(prompt.all_seconds, prompt.seconds);
  EXPECT_THAT((*bench)->weights_text(), testing::HasSubstr("extrapolation"));
}

TEST(CpuBench, BytesOfAStepAreThoseOfItsWeightsAndRecords) {
  auto bench = create_cpu_bench(small(), options(3));
  ASSERT_TRUE(bench) << bench.error().message;
  const auto ops = (*bench)->ops(1, kContext);
  // FP8 [4 heads * 64, 64], a scale for each 32x32; ten layers.
  EXPECT_DOUBLE_EQ(op(ops, "wq_b").bytes, 10 * (256.0 * 64 + 256.0 * 64 / 1024));
  EXPECT_DOUBLE_EQ(op(ops, "wq_b").operations, 10 * 2.0 * 256 * 64);
  // A window of 16 records of 66 bytes, 8 entries of 36.
  EXPECT_DOUBLE_EQ(op(ops, "attention").bytes, 8 * (16.0 * 66 + 8 * 36));
  EXPECT_EQ(op(ops, "hyper mix").operations, 0);
  EXPECT_DOUBLE_EQ(op(ops, "hyper mix").vector_operations, 20 * 2.0 * 24 * 4 * 128);
}

TEST(CpuBench, WeightsThatDoNotFitAreRefused) {
  Config config = small();
  config.vocab_size = int64_t{1} << 40;
  const auto bench = create_cpu_bench(config, options(3));
  ASSERT_FALSE(bench);
  EXPECT_THAT(bench.error().message, testing::HasSubstr("GiB are available"));
}

}  // namespace
}  // namespace gannet

#include "model/cuda/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/shapes.h"
#include "model/cuda/geometry.h"

// What can be known without a GPU.
namespace gannet {
namespace {

using testing::HasSubstr;

constexpr double kGib = 0x1p30;

CudaMemoryPlan plan_of(int64_t unique_experts, int64_t blocks, int64_t sequences) {
  const Config& config = released_config();
  const BlockPool pool(block_layout(config, 64), blocks);
  return plan_cuda_memory(TensorSource(config, {.unique_experts = unique_experts}), pool,
                          {.max_rows = 4096, .max_sequences = sequences, .max_tokens = 1 << 20});
}

TEST(CudaMemoryPlan, WeightsOfTheReleasedShape) {
  // All experts are 289 GB of MXFP4, everything else but tables, draft and vision 10 GB.
  EXPECT_NEAR(static_cast<double>(plan_of(384, 1, 1).weights) / 1e9, 299, 2);
  EXPECT_NEAR(static_cast<double>(plan_of(128, 1, 1).weights) / kGib, 98.8, 1);
}

TEST(CudaMemoryPlan, ATokenOfContextTakes890Bytes) {
  constexpr int64_t kBlocks = 10'000;
  const int64_t more = plan_of(128, 2 * kBlocks, 1).cache - plan_of(128, kBlocks, 1).cache;
  EXPECT_NEAR(static_cast<double>(more) / (kBlocks * 64), 890, 0.01);
}

TEST(CudaMemoryPlan, ASequenceTakesItsWindowsPendingPairsAndTable) {
  constexpr int64_t kWindows = 40 * 128 * 528;
  constexpr int64_t kPending = 4 * 2 * 512 * 4;
  constexpr int64_t kTable = (1 << 20) / 64 * 4;
  const int64_t more = plan_of(128, 1, 65).cache - plan_of(128, 1, 1).cache;
  EXPECT_EQ(more, 64 * (kWindows + kPending + kTable));
}

TEST(CudaMemoryPlan, SaysWhatItIs) {
  EXPECT_THAT(plan_of(128, 1, 1).text(), HasSubstr("weights 98."));
}

TEST(CudaGeometry, TakesTheReleasedShape) {
  EXPECT_TRUE(check_cuda_config(released_config()));
}

TEST(CudaGeometry, RefusesByName) {
  const auto message = [](void (*change)(Config&)) {
    Config config = released_config();
    change(config);
    const Status status = check_cuda_config(config);
    return status ? std::string() : status.error().message;
  };
  EXPECT_THAT(message([](Config& c) { c.head_dim = 128; }), HasSubstr("head_dim is 128"));
  EXPECT_THAT(message([](Config& c) { c.qk_rope_head_dim = 32; }), HasSubstr("qk_rope_head_dim is 32"));
  EXPECT_THAT(message([](Config& c) { c.index_head_dim = 64; }), HasSubstr("index_head_dim is 64"));
  EXPECT_THAT(message([](Config& c) { c.index_topk = 1024; }), HasSubstr("index_topk is 1024"));
  EXPECT_THAT(message([](Config& c) { c.hc_mult = 2; }), HasSubstr("hc_mult is 2"));
  EXPECT_THAT(message([](Config& c) { c.sliding_window = 256; }), HasSubstr("sliding_window is 256"));
  EXPECT_THAT(message([](Config& c) { c.hidden_size = 5100; }), HasSubstr("hidden_size is 5100"));
  EXPECT_THAT(message([](Config& c) { c.engram_layer_ids = {1, 30}; }), HasSubstr("engram_layer_ids is 30"));
}

}  // namespace
}  // namespace gannet

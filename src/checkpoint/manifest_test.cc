#include "checkpoint/manifest.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace gannet {
namespace {

std::map<std::string, TensorSpec> by_name(const Config& config) {
  std::map<std::string, TensorSpec> result;
  for (auto& spec : manifest(config)) result.emplace(spec.name, spec);
  return result;
}

// The audited totals of the released checkpoint (spec: model 1.3).
TEST(Manifest, ReleasedTotals) {
  const auto sums = totals(manifest(released_config()));
  EXPECT_EQ(sums.all.tensors, 96085);
  EXPECT_EQ(sums.all.bytes, 510286023000);
  EXPECT_EQ(sums.all.parameters, 763205315794);
}

TEST(Manifest, ReleasedGroups) {
  const auto sums = totals(manifest(released_config()));
  const auto expect = [&](TensorGroup group, int64_t tensors, int64_t bytes, int64_t parameters) {
    const auto& count = sums.by_group[static_cast<size_t>(group)];
    EXPECT_EQ(count.tensors, tensors) << name_of(group);
    EXPECT_EQ(count.bytes, bytes) << name_of(group);
    EXPECT_EQ(count.parameters, parameters) << name_of(group);
  };
  expect(TensorGroup::routed_experts, 92160, 288777830400, 543581798400);
  expect(TensorGroup::attention, 603, 5151966208, 5126769664);
  expect(TensorGroup::shared_experts, 240, 1416960000, 1415577600);
  expect(TensorGroup::engram_tables, 4, 202758032400, 196613849600);
  expect(TensorGroup::engram_projections, 8, 315043840, 314654720);
  expect(TensorGroup::embed, 1, 1323827200, 661913600);
  expect(TensorGroup::head, 1, 1323827200, 661913600);
  expect(TensorGroup::norms_mixes_routers, 401, 315124160, 118207600);
  expect(TensorGroup::draft, 2401, 7932874632, 14225362530);
  expect(TensorGroup::vision, 266, 970536960, 485268480);
}

TEST(Manifest, ReleasedDTypes) {
  const auto sums = totals(manifest(released_config()));
  const auto tensors = [&](DType dtype) { return sums.by_dtype[static_cast<size_t>(dtype)].tensors; };
  EXPECT_EQ(tensors(DType::f8_e8m0), 47589);
  EXPECT_EQ(tensors(DType::i8), 47232);
  EXPECT_EQ(tensors(DType::bf16), 520);
  EXPECT_EQ(tensors(DType::f32), 387);
  EXPECT_EQ(tensors(DType::f8_e4m3), 357);
  EXPECT_EQ(tensors(DType::i32), 0);
}

// Tensors of one layer, as the released shards hold them (spec: model 1.3).
TEST(Manifest, ReleasedLayers) {
  std::map<std::string, int> count;
  for (const auto& spec : manifest(released_config())) {
    ++count[spec.name.substr(0, spec.name.find('.', spec.name.find('.') + 1))];
  }
  EXPECT_EQ(count["layers.0"], 2334);
  EXPECT_EQ(count["layers.1"], 2340);
  EXPECT_EQ(count["layers.2"], 2342);
  EXPECT_EQ(count["layers.14"], 2348);
  EXPECT_EQ(count["layers.20"], 2341);
  EXPECT_EQ(count["layers.24"], 2337);
}

TEST(Manifest, ReleasedShapes) {
  const auto specs = by_name(released_config());
  const auto expect = [&](const char* name, DType dtype, std::vector<int64_t> shape) {
    ASSERT_TRUE(specs.contains(name)) << name;
    EXPECT_EQ(describe(specs.at(name).dtype, specs.at(name).shape), describe(dtype, shape)) << name;
  };
  expect("embed.weight", DType::bf16, {129280, 5120});
  expect("layers.0.hc_attn_fn", DType::f32, {24, 20480});
  expect("layers.0.attn.wq_b.weight", DType::f8_e4m3, {32768, 1280});
  expect("layers.0.attn.wq_b.scale", DType::f8_e8m0, {1024, 40});
  expect("layers.39.attn.wo_a.weight", DType::f8_e4m3, {8192, 4096});
  expect("layers.39.attn.wo_a.scale", DType::f8_e8m0, {256, 128});
  expect("layers.7.ffn.experts.383.w1.weight", DType::i8, {2304, 2560});
  expect("layers.7.ffn.experts.383.w1.scale", DType::f8_e8m0, {2304, 160});
  expect("layers.7.ffn.experts.383.w2.weight", DType::i8, {5120, 1152});
  expect("layers.7.ffn.experts.383.w2.scale", DType::f8_e8m0, {5120, 72});
  expect("layers.8.attn.compressor.wgate.weight", DType::bf16, {512, 5120});
  expect("layers.20.attn.indexer.wk.weight", DType::bf16, {128, 512});
  expect("layers.36.attn.indexer.wq_b.scale", DType::f8_e8m0, {128, 40});
  expect("layers.14.engram.embed.scale", DType::f8_e8m0, {384016682, 8});
  expect("layers.1.engram.wkv.weight", DType::f8_e4m3, {25600, 6144});
  expect("layers.1.engram.wkv.scale", DType::f8_e8m0, {800, 192});
  expect("mtp.0.main_proj.scale", DType::f8_e8m0, {160, 480});
  expect("mtp.2.confidence_head.proj.weight", DType::bf16, {1, 5376});
  expect("mtp.1.ffn.gate.bias_vl", DType::f32, {128});
  expect("vision.patch_embed.proj.weight", DType::bf16, {1024, 588});
  expect("vision.blocks.31.mlp.w1.weight", DType::bf16, {5632, 1024});
  expect("aligner.w1.weight", DType::bf16, {5120, 9216});
}

TEST(Manifest, NoTensorTwice) {
  std::set<std::string> names;
  for (const auto& spec : manifest(released_config())) EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
}

TEST(Manifest, AbsentParts) {
  auto config = released_config();
  config.has_vision = false;
  config.num_nextn_predict_layers = 0;
  config.engram_layer_ids.clear();
  const auto sums = totals(manifest(config));
  for (const auto group :
       {TensorGroup::vision, TensorGroup::draft, TensorGroup::engram_tables, TensorGroup::engram_projections}) {
    EXPECT_EQ(sums.by_group[static_cast<size_t>(group)].tensors, 0) << name_of(group);
  }
  EXPECT_EQ(sums.all.tensors, 96085 - 266 - 2401 - 12);
}

TEST(Manifest, ShapesRoundBlocksUp) {
  auto config = released_config();
  config.index_n_heads = 1;
  config.index_head_dim = 32;
  config.hidden_size = 160;
  const auto specs = by_name(config);
  EXPECT_EQ(specs.at("layers.2.attn.indexer.wq_b.scale").shape, (std::vector<int64_t>{1, 40}));
  EXPECT_EQ(specs.at("layers.0.ffn.experts.0.w1.scale").shape, (std::vector<int64_t>{2304, 5}));
}

}  // namespace
}  // namespace gannet

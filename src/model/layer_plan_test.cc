#include "model/layer_plan.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "checkpoint/shapes.h"

namespace gannet {
namespace {

using enum LayerRole;

Result<int64_t> some_classes(int64_t) {
  return 100;
}

ModelPlan shape_plan(std::string_view name) {
  return plan_layers(named_shape(name, some_classes).value());
}

// One row of a plan: role, ratio, the layer of the entries and that of the selection, both -1 for none, and what it
// has to do with candidates: '-', 's'ource or 'r'estricted.
struct Row {
  LayerRole role;
  int64_t ratio;
  int64_t entries;
  int64_t selection;
  char candidates = '-';
};

void expect_plan(const ModelPlan& plan, const std::vector<Row>& rows) {
  ASSERT_EQ(plan.layers.size(), rows.size());
  for (size_t n = 0; n < rows.size(); ++n) {
    SCOPED_TRACE("layer " + std::to_string(n));
    const LayerPlan& layer = plan.layers[n];
    EXPECT_EQ(layer.role, rows[n].role);
    EXPECT_EQ(layer.ratio, rows[n].ratio);
    EXPECT_EQ(layer.kv_source_layer, rows[n].entries);
    EXPECT_EQ(layer.index_source_layer, rows[n].selection);
    EXPECT_EQ(layer.makes_candidates, rows[n].candidates == 's');
    EXPECT_EQ(layer.restricted, rows[n].candidates == 'r');
    EXPECT_EQ(layer.decoder, static_cast<int64_t>(n) >= plan.seam);
  }
}

std::vector<int64_t> engram_layers(const ModelPlan& plan) {
  std::vector<int64_t> layers;
  for (size_t n = 0; n < plan.layers.size(); ++n) {
    if (plan.layers[n].engram < 0) continue;
    EXPECT_EQ(plan.layers[n].engram, static_cast<int64_t>(layers.size()));
    layers.push_back(static_cast<int64_t>(n));
  }
  return layers;
}

// The table of spec: model 2, line by line.
TEST(LayerPlan, Released) {
  std::vector<Row> rows(2, {window_only, 0, -1, -1});
  for (const int64_t source : {2, 8, 14}) {
    rows.push_back({full, 2, source, source});
    rows.insert(rows.end(), 5, {reuse, 2, source, source});
  }
  rows.push_back({full, 1, 20, 20, 's'});
  rows.insert(rows.end(), 3, {reuse, 1, 20, 20});
  for (const int64_t source : {24, 28, 32, 36}) {
    rows.push_back({reindex, 1, 20, source, 'r'});
    rows.insert(rows.end(), 3, {reuse, 1, 20, source});
  }
  const ModelPlan plan = plan_layers(released_config());
  EXPECT_EQ(plan.seam, 20);
  expect_plan(plan, rows);
  EXPECT_EQ(engram_layers(plan), (std::vector<int64_t>{1, 14}));
}

TEST(LayerPlan, EntriesAreNumberedBySource) {
  const Config& config = released_config();
  for (const LayerPlan& layer : plan_layers(config).layers) {
    if (layer.role == window_only) {
      EXPECT_EQ(layer.kv_source, -1);
    } else {
      EXPECT_EQ(config.kv_source_layer_ids.at(layer.kv_source), layer.kv_source_layer);
    }
  }
}

TEST(LayerPlan, SmallShape) {
  const ModelPlan plan = shape_plan("small");
  EXPECT_EQ(plan.seam, 6);
  expect_plan(plan, {{window_only, 0, -1, -1},
                     {window_only, 0, -1, -1},
                     {full, 2, 2, 2},
                     {reuse, 2, 2, 2},
                     {full, 2, 4, 4},
                     {reuse, 2, 4, 4},
                     {full, 1, 6, 6, 's'},
                     {reuse, 1, 6, 6},
                     {reindex, 1, 6, 8, 'r'},
                     {reuse, 1, 6, 8}});
  EXPECT_EQ(engram_layers(plan), (std::vector<int64_t>{1, 5}));
}

TEST(LayerPlan, HeadsShape) {
  const ModelPlan plan = shape_plan("heads");
  EXPECT_EQ(plan.seam, 4);
  expect_plan(plan, {{window_only, 0, -1, -1},
                     {full, 2, 1, 1},
                     {reuse, 2, 1, 1},
                     {reuse, 2, 1, 1},
                     {full, 1, 4, 4, 's'},
                     {reuse, 1, 4, 4},
                     {reindex, 1, 4, 6, 'r'},
                     {reuse, 1, 4, 6}});
  EXPECT_EQ(engram_layers(plan), (std::vector<int64_t>{2}));
}

TEST(LayerPlan, LongShape) {
  const ModelPlan plan = shape_plan("long");
  EXPECT_EQ(plan.seam, 3);
  expect_plan(plan, {{window_only, 0, -1, -1},
                     {full, 2, 1, 1},
                     {reuse, 2, 1, 1},
                     {full, 1, 3, 3, 's'},
                     {reuse, 1, 3, 3},
                     {reindex, 1, 3, 5, 'r'}});
  EXPECT_TRUE(engram_layers(plan).empty());
}

// Sources from the first layer on, candidates from a layer that owns no keys, window-only layers between.
TEST(LayerPlan, OddShape) {
  const ModelPlan plan = shape_plan("odd");
  EXPECT_EQ(plan.seam, 4);
  expect_plan(plan, {{full, 1, 0, 0},
                     {full, 1, 1, 1},
                     {window_only, 0, -1, -1},
                     {reindex, 1, 1, 3},
                     {full, 2, 4, 4},
                     {reuse, 2, 4, 4},
                     {reindex, 2, 4, 6, 's'},
                     {reindex, 2, 4, 7, 'r'},
                     {reuse, 2, 4, 7}});
  EXPECT_EQ(engram_layers(plan), (std::vector<int64_t>{0, 7}));
}

TEST(LayerPlan, WithoutSourcesAllLayersAreEncoder) {
  Config config = released_config();
  config.num_hidden_layers = 3;
  config.compress_ratios = {0, 0, 0};
  config.kv_source_layer_ids.clear();
  config.index_source_layer_ids.clear();
  config.candidate_source_layer_id = -1;
  config.engram_layer_ids.clear();
  const ModelPlan plan = plan_layers(config);
  EXPECT_EQ(plan.seam, 3);
  expect_plan(plan, std::vector<Row>(3, {window_only, 0, -1, -1}));
}

TEST(LayerPlan, RolesHaveTheReportsNames) {
  EXPECT_EQ(name_of(window_only), "SWA only");
  EXPECT_EQ(name_of(full), "Full");
  EXPECT_EQ(name_of(reindex), "Reindex");
  EXPECT_EQ(name_of(reuse), "Reuse");
}

}  // namespace
}  // namespace gannet

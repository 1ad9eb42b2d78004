#include "model/layer_plan.h"

#include <algorithm>

namespace gannet {
namespace {

int64_t index_of(const std::vector<int64_t>& layers, int64_t layer) {
  const auto found = std::find(layers.begin(), layers.end(), layer);
  return found == layers.end() ? -1 : found - layers.begin();
}

}  // namespace

std::string_view name_of(LayerRole role) {
  switch (role) {
    case LayerRole::window_only:
      return "SWA only";
    case LayerRole::full:
      return "Full";
    case LayerRole::reindex:
      return "Reindex";
    case LayerRole::reuse:
      return "Reuse";
  }
  return "";
}

ModelPlan plan_layers(const Config& config) {
  ModelPlan plan;
  plan.layers.resize(config.num_hidden_layers);
  plan.seam = config.kv_source_layer_ids.empty() ? config.num_hidden_layers : config.kv_source_layer_ids.back();
  int64_t kv_source = -1;
  int64_t index_source = -1;
  for (int64_t n = 0; n < config.num_hidden_layers; ++n) {
    LayerPlan& layer = plan.layers[n];
    layer.decoder = n >= plan.seam;
    layer.engram = index_of(config.engram_layer_ids, n);
    layer.ratio = config.compress_ratios[n];
    if (layer.ratio == 0) continue;
    const int64_t owned = index_of(config.kv_source_layer_ids, n);
    const bool selects = index_of(config.index_source_layer_ids, n) >= 0;
    if (owned >= 0) kv_source = owned;
    if (selects) index_source = n;
    layer.role = owned >= 0 ? LayerRole::full : selects ? LayerRole::reindex : LayerRole::reuse;
    layer.kv_source = kv_source;
    layer.kv_source_layer = config.kv_source_layer_ids[kv_source];
    layer.index_source_layer = index_source;
    layer.makes_candidates = n == config.candidate_source_layer_id;
    layer.restricted = selects && config.candidate_source_layer_id >= 0 && n > config.candidate_source_layer_id;
  }
  return plan;
}

}  // namespace gannet

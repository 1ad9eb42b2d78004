#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "checkpoint/config.h"

namespace gannet {

// What a layer does for global attention (spec: model 2).
enum class LayerRole {
  window_only,  // attends to its window alone
  full,         // projects global KV and index keys, and selects entries
  reindex,      // selects entries anew among a source's, by the source's keys
  reuse,        // attends to the entries that the nearest index source selected
};
std::string_view name_of(LayerRole role);

struct LayerPlan {
  LayerRole role = LayerRole::window_only;
  int64_t ratio = 0;       // tokens per global entry; 0: no global attention
  int64_t kv_source = -1;  // number in kv_source_layer_ids of the entries it reads; -1: none
  int64_t kv_source_layer = -1;
  int64_t index_source_layer = -1;  // the layer whose selection it uses, itself included; -1: none
  bool makes_candidates = false;    // restricts the selections of later index sources
  bool restricted = false;          // selects among the candidates only
  int64_t engram = -1;              // number in engram_layer_ids; -1: none
  bool decoder = false;             // may run on kept rows only
};

// The whole model's plan, derived from the config alone.
struct ModelPlan {
  std::vector<LayerPlan> layers;
  // The seam of the causal encoder-decoder: the last KV source. Its entries and keys are made for every row; the rest
  // of it and all later layers need only the rows that are kept. The number of layers when there is no source.
  int64_t seam = 0;
};
ModelPlan plan_layers(const Config& config);

}  // namespace gannet

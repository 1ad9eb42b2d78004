#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/safetensors.h"

namespace gannet {

// What a tensor belongs to, as memory plans count it (spec: model 1.3).
enum class TensorGroup {
  routed_experts,
  attention,  // with attn_norm, compressor and indexer
  shared_experts,
  engram_tables,
  engram_projections,
  embed,
  head,
  norms_mixes_routers,  // ffn_norm and norm, hyper-connections, gates
  draft,                // everything under mtp.
  vision,               // with the aligner and the three image vectors
};
inline constexpr size_t kTensorGroups = 10;
inline constexpr size_t kDTypes = 6;
std::string_view name_of(TensorGroup group);

struct TensorSpec {
  std::string name;
  DType dtype;
  std::vector<int64_t> shape;
  TensorGroup group;

  int64_t bytes() const;
  // Numbers of the model that it holds: two to a byte of FP4; scales are none.
  int64_t parameters() const;
};

// Every tensor that a checkpoint of this config has (spec: model 1.4), layer by layer. An FP8 or FP4 linear X is two:
// X.weight and X.scale, one after the other.
std::vector<TensorSpec> manifest(const Config& config);

struct TensorCount {
  int64_t tensors = 0;
  int64_t bytes = 0;
  int64_t parameters = 0;
  void add(const TensorSpec& spec);
};

struct ManifestTotals {
  TensorCount all;
  std::array<TensorCount, kTensorGroups> by_group;  // index: TensorGroup
  std::array<TensorCount, kDTypes> by_dtype;        // index: DType
};
ManifestTotals totals(const std::vector<TensorSpec>& manifest);

}  // namespace gannet

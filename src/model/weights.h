#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "model/layer_plan.h"
#include "ops/experts/op.h"
#include "ops/linear/op.h"

namespace gannet {

// Weights of the backbone as typed views of the mapped checkpoint (names and shapes: spec, model 1.4).
struct HyperSite {
  const float* fn = nullptr;     // [(2 + s) s, s * hidden]
  const float* base = nullptr;   // [(2 + s) s]
  const float* scale = nullptr;  // [3]
};

struct CompressorWeights {
  ops::WeightMatrix wkv;
  std::optional<ops::WeightMatrix> wgate;  // ratio 2 only
  const uint16_t* norm = nullptr;
  ops::WeightMatrix index_key;
  const uint16_t* index_norm = nullptr;
};

struct IndexerWeights {
  ops::WeightMatrix wq_b;
  ops::WeightMatrix weights_proj;
};

struct EngramWeights {
  const uint8_t* table = nullptr;
  const uint8_t* table_scale = nullptr;
  ops::WeightMatrix wkv;
  const uint16_t* q_weight = nullptr;
  const uint16_t* k_weight = nullptr;
};

struct LayerWeights {
  HyperSite attention_site, ffn_site;
  const uint16_t* attention_norm = nullptr;
  const uint16_t* ffn_norm = nullptr;
  const float* sink = nullptr;
  const uint16_t* q_norm = nullptr;
  const uint16_t* kv_norm = nullptr;
  ops::WeightMatrix wq_a, wq_b, wkv, wo_a, wo_b;
  std::optional<CompressorWeights> compressor;
  std::optional<IndexerWeights> indexer;
  std::optional<EngramWeights> engram;
  ops::WeightMatrix gate;
  const float* gate_bias = nullptr;
  std::vector<ops::ExpertWeights> experts;
  ops::ExpertWeights shared;
};

class Weights {
 public:
  // `checkpoint` must outlive the weights.
  explicit Weights(const Checkpoint& checkpoint);

  const uint16_t* embedding() const { return embedding_; }
  const uint16_t* norm() const { return norm_; }
  const ops::WeightMatrix& head() const { return head_; }
  const LayerWeights& layer(int64_t n) const { return layers_[n]; }

 private:
  LayerWeights load_layer(int64_t n, const LayerPlan& plan);
  void load_attention(LayerWeights& layer, int64_t n, const LayerPlan& plan);
  void load_ffn(LayerWeights& layer, int64_t n);
  ops::WeightMatrix matrix(const std::string& name);
  ops::ExpertWeights expert(const std::string& name);
  HyperSite site(const std::string& name);
  const float* f32(const std::string& name);
  const uint16_t* bf16(const std::string& name);
  const uint8_t* bytes(const std::string& name);
  const std::byte* aligned(const std::string& name, size_t alignment);

  const Checkpoint* checkpoint_;
  // Copies of tensors that the file happens to place at an odd address; tables and experts are bytes and never copied.
  std::deque<std::vector<float>> realigned_;
  const uint16_t* embedding_ = nullptr;
  const uint16_t* norm_ = nullptr;
  ops::WeightMatrix head_;
  std::vector<LayerWeights> layers_;
};

}  // namespace gannet

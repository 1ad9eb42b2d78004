#include "model/weights.h"

#include <cstring>
#include <string>

#include "base/error.h"

namespace gannet {
namespace {

ops::WeightFormat format_of(DType dtype) {
  switch (dtype) {
    case DType::f8_e4m3:
      return ops::WeightFormat::fp8;
    case DType::i8:
      return ops::WeightFormat::mxfp4;
    case DType::bf16:
      return ops::WeightFormat::bf16;
    default:
      return ops::WeightFormat::f32;
  }
}

size_t alignment_of(ops::WeightFormat format) {
  switch (format) {
    case ops::WeightFormat::bf16:
      return alignof(uint16_t);
    case ops::WeightFormat::f32:
      return alignof(float);
    default:
      return 1;
  }
}

}  // namespace

Weights::Weights(const Checkpoint& checkpoint) : checkpoint_(&checkpoint) {
  embedding_ = bf16("embed.weight");
  norm_ = bf16("norm.weight");
  head_ = matrix("head");
  const ModelPlan plan = plan_layers(checkpoint.config());
  for (int64_t n = 0; n < checkpoint.config().num_hidden_layers; ++n) layers_.push_back(load_layer(n, plan.layers[n]));
}

LayerWeights Weights::load_layer(int64_t n, const LayerPlan& plan) {
  LayerWeights layer;
  load_attention(layer, n, plan);
  load_ffn(layer, n);
  const std::string p = fmt::format("layers.{}.", n);
  layer.attention_site = site(p + "hc_attn");
  layer.ffn_site = site(p + "hc_ffn");
  layer.attention_norm = bf16(p + "attn_norm.weight");
  layer.ffn_norm = bf16(p + "ffn_norm.weight");
  if (plan.engram >= 0) {
    layer.engram = EngramWeights{.table = bytes(p + "engram.embed.weight"),
                                 .table_scale = bytes(p + "engram.embed.scale"),
                                 .wkv = matrix(p + "engram.wkv"),
                                 .q_weight = bf16(p + "engram.q_weight"),
                                 .k_weight = bf16(p + "engram.k_weight")};
  }
  return layer;
}

void Weights::load_attention(LayerWeights& layer, int64_t n, const LayerPlan& plan) {
  const std::string p = fmt::format("layers.{}.attn.", n);
  layer.sink = f32(p + "attn_sink");
  layer.q_norm = bf16(p + "q_norm.weight");
  layer.kv_norm = bf16(p + "kv_norm.weight");
  layer.wq_a = matrix(p + "wq_a");
  layer.wq_b = matrix(p + "wq_b");
  layer.wkv = matrix(p + "wkv");
  layer.wo_a = matrix(p + "wo_a");
  layer.wo_b = matrix(p + "wo_b");
  if (plan.role == LayerRole::full) {
    CompressorWeights compressor{.wkv = matrix(p + "compressor.wkv"),
                                 .wgate = {},
                                 .norm = bf16(p + "compressor.norm.weight"),
                                 .index_key = matrix(p + "indexer.wk"),
                                 .index_norm = bf16(p + "indexer.k_norm.weight")};
    if (plan.ratio > 1) compressor.wgate = matrix(p + "compressor.wgate");
    layer.compressor = compressor;
  }
  if (plan.role == LayerRole::full || plan.role == LayerRole::reindex) {
    layer.indexer =
        IndexerWeights{.wq_b = matrix(p + "indexer.wq_b"), .weights_proj = matrix(p + "indexer.weights_proj")};
  }
}

void Weights::load_ffn(LayerWeights& layer, int64_t n) {
  const std::string p = fmt::format("layers.{}.ffn.", n);
  layer.gate = matrix(p + "gate");
  layer.gate_bias = f32(p + "gate.bias");
  for (int64_t e = 0; e < checkpoint_->config().n_routed_experts; ++e) {
    layer.experts.push_back(expert(fmt::format("{}experts.{}", p, e)));
  }
  layer.shared = expert(p + "shared_experts");
}

ops::ExpertWeights Weights::expert(const std::string& name) {
  return {.w1 = matrix(name + ".w1"), .w2 = matrix(name + ".w2"), .w3 = matrix(name + ".w3")};
}

HyperSite Weights::site(const std::string& name) {
  return {.fn = f32(name + "_fn"), .base = f32(name + "_base"), .scale = f32(name + "_scale")};
}

ops::WeightMatrix Weights::matrix(const std::string& name) {
  const TensorView& tensor = checkpoint_->tensor(name + ".weight");
  ops::WeightMatrix matrix{.format = format_of(tensor.dtype), .rows = tensor.shape[0], .cols = tensor.shape[1]};
  if (matrix.format == ops::WeightFormat::mxfp4) matrix.cols *= 2;
  matrix.data = aligned(name + ".weight", alignment_of(matrix.format));
  const bool scaled = matrix.format == ops::WeightFormat::fp8 || matrix.format == ops::WeightFormat::mxfp4;
  if (scaled) matrix.scale = bytes(name + ".scale");
  return matrix;
}

const float* Weights::f32(const std::string& name) {
  return reinterpret_cast<const float*>(aligned(name, alignof(float)));
}

const uint16_t* Weights::bf16(const std::string& name) {
  return reinterpret_cast<const uint16_t*>(aligned(name, alignof(uint16_t)));
}

const uint8_t* Weights::bytes(const std::string& name) {
  return reinterpret_cast<const uint8_t*>(checkpoint_->tensor(name).bytes.data());
}

const std::byte* Weights::aligned(const std::string& name, size_t alignment) {
  const auto tensor = checkpoint_->tensor(name).bytes;
  if (reinterpret_cast<uintptr_t>(tensor.data()) % alignment == 0) return tensor.data();
  auto& copy = realigned_.emplace_back((tensor.size() + sizeof(float) - 1) / sizeof(float));
  std::memcpy(copy.data(), tensor.data(), tensor.size());
  return reinterpret_cast<const std::byte*>(copy.data());
}

}  // namespace gannet

#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "model/cuda/memory.h"
#include "model/cuda/tensor_source.h"
#include "model/layer_plan.h"
#include "ops/cuda/packed_matrix.h"
#include "ops/cuda/pinned_memory.h"
#include "ops/experts/sm90.h"

namespace gannet {

// The backbone's weights on the device, packed (ops/cuda/packed_matrix.h). Products that share an input and a format
// are one matrix.
struct CudaHyperSite {
  const float* fn = nullptr;
  const float* base = nullptr;
  const float* scale = nullptr;
};

struct CudaCompressorWeights {
  ops::cuda::PackedMatrix projection;  // wkv [512], and at ratio 2 wgate [512]
  const __nv_bfloat16* norm = nullptr;
  ops::cuda::PackedMatrix index_key;
  const __nv_bfloat16* index_norm = nullptr;
};

struct CudaIndexerWeights {
  ops::cuda::PackedMatrix wq_b;
  ops::cuda::PackedMatrix weights_proj;
};

struct CudaEngramWeights {
  const uint8_t* table = nullptr;  // pinned host memory
  const uint8_t* table_scale = nullptr;
  int64_t table_rows = 0;
  ops::cuda::PackedMatrix wkv;
  const __nv_bfloat16* q_weight = nullptr;
  const __nv_bfloat16* k_weight = nullptr;
};

struct CudaLayerWeights {
  CudaHyperSite attention_site, ffn_site;
  const __nv_bfloat16* attention_norm = nullptr;
  const __nv_bfloat16* ffn_norm = nullptr;
  const float* sink = nullptr;
  const __nv_bfloat16* q_norm = nullptr;
  const __nv_bfloat16* kv_norm = nullptr;
  ops::cuda::PackedMatrix input;  // wq_a [q_lora_rank], then wkv [512]
  ops::cuda::PackedMatrix wq_b, wo_a, wo_b;
  std::optional<CudaCompressorWeights> compressor;
  std::optional<CudaIndexerWeights> indexer;
  std::optional<CudaEngramWeights> engram;
  ops::cuda::PackedMatrix gate;
  const float* gate_bias = nullptr;
  const ops::cuda::ExpertWeights* experts = nullptr;  // [n_routed_experts], device memory
  ops::cuda::PackedMatrix shared_gate_up, shared_down;
};

// What the weights take on the device, nearly (padding is left out), and Engram's tables in host memory.
int64_t weight_bytes(const TensorSource& source);
int64_t table_bytes(const TensorSource& source);

class CudaWeights {
 public:
  // Loads everything. `progress` is told layers done and their number.
  CudaWeights(const TensorSource& source, const ModelPlan& plan,
              const std::function<void(int64_t, int64_t)>& progress = {});

  const __nv_bfloat16* embedding() const { return embedding_; }
  const __nv_bfloat16* norm() const { return norm_; }
  const ops::cuda::PackedMatrix& head() const { return head_; }
  const CudaLayerWeights& layer(int64_t n) const { return layers_[n]; }
  int64_t device_bytes() const { return arena_.bytes(); }
  int64_t host_bytes() const;
  // What a decode step reads of everything but routed experts, embedding and tables.
  double dense_bytes() const;

 private:
  CudaLayerWeights load_layer(int64_t n, const LayerPlan& plan);
  void load_attention(CudaLayerWeights& layer, int64_t n, const LayerPlan& plan);
  void load_experts(CudaLayerWeights& layer, int64_t n);
  CudaEngramWeights load_engram(int64_t n, int64_t engram);
  // One matrix from several of the same width and format, one below the other.
  ops::cuda::PackedMatrix matrix(const std::vector<std::string>& names);
  ops::cuda::PackedMatrix gate_up(const std::string& expert);
  CudaHyperSite site(const std::string& name);
  // Synthetic values are normal around `mean`.
  const float* f32(const std::string& name, float mean, float deviation);
  const __nv_bfloat16* bf16(const std::string& name, float synthetic_size);

  ops::WeightMatrix host_matrix(const std::string& name) const;
  // The matrix's bytes copied to the staging buffer, `slot` 0 or 1 of it.
  ops::WeightMatrix staged(const ops::WeightMatrix& host, int slot);
  void fill(const ops::cuda::PackedMatrix& packed, std::byte* data);
  const uint8_t* host_table(const std::string& name, int64_t rows);

  TensorSource source_;
  DeviceArena arena_;
  DeviceBuffer staging_[2];
  std::vector<ops::cuda::PinnedMemory> tables_;
  uint64_t seed_ = 1;  // of the next synthetic tensor
  const __nv_bfloat16* embedding_ = nullptr;
  const __nv_bfloat16* norm_ = nullptr;
  ops::cuda::PackedMatrix head_;
  std::vector<CudaLayerWeights> layers_;
};

}  // namespace gannet

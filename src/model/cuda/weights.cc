#include "model/cuda/weights.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include "base/error.h"
#include "ops/cuda/check.h"
#include "ops/linear/sm90.h"

namespace gannet {
namespace {

using ops::WeightFormat;
using ops::WeightMatrix;
using ops::cuda::PackedMatrix;

// Loading runs on the default stream, one thing after another.
constexpr cudaStream_t kStream = nullptr;

WeightFormat format_of(DType dtype) {
  switch (dtype) {
    case DType::f8_e4m3:
      return WeightFormat::fp8;
    case DType::i8:
      return WeightFormat::mxfp4;
    case DType::bf16:
      return WeightFormat::bf16;
    default:
      return WeightFormat::f32;
  }
}

int64_t code_bytes(const WeightMatrix& m) {
  const int64_t n = m.rows * m.cols;
  return m.format == WeightFormat::mxfp4 ? n / 2 : m.format == WeightFormat::fp8 ? n : 2 * n;
}

int64_t scale_bytes(const WeightMatrix& m) {
  if (m.format == WeightFormat::mxfp4) return m.rows * (m.cols / 32);
  if (m.format == WeightFormat::fp8) return (m.rows + 31) / 32 * ((m.cols + 31) / 32);
  return 0;
}

// Scales beyond what a packed byte holds move into the matrix's exponent (packed_matrix.h).
int32_t exponent_of(const WeightMatrix& m) {
  const int64_t n = scale_bytes(m);
  if (n == 0) return 0;
  const int largest = *std::max_element(m.scale, m.scale + n);
  const int offset = m.format == WeightFormat::mxfp4 ? 126 : 120;
  return std::max(0, largest + offset - 254);
}

// About 1 / sqrt(cols) of outputs' size, given how large random codes are on average.
int synthetic_scale(WeightFormat format, int64_t cols) {
  const double code = format == WeightFormat::fp8 ? 110 : format == WeightFormat::mxfp4 ? 2.9 : 1;
  return static_cast<int>(std::lround(-std::log2(code * std::sqrt(static_cast<double>(cols)))));
}

// Random bytes whose codes and scales are numbers of ordinary size.
void fill_table(std::byte* data, int64_t bytes, bool scales) {
  const unsigned workers = std::max(1U, std::thread::hardware_concurrency());
  std::vector<std::jthread> threads;
  for (unsigned w = 0; w < workers; ++w) {
    threads.emplace_back([=] {
      std::mt19937_64 random(w + (scales ? 1000 : 0));
      for (int64_t i = bytes * w / workers; i < bytes * (w + 1) / workers; ++i) {
        const auto value = static_cast<uint32_t>(random() >> 40);
        data[i] = static_cast<std::byte>(scales ? 116 + value % 4 : value & 0xb7);
      }
    });
  }
}

}  // namespace

int64_t weight_bytes(const TensorSource& source) {
  int64_t bytes = 0;
  int64_t experts = 0;
  for (const auto& [name, spec] : source.specs()) {
    if (spec.group == TensorGroup::routed_experts) experts += spec.bytes();
    const bool elsewhere = spec.group == TensorGroup::routed_experts || spec.group == TensorGroup::engram_tables ||
                           spec.group == TensorGroup::draft || spec.group == TensorGroup::vision;
    if (!elsewhere) bytes += spec.bytes();
  }
  return bytes + experts / source.config().n_routed_experts * source.unique_experts();
}

int64_t table_bytes(const TensorSource& source) {
  int64_t bytes = 0;
  const Config& config = source.config();
  for (size_t e = 0; e < config.engram_layer_ids.size(); ++e) {
    bytes += source.table_rows(static_cast<int64_t>(e)) * (config.engram_head_dim + config.engram_head_dim / 32);
  }
  return bytes;
}

CudaWeights::CudaWeights(const TensorSource& source, const ModelPlan& plan,
                         const std::function<void(int64_t, int64_t)>& progress)
    : source_(source) {
  embedding_ = bf16("embed.weight", 1);
  norm_ = bf16("norm.weight", 1);
  head_ = matrix({"head"});
  const int64_t layers = source.config().num_hidden_layers;
  for (int64_t n = 0; n < layers; ++n) {
    layers_.push_back(load_layer(n, plan.layers[n]));
    GANNET_CUDA_CHECK(cudaStreamSynchronize(kStream));
    if (progress) progress(n + 1, layers);
  }
  for (DeviceBuffer& buffer : staging_) buffer = DeviceBuffer();
}

int64_t CudaWeights::host_bytes() const {
  int64_t bytes = 0;
  for (const auto& table : tables_) bytes += static_cast<int64_t>(table.bytes());
  return bytes;
}

double CudaWeights::dense_bytes() const {
  double bytes = 0;
  const auto add = [&](const PackedMatrix& m) {
    bytes += static_cast<double>(ops::cuda::packed_bytes(m.format, m.rows, m.cols));
  };
  add(head_);
  for (const CudaLayerWeights& layer : layers_) {
    for (const PackedMatrix* m : {&layer.input, &layer.wq_b, &layer.wo_a, &layer.wo_b, &layer.gate,
                                  &layer.shared_gate_up, &layer.shared_down}) {
      add(*m);
    }
    bytes += 2.0 * 24 * 4 * 4 * static_cast<double>(source_.config().hidden_size);  // both sites' fn
    if (layer.compressor) add(layer.compressor->projection);
    if (layer.indexer) add(layer.indexer->wq_b);
    if (layer.engram) add(layer.engram->wkv);
  }
  return bytes;
}

CudaLayerWeights CudaWeights::load_layer(int64_t n, const LayerPlan& plan) {
  CudaLayerWeights layer;
  const std::string p = fmt::format("layers.{}.", n);
  layer.attention_site = site(p + "hc_attn");
  layer.ffn_site = site(p + "hc_ffn");
  layer.attention_norm = bf16(p + "attn_norm.weight", 1);
  layer.ffn_norm = bf16(p + "ffn_norm.weight", 1);
  load_attention(layer, n, plan);
  load_experts(layer, n);
  if (plan.engram >= 0) layer.engram = load_engram(n, plan.engram);
  return layer;
}

void CudaWeights::load_attention(CudaLayerWeights& layer, int64_t n, const LayerPlan& plan) {
  const std::string p = fmt::format("layers.{}.attn.", n);
  layer.sink = f32(p + "attn_sink", 0, 0);
  layer.q_norm = bf16(p + "q_norm.weight", 1);
  layer.kv_norm = bf16(p + "kv_norm.weight", 1);
  layer.input = matrix({p + "wq_a", p + "wkv"});
  layer.wq_b = matrix({p + "wq_b"});
  layer.wo_a = matrix({p + "wo_a"});
  layer.wo_b = matrix({p + "wo_b"});
  if (plan.role == LayerRole::full) {
    std::vector<std::string> projections = {p + "compressor.wkv"};
    if (plan.ratio > 1) projections.push_back(p + "compressor.wgate");
    layer.compressor = CudaCompressorWeights{.projection = matrix(projections),
                                             .norm = bf16(p + "compressor.norm.weight", 1),
                                             .index_key = matrix({p + "indexer.wk"}),
                                             .index_norm = bf16(p + "indexer.k_norm.weight", 1)};
  }
  if (plan.role == LayerRole::full || plan.role == LayerRole::reindex) {
    layer.indexer =
        CudaIndexerWeights{.wq_b = matrix({p + "indexer.wq_b"}), .weights_proj = matrix({p + "indexer.weights_proj"})};
  }
}

void CudaWeights::load_experts(CudaLayerWeights& layer, int64_t n) {
  const std::string p = fmt::format("layers.{}.ffn.", n);
  layer.gate = matrix({p + "gate"});
  layer.gate_bias = f32(p + "gate.bias", 0, 0);
  std::vector<ops::cuda::ExpertWeights> unique;
  for (int64_t e = 0; e < source_.unique_experts(); ++e) {
    const PackedMatrix up = gate_up(fmt::format("{}experts.{}", p, e));
    const PackedMatrix down = matrix({fmt::format("{}experts.{}.w2", p, e)});
    unique.push_back({.gate_up = up.data,
                      .down = down.data,
                      .gate_up_factor = std::ldexp(1.0F, up.exponent),
                      .down_factor = std::ldexp(1.0F, down.exponent)});
  }
  std::vector<ops::cuda::ExpertWeights> table;
  for (int64_t e = 0; e < source_.config().n_routed_experts; ++e) table.push_back(unique[e % unique.size()]);
  auto* device = arena_.get<ops::cuda::ExpertWeights>(static_cast<int64_t>(table.size()));
  GANNET_CUDA_CHECK(
      cudaMemcpy(device, table.data(), table.size() * sizeof(ops::cuda::ExpertWeights), cudaMemcpyHostToDevice));
  layer.experts = device;
  layer.shared_gate_up = gate_up(p + "shared_experts");
  layer.shared_down = matrix({p + "shared_experts.w2"});
}

CudaEngramWeights CudaWeights::load_engram(int64_t n, int64_t engram) {
  const std::string p = fmt::format("layers.{}.engram.", n);
  const int64_t rows = source_.table_rows(engram);
  return {.table = host_table(p + "embed.weight", rows),
          .table_scale = host_table(p + "embed.scale", rows),
          .table_rows = rows,
          .wkv = matrix({p + "wkv"}),
          .q_weight = bf16(p + "q_weight", 1),
          .k_weight = bf16(p + "k_weight", 1)};
}

const uint8_t* CudaWeights::host_table(const std::string& name, int64_t rows) {
  const TensorSpec& spec = source_.spec(name);
  const int64_t bytes = rows * spec.shape[1];
  const auto& table = tables_.emplace_back(static_cast<size_t>(bytes));
  if (const std::byte* from = source_.bytes(name)) {
    std::memcpy(table.data(), from, static_cast<size_t>(bytes));
  } else {
    fill_table(table.data(), bytes, spec.dtype == DType::f8_e8m0);
  }
  return reinterpret_cast<const uint8_t*>(table.data());
}

WeightMatrix CudaWeights::host_matrix(const std::string& name) const {
  const TensorSpec& spec = source_.spec(name + ".weight");
  WeightMatrix m{.format = format_of(spec.dtype), .rows = spec.shape[0], .cols = spec.shape[1]};
  GANNET_CHECK(m.format != WeightFormat::f32);
  if (m.format == WeightFormat::mxfp4) m.cols *= 2;
  if (source_.synthetic()) return m;
  m.data = source_.bytes(name + ".weight");
  if (m.format != WeightFormat::bf16) m.scale = reinterpret_cast<const uint8_t*>(source_.bytes(name + ".scale"));
  return m;
}

WeightMatrix CudaWeights::staged(const WeightMatrix& host, int slot) {
  const int64_t codes = (code_bytes(host) + 255) / 256 * 256;
  if (const int64_t needed = codes + scale_bytes(host); staging_[slot].bytes() < needed) {
    staging_[slot] = DeviceBuffer(needed);
  }
  std::byte* to = staging_[slot].data();
  GANNET_CUDA_CHECK(cudaMemcpyAsync(to, host.data, code_bytes(host), cudaMemcpyHostToDevice, kStream));
  WeightMatrix m = host;
  m.data = to;
  if (host.scale != nullptr) {
    GANNET_CUDA_CHECK(cudaMemcpyAsync(to + codes, host.scale, scale_bytes(host), cudaMemcpyHostToDevice, kStream));
    m.scale = reinterpret_cast<const uint8_t*>(to + codes);
  }
  return m;
}

void CudaWeights::fill(const PackedMatrix& packed, std::byte* data) {
  ops::cuda::fill_packed(kStream, packed.format, packed.rows, packed.cols, seed_++,
                         synthetic_scale(packed.format, packed.cols), data);
}

PackedMatrix CudaWeights::matrix(const std::vector<std::string>& names) {
  std::vector<WeightMatrix> parts;
  PackedMatrix packed;
  for (const std::string& name : names) {
    const WeightMatrix& part = parts.emplace_back(host_matrix(name));
    GANNET_CHECK(names.size() == 1 || part.rows % ops::cuda::kPanelRows == 0);
    packed.format = part.format;
    packed.cols = part.cols;
    packed.rows += part.rows;
    if (part.data != nullptr) packed.exponent = std::max(packed.exponent, exponent_of(part));
  }
  auto* data = arena_.get<std::byte>(ops::cuda::packed_bytes(packed.format, packed.rows, packed.cols));
  packed.data = data;
  if (source_.synthetic()) {
    fill(packed, data);
    return packed;
  }
  for (const WeightMatrix& part : parts) {
    ops::cuda::pack_matrix(kStream, staged(part, 0), packed.exponent, data);
    data += ops::cuda::packed_bytes(part.format, part.rows, part.cols);
  }
  return packed;
}

PackedMatrix CudaWeights::gate_up(const std::string& expert) {
  const WeightMatrix w1 = host_matrix(expert + ".w1");
  const WeightMatrix w3 = host_matrix(expert + ".w3");
  PackedMatrix packed{.format = w1.format, .rows = 2 * w1.rows, .cols = w1.cols};
  auto* data = arena_.get<std::byte>(ops::cuda::packed_bytes(packed.format, packed.rows, packed.cols));
  packed.data = data;
  if (source_.synthetic()) {
    fill(packed, data);
    return packed;
  }
  packed.exponent = std::max(exponent_of(w1), exponent_of(w3));
  ops::cuda::pack_gate_up(kStream, staged(w1, 0), staged(w3, 1), packed.exponent, data);
  return packed;
}

CudaHyperSite CudaWeights::site(const std::string& name) {
  const float size = 1 / std::sqrt(static_cast<float>(source_.config().hc_mult * source_.config().hidden_size));
  return {.fn = f32(name + "_fn", 0, size), .base = f32(name + "_base", 0, 0), .scale = f32(name + "_scale", 1, 0)};
}

const float* CudaWeights::f32(const std::string& name, float mean, float deviation) {
  const TensorSpec& spec = source_.spec(name);
  auto* device = arena_.get<float>(spec.bytes() / static_cast<int64_t>(sizeof(float)));
  std::vector<float> values;
  const void* from = source_.bytes(name);
  if (from == nullptr) {
    std::mt19937 random(static_cast<uint32_t>(seed_++));
    std::normal_distribution<float> normal;
    values.resize(spec.bytes() / sizeof(float));
    for (float& value : values) value = mean + deviation * normal(random);
    from = values.data();
  }
  GANNET_CUDA_CHECK(cudaMemcpy(device, from, static_cast<size_t>(spec.bytes()), cudaMemcpyHostToDevice));
  return device;
}

// Synthetic norms are 1, matrices random of that size.
const __nv_bfloat16* CudaWeights::bf16(const std::string& name, float synthetic_size) {
  const TensorSpec& spec = source_.spec(name);
  const int64_t padded =
      spec.shape.size() == 2 ? ops::cuda::packed_bytes(WeightFormat::bf16, spec.shape[0], spec.shape[1]) : spec.bytes();
  auto* device = arena_.get<__nv_bfloat16>(padded / 2);
  const void* from = source_.bytes(name);
  if (from == nullptr && spec.shape.size() == 2) {
    ops::cuda::fill_packed(kStream, WeightFormat::bf16, spec.shape[0], spec.shape[1], seed_++,
                           std::ilogb(synthetic_size), reinterpret_cast<std::byte*>(device));
    return device;
  }
  const std::vector<__nv_bfloat16> ones(from == nullptr ? spec.bytes() / 2 : 0, __float2bfloat16(1));
  if (from == nullptr) from = ones.data();
  GANNET_CUDA_CHECK(cudaMemcpy(device, from, static_cast<size_t>(spec.bytes()), cudaMemcpyHostToDevice));
  return device;
}

}  // namespace gannet

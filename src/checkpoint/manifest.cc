#include "checkpoint/manifest.h"

#include <algorithm>
#include <utility>

namespace gannet {
namespace {

constexpr int64_t kBlock = 32;  // rows and columns under one scale (spec: model 1.5)

int64_t blocks(int64_t size) {
  return (size + kBlock - 1) / kBlock;
}

class ManifestBuilder {
 public:
  explicit ManifestBuilder(const Config& config) : c_(config) {}

  std::vector<TensorSpec> build() {
    const int64_t d = c_.hidden_size;
    add("embed.weight", DType::bf16, {c_.vocab_size, d}, TensorGroup::embed);
    add("head.weight", DType::bf16, {c_.vocab_size, d}, TensorGroup::head);
    add("norm.weight", DType::bf16, {d}, TensorGroup::norms_mixes_routers);
    for (int64_t layer = 0; layer < c_.num_hidden_layers; ++layer) add_backbone_layer(layer);
    for (int64_t block = 0; block < c_.num_nextn_predict_layers; ++block) {
      draft_ = true;
      add_block(fmt::format("mtp.{}.", block), c_.dspark_n_routed_experts);
    }
    if (c_.num_nextn_predict_layers > 0) add_draft_extras();
    draft_ = false;
    if (c_.has_vision) add_vision();
    return std::move(specs_);
  }

 private:
  void add(std::string name, DType dtype, std::vector<int64_t> shape, TensorGroup group) {
    specs_.push_back({std::move(name), dtype, std::move(shape), draft_ ? TensorGroup::draft : group});
  }

  void add_fp8(const std::string& name, int64_t rows, int64_t columns, TensorGroup group) {
    add(name + ".weight", DType::f8_e4m3, {rows, columns}, group);
    add(name + ".scale", DType::f8_e8m0, {blocks(rows), blocks(columns)}, group);
  }

  void add_fp4(const std::string& name, int64_t rows, int64_t columns, TensorGroup group) {
    add(name + ".weight", DType::i8, {rows, columns / 2}, group);
    add(name + ".scale", DType::f8_e8m0, {rows, columns / kBlock}, group);
  }

  void add_backbone_layer(int64_t layer) {
    const auto is_in = [layer](const std::vector<int64_t>& list) {
      return std::find(list.begin(), list.end(), layer) != list.end();
    };
    const auto prefix = fmt::format("layers.{}.", layer);
    add_block(prefix, c_.n_routed_experts);
    if (is_in(c_.kv_source_layer_ids)) add_kv_source(prefix, c_.compress_ratios[static_cast<size_t>(layer)]);
    if (is_in(c_.index_source_layer_ids)) add_index_source(prefix);
    const auto engram = std::find(c_.engram_layer_ids.begin(), c_.engram_layer_ids.end(), layer);
    if (engram != c_.engram_layer_ids.end()) {
      add_engram(prefix, c_.engram_num_embeddings[static_cast<size_t>(engram - c_.engram_layer_ids.begin())]);
    }
  }

  // What backbone layers and draft blocks have in common.
  void add_block(const std::string& prefix, int64_t experts) {
    const int64_t d = c_.hidden_size;
    constexpr auto kAttention = TensorGroup::attention;
    add(prefix + "attn_norm.weight", DType::bf16, {d}, kAttention);
    add(prefix + "attn.attn_sink", DType::f32, {c_.num_attention_heads}, kAttention);
    add(prefix + "attn.q_norm.weight", DType::bf16, {c_.q_lora_rank}, kAttention);
    add(prefix + "attn.kv_norm.weight", DType::bf16, {c_.head_dim}, kAttention);
    const int64_t heads_width = c_.num_attention_heads * c_.head_dim;
    add_fp8(prefix + "attn.wq_a", c_.q_lora_rank, d, kAttention);
    add_fp8(prefix + "attn.wq_b", heads_width, c_.q_lora_rank, kAttention);
    add_fp8(prefix + "attn.wkv", c_.head_dim, d, kAttention);
    add_fp8(prefix + "attn.wo_a", c_.o_groups * c_.o_lora_rank, heads_width / c_.o_groups, kAttention);
    add_fp8(prefix + "attn.wo_b", d, c_.o_groups * c_.o_lora_rank, kAttention);
    add_mixes(prefix);
    add_experts(prefix + "ffn.", experts);
  }

  // The hyper-connections of both sites: pre and post for each stream, and their square of mixes.
  void add_mixes(const std::string& prefix) {
    constexpr auto kGroup = TensorGroup::norms_mixes_routers;
    const int64_t mixes = (2 + c_.hc_mult) * c_.hc_mult;
    for (const char* site : {"attn", "ffn"}) {
      add(fmt::format("{}hc_{}_fn", prefix, site), DType::f32, {mixes, c_.hc_mult * c_.hidden_size}, kGroup);
      add(fmt::format("{}hc_{}_base", prefix, site), DType::f32, {mixes}, kGroup);
      add(fmt::format("{}hc_{}_scale", prefix, site), DType::f32, {3}, kGroup);
    }
    add(prefix + "ffn_norm.weight", DType::bf16, {c_.hidden_size}, kGroup);
  }

  void add_experts(const std::string& prefix, int64_t experts) {
    const int64_t d = c_.hidden_size;
    const int64_t inter = c_.moe_intermediate_size;
    constexpr auto kRouter = TensorGroup::norms_mixes_routers;
    add(prefix + "gate.weight", DType::bf16, {experts, d}, kRouter);
    add(prefix + "gate.bias", DType::f32, {experts}, kRouter);
    add(prefix + "gate.bias_vl", DType::f32, {experts}, kRouter);
    for (int64_t expert = 0; expert < experts; ++expert) {
      const auto name = fmt::format("{}experts.{}.", prefix, expert);
      add_fp4(name + "w1", inter, d, TensorGroup::routed_experts);
      add_fp4(name + "w2", d, inter, TensorGroup::routed_experts);
      add_fp4(name + "w3", inter, d, TensorGroup::routed_experts);
    }
    add_fp8(prefix + "shared_experts.w1", inter, d, TensorGroup::shared_experts);
    add_fp8(prefix + "shared_experts.w2", d, inter, TensorGroup::shared_experts);
    add_fp8(prefix + "shared_experts.w3", inter, d, TensorGroup::shared_experts);
  }

  void add_kv_source(const std::string& prefix, int64_t ratio) {
    constexpr auto kGroup = TensorGroup::attention;
    add(prefix + "attn.compressor.wkv.weight", DType::bf16, {c_.head_dim, c_.hidden_size}, kGroup);
    add(prefix + "attn.compressor.norm.weight", DType::bf16, {c_.head_dim}, kGroup);
    if (ratio > 1) add(prefix + "attn.compressor.wgate.weight", DType::bf16, {c_.head_dim, c_.hidden_size}, kGroup);
    add(prefix + "attn.indexer.wk.weight", DType::bf16, {c_.index_head_dim, c_.head_dim}, kGroup);
    add(prefix + "attn.indexer.k_norm.weight", DType::bf16, {c_.index_head_dim}, kGroup);
  }

  void add_index_source(const std::string& prefix) {
    constexpr auto kGroup = TensorGroup::attention;
    add_fp8(prefix + "attn.indexer.wq_b", c_.index_n_heads * c_.index_head_dim, c_.q_lora_rank, kGroup);
    add(prefix + "attn.indexer.weights_proj.weight", DType::bf16, {c_.index_n_heads, c_.hidden_size}, kGroup);
  }

  // Table rows have a scale for each 32 columns of their own. The projection makes a key for each stream and one value.
  void add_engram(const std::string& prefix, int64_t rows) {
    const int64_t columns = (c_.engram_max_ngram_size - 1) * c_.engram_n_heads * c_.engram_head_dim;
    constexpr auto kTables = TensorGroup::engram_tables;
    constexpr auto kProjections = TensorGroup::engram_projections;
    add(prefix + "engram.embed.weight", DType::f8_e4m3, {rows, c_.engram_head_dim}, kTables);
    add(prefix + "engram.embed.scale", DType::f8_e8m0, {rows, c_.engram_head_dim / kBlock}, kTables);
    add_fp8(prefix + "engram.wkv", (c_.hc_mult + 1) * c_.hidden_size, columns, kProjections);
    add(prefix + "engram.q_weight", DType::bf16, {c_.hc_mult, c_.hidden_size}, kProjections);
    add(prefix + "engram.k_weight", DType::bf16, {c_.hc_mult, c_.hidden_size}, kProjections);
  }

  void add_draft_extras() {
    constexpr auto kGroup = TensorGroup::draft;
    const int64_t d = c_.hidden_size;
    const int64_t rank = c_.dspark_markov_rank;
    const auto last = fmt::format("mtp.{}.", c_.num_nextn_predict_layers - 1);
    add_fp8("mtp.0.main_proj", d, d * static_cast<int64_t>(c_.dspark_target_layer_ids.size()), kGroup);
    add("mtp.0.main_norm.weight", DType::bf16, {d}, kGroup);
    add(last + "norm.weight", DType::bf16, {d}, kGroup);
    add(last + "markov_head.embed.weight", DType::bf16, {c_.vocab_size, rank}, kGroup);
    add(last + "markov_head.head.weight", DType::bf16, {c_.vocab_size, rank}, kGroup);
    add(last + "confidence_head.proj.weight", DType::bf16, {1, d + rank}, kGroup);
  }

  void add_vision_linear(const std::string& name, int64_t rows, int64_t columns, bool bias) {
    add(name + ".weight", DType::bf16, {rows, columns}, TensorGroup::vision);
    if (bias) add(name + ".bias", DType::bf16, {rows}, TensorGroup::vision);
  }

  void add_vision() {
    constexpr int64_t kColours = 3;
    constexpr auto kGroup = TensorGroup::vision;
    const auto& v = c_.vision;
    const int64_t d = v.hidden_size;
    add_vision_linear("vision.patch_embed.proj", d, kColours * v.patch_size * v.patch_size, true);
    for (int64_t block = 0; block < v.num_hidden_layers; ++block) {
      const auto prefix = fmt::format("vision.blocks.{}.", block);
      add(prefix + "norm1.weight", DType::bf16, {d}, kGroup);
      add(prefix + "norm2.weight", DType::bf16, {d}, kGroup);
      add_vision_linear(prefix + "attn.wqkv", 3 * d, d, true);
      add_vision_linear(prefix + "attn.wo", d, d, true);
      add_vision_linear(prefix + "mlp.w1", 2 * v.intermediate_size, d, false);  // gate, then up
      add_vision_linear(prefix + "mlp.w2", d, v.intermediate_size, false);
    }
    add("vision.norm.weight", DType::bf16, {d}, kGroup);
    const int64_t unfolded = d * v.downsample_ratio * v.downsample_ratio;
    add_vision_linear("aligner.w1", c_.hidden_size, unfolded, true);
    add_vision_linear("aligner.w2", c_.hidden_size, c_.hidden_size, true);
    for (const char* name : {"image_start", "image_end", "image_newline"}) {
      add(name, DType::bf16, {c_.hidden_size}, kGroup);
    }
  }

  const Config& c_;
  std::vector<TensorSpec> specs_;
  bool draft_ = false;
};

}  // namespace

std::string_view name_of(TensorGroup group) {
  constexpr std::string_view kNames[kTensorGroups] = {
      "routed experts", "attention", "shared experts",         "Engram tables", "Engram projections",
      "embed",          "head",      "norms, mHC and routers", "DSpark (mtp)",  "vision and aligner"};
  return kNames[static_cast<size_t>(group)];
}

int64_t TensorSpec::bytes() const {
  int64_t total = bytes_of(dtype);
  for (const int64_t size : shape) total *= size;
  return total;
}

int64_t TensorSpec::parameters() const {
  if (dtype == DType::f8_e8m0) return 0;
  const int64_t elements = bytes() / bytes_of(dtype);
  return dtype == DType::i8 ? 2 * elements : elements;
}

std::vector<TensorSpec> manifest(const Config& config) {
  return ManifestBuilder(config).build();
}

void TensorCount::add(const TensorSpec& spec) {
  ++tensors;
  bytes += spec.bytes();
  parameters += spec.parameters();
}

ManifestTotals totals(const std::vector<TensorSpec>& manifest) {
  ManifestTotals result;
  for (const auto& spec : manifest) {
    result.all.add(spec);
    result.by_group[static_cast<size_t>(spec.group)].add(spec);
    result.by_dtype[static_cast<size_t>(spec.dtype)].add(spec);
  }
  return result;
}

}  // namespace gannet

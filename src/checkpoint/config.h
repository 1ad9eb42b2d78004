#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace gannet {

// YaRN frequency interpolation of the compressed layers (spec: model 3.1).
struct RopeScaling {
  double factor = 16;
  double beta_fast = 32;
  double beta_slow = 1;
  int64_t original_max_position_embeddings = 65536;  // 0 switches the interpolation off
  bool operator==(const RopeScaling&) const = default;
};

// config.json's `vision_config`.
struct VisionConfig {
  int64_t num_hidden_layers = 32;
  int64_t hidden_size = 1024;
  int64_t num_attention_heads = 16;
  int64_t intermediate_size = 2816;
  int64_t patch_size = 14;
  double rope_theta = 10000;
  int64_t downsample_ratio = 3;
  int64_t max_image_tokens = 1024;
  int64_t min_pixels = 295936;
  bool operator==(const VisionConfig&) const = default;
};

// What config.json says of a model; the names are the file's own (spec: model 1.2). A Config that came from one of the
// functions below is consistent: every contradiction was refused by name.
struct Config {
  // Top level.
  int32_t bos_token_id = 0;
  int32_t eos_token_id = 1;
  int32_t pad_token_id = 2;
  int32_t image_token_id = -1;  // -1: none given

  // text_config.
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t moe_intermediate_size = 0;
  int64_t num_attention_heads = 0;
  int64_t head_dim = 0;
  int64_t qk_rope_head_dim = 0;
  int64_t q_lora_rank = 0;
  int64_t o_lora_rank = 0;
  int64_t o_groups = 0;
  double swiglu_limit = 10;
  double rms_norm_eps = 1e-20;
  int64_t max_position_embeddings = 0;
  double rope_theta = 10000;
  double compress_rope_theta = 160000;
  RopeScaling rope_scaling;
  int64_t sliding_window = 0;
  int64_t n_routed_experts = 0;
  int64_t num_experts_per_tok = 0;
  double routed_scaling_factor = 1.5;
  std::vector<int64_t> compress_ratios;  // one per backbone layer, then one (0) per draft block
  std::vector<int64_t> kv_source_layer_ids;
  std::vector<int64_t> index_source_layer_ids;
  int64_t index_n_heads = 0;
  int64_t index_head_dim = 0;
  int64_t index_topk = 0;
  int64_t candidate_source_layer_id = -1;  // -1: no layer restricts later ones
  int64_t candidate_topk_blocks = 0;
  int64_t candidate_block_size = 0;
  int64_t hc_mult = 4;
  int64_t hc_sinkhorn_iters = 20;
  double hc_eps = 1e-6;
  std::vector<int64_t> engram_layer_ids;
  std::vector<int64_t> engram_num_embeddings;  // table rows of each Engram layer
  int64_t engram_max_ngram_size = 0;
  int64_t engram_vocab_size = 0;
  int64_t engram_n_heads = 0;
  int64_t engram_head_dim = 0;
  int32_t engram_pad_token_id = 2;
  int64_t engram_compressed_vocab_size = 0;
  int64_t num_nextn_predict_layers = 0;
  int64_t dspark_block_size = 0;
  int32_t dspark_noise_token_id = 0;
  std::vector<int64_t> dspark_target_layer_ids;
  int64_t dspark_markov_rank = 0;
  int64_t dspark_n_routed_experts = 0;
  int64_t dspark_num_experts_per_tok = 0;

  bool has_vision = false;
  VisionConfig vision;
  bool operator==(const Config&) const = default;
};

// Parses and checks config.json. Unknown keys are tolerated; missing, mistyped or contradictory ones are refused, all
// at once, with name, value found and what would be right. `name` stands for the file in messages. A part that is
// switched off needs no keys of its own, and its fields keep their defaults: Engram without layers, DSpark without
// draft blocks, candidates without a source.
Result<Config> parse_config(std::string_view json, std::string_view name);
Result<Config> load_config(const std::filesystem::path& config_json);

// DeepSeek-V4.1-Flash as released.
const Config& released_config();

// config.json in the released dialect; parse_config reads it back to an equal Config.
std::string config_to_json(const Config& config);

}  // namespace gannet

#pragma once

#include <cstdint>

#include "checkpoint/config.h"

// The keys of config.json with their ranges, said once for reading and writing. A visitor has
//   integer(key, field, low, high), number(key, field, low, high), integers(key, field, low, high),
//   constant(key, value) for a key that has only one value in this model, and section(key, function).
// The upper bounds only keep products of sizes inside 64 bits; the model's own numbers are far below.
namespace gannet::config_fields {

inline constexpr int64_t kMaxIds = int64_t{1} << 31;
inline constexpr int64_t kMaxPositions = int64_t{1} << 30;
inline constexpr int64_t kMaxWidth = int64_t{1} << 17;
inline constexpr int64_t kMaxHeads = int64_t{1} << 12;
inline constexpr int64_t kMaxHeadDim = int64_t{1} << 12;
inline constexpr int64_t kMaxLayers = 1024;
inline constexpr int64_t kMaxDraftBlocks = 64;
inline constexpr int64_t kMaxExperts = int64_t{1} << 16;
inline constexpr double kMaxNumber = 1e30;
inline constexpr double kLeastPositive = 1e-30;

template <class Visitor, class Config>
void attention_fields(Visitor& v, Config& c) {
  v.integer("vocab_size", c.vocab_size, 1, kMaxIds);
  v.integer("hidden_size", c.hidden_size, 32, kMaxWidth);
  v.integer("num_hidden_layers", c.num_hidden_layers, 1, kMaxLayers);
  v.integer("moe_intermediate_size", c.moe_intermediate_size, 32, kMaxWidth);
  v.integer("num_attention_heads", c.num_attention_heads, 1, kMaxHeads);
  v.constant("num_key_value_heads", 1);
  v.integer("head_dim", c.head_dim, 32, kMaxHeadDim);
  v.integer("qk_rope_head_dim", c.qk_rope_head_dim, 2, kMaxHeadDim);
  v.integer("q_lora_rank", c.q_lora_rank, 32, kMaxWidth);
  v.integer("o_lora_rank", c.o_lora_rank, 1, kMaxWidth);
  v.integer("o_groups", c.o_groups, 1, kMaxHeads);
  v.constant("attention_bias", false);
  v.constant("hidden_act", "silu");
  v.number("swiglu_limit", c.swiglu_limit, kLeastPositive, kMaxNumber);
  v.number("rms_norm_eps", c.rms_norm_eps, 0, 1);
  v.integer("max_position_embeddings", c.max_position_embeddings, 1, kMaxPositions);
  v.number("rope_theta", c.rope_theta, 1, kMaxNumber);
  v.number("compress_rope_theta", c.compress_rope_theta, 1, kMaxNumber);
  v.section("rope_scaling", [&](Visitor& s) {
    s.constant("rope_type", "yarn");
    s.number("factor", c.rope_scaling.factor, 1, kMaxNumber);
    s.number("beta_fast", c.rope_scaling.beta_fast, kLeastPositive, kMaxNumber);
    s.number("beta_slow", c.rope_scaling.beta_slow, kLeastPositive, kMaxNumber);
    s.integer("original_max_position_embeddings", c.rope_scaling.original_max_position_embeddings, 0, kMaxPositions);
  });
  v.integer("sliding_window", c.sliding_window, 1, kMaxPositions);
  v.integers("compress_ratios", c.compress_ratios, 0, 2);
  v.integers("kv_source_layer_ids", c.kv_source_layer_ids, 0, kMaxLayers - 1);
  v.integers("index_source_layer_ids", c.index_source_layer_ids, 0, kMaxLayers - 1);
  v.integer("index_n_heads", c.index_n_heads, 1, kMaxHeads);
  v.integer("index_head_dim", c.index_head_dim, 32, kMaxHeadDim);
  v.integer("index_topk", c.index_topk, 1, kMaxPositions);
}

template <class Visitor, class Config>
void expert_fields(Visitor& v, Config& c) {
  v.integer("n_routed_experts", c.n_routed_experts, 1, kMaxExperts);
  v.constant("n_shared_experts", 1);
  v.integer("num_experts_per_tok", c.num_experts_per_tok, 1, kMaxExperts);
  v.constant("scoring_func", "sqrtsoftplus");
  v.constant("topk_method", "noaux_tc");
  v.constant("norm_topk_prob", true);
  v.number("routed_scaling_factor", c.routed_scaling_factor, kLeastPositive, kMaxNumber);
  v.integer("hc_mult", c.hc_mult, 1, 8);
  v.integer("hc_sinkhorn_iters", c.hc_sinkhorn_iters, 1, 1000);
  v.number("hc_eps", c.hc_eps, 0, 1);
}

template <class Visitor, class Config>
void candidate_fields(Visitor& v, Config& c) {
  v.integer("candidate_topk_blocks", c.candidate_topk_blocks, 1, kMaxPositions);
  v.integer("candidate_block_size", c.candidate_block_size, 1, kMaxPositions);
}

template <class Visitor, class Config>
void engram_fields(Visitor& v, Config& c) {
  v.integers("engram_num_embeddings", c.engram_num_embeddings, 1, int64_t{1} << 50);
  v.integer("engram_max_ngram_size", c.engram_max_ngram_size, 2, 8);
  v.integer("engram_vocab_size", c.engram_vocab_size, 1, kMaxIds);
  v.integer("engram_n_heads", c.engram_n_heads, 1, 64);
  v.integer("engram_head_dim", c.engram_head_dim, 32, kMaxHeadDim);
  v.integer("engram_pad_token_id", c.engram_pad_token_id, 0, kMaxIds - 1);
  v.integer("engram_compressed_vocab_size", c.engram_compressed_vocab_size, 1, kMaxIds);
}

template <class Visitor, class Config>
void draft_fields(Visitor& v, Config& c) {
  v.integer("dspark_block_size", c.dspark_block_size, 1, 1024);
  v.integer("dspark_noise_token_id", c.dspark_noise_token_id, 0, kMaxIds - 1);
  v.integers("dspark_target_layer_ids", c.dspark_target_layer_ids, 0, kMaxLayers - 1);
  v.integer("dspark_markov_rank", c.dspark_markov_rank, 1, kMaxWidth);
  v.integer("dspark_n_routed_experts", c.dspark_n_routed_experts, 1, kMaxExperts);
  v.integer("dspark_num_experts_per_tok", c.dspark_num_experts_per_tok, 1, kMaxExperts);
}

template <class Visitor>
void quantization_fields(Visitor& v) {
  v.constant("quant_method", "fp8");
  v.constant("activation_scheme", "dynamic");
  v.constant("weight_block_size", {32, 32});
  v.constant("scale_fmt", "ue8m0");
  v.constant("expert_dtype", "fp4");
}

template <class Visitor, class Vision>
void vision_fields(Visitor& v, Vision& c) {
  v.integer("num_hidden_layers", c.num_hidden_layers, 1, kMaxLayers);
  v.integer("hidden_size", c.hidden_size, 4, kMaxWidth);
  v.integer("num_attention_heads", c.num_attention_heads, 1, kMaxHeads);
  v.integer("intermediate_size", c.intermediate_size, 1, kMaxWidth);
  v.integer("patch_size", c.patch_size, 1, 1024);
  v.number("rope_theta", c.rope_theta, 1, kMaxNumber);
  v.integer("downsample_ratio", c.downsample_ratio, 1, 32);
  v.integer("max_image_tokens", c.max_image_tokens, 4, kMaxPositions);
  v.integer("min_pixels", c.min_pixels, 1, kMaxPositions);
}

}  // namespace gannet::config_fields

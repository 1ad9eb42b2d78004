#include "checkpoint/shapes.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "checkpoint/engram_geometry.h"
#include "checkpoint/strict_json.h"

namespace gannet {
namespace {

using nlohmann::json;

// What a shape need not say.
constexpr const char* kCommonKeys = R"({
  "vocab_size": 512, "hidden_act": "silu", "swiglu_limit": 10.0, "rms_norm_eps": 1e-20,
  "max_position_embeddings": 65536, "rope_theta": 10000, "compress_rope_theta": 160000,
  "rope_scaling": {"rope_type": "yarn", "factor": 16, "beta_fast": 32, "beta_slow": 1,
                   "original_max_position_embeddings": 65536},
  "num_key_value_heads": 1, "attention_bias": false, "n_shared_experts": 1, "scoring_func": "sqrtsoftplus",
  "topk_method": "noaux_tc", "norm_topk_prob": true, "routed_scaling_factor": 1.5,
  "hc_mult": 4, "hc_sinkhorn_iters": 20, "hc_eps": 1e-6, "candidate_source_layer_id": -1, "candidate_block_size": 8,
  "engram_layer_ids": [], "engram_pad_token_id": 2, "engram_max_ngram_size": 4,
  "num_nextn_predict_layers": 0, "dspark_noise_token_id": 5
})";

constexpr const char* kTopKeys = R"({
  "architectures": ["DeepseekV41ForCausalLM"], "model_type": "deepseek_v41", "dtype": "bfloat16",
  "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2, "tie_word_embeddings": false,
  "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [32, 32],
                          "scale_fmt": "ue8m0", "expert_dtype": "fp4"}
})";

struct NamedShape {
  std::string_view name;
  const char* text_config;
  const char* vision_config;  // none: nullptr
};

constexpr NamedShape kShapes[] = {
    // Every kind of layer, tiny; pending pairs and candidate cuts after a few dozen tokens.
    {"small", R"({
      "hidden_size": 128, "num_hidden_layers": 10, "num_attention_heads": 4, "head_dim": 64, "qk_rope_head_dim": 32,
      "q_lora_rank": 64, "o_lora_rank": 32, "o_groups": 2, "moe_intermediate_size": 64, "n_routed_experts": 8,
      "num_experts_per_tok": 2, "sliding_window": 16, "compress_ratios": [0, 0, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0],
      "kv_source_layer_ids": [2, 4, 6], "index_source_layer_ids": [2, 4, 6, 8], "index_n_heads": 4,
      "index_head_dim": 32, "index_topk": 8, "candidate_source_layer_id": 6, "candidate_topk_blocks": 4,
      "candidate_block_size": 4, "engram_layer_ids": [1, 5], "engram_vocab_size": 300, "engram_n_heads": 4,
      "engram_head_dim": 32, "num_nextn_predict_layers": 3, "dspark_block_size": 5,
      "dspark_target_layer_ids": [7, 8, 9], "dspark_markov_rank": 32, "dspark_n_routed_experts": 4,
      "dspark_num_experts_per_tok": 2})",
     nullptr},
    // The released heads (512 channels, 64 of them rotated, window of 128, index heads of 128) in a narrow model.
    {"heads", R"({
      "hidden_size": 256, "num_hidden_layers": 8, "num_attention_heads": 4, "head_dim": 512, "qk_rope_head_dim": 64,
      "q_lora_rank": 96, "o_lora_rank": 64, "o_groups": 2, "moe_intermediate_size": 96, "n_routed_experts": 16,
      "num_experts_per_tok": 6, "sliding_window": 128, "compress_ratios": [0, 2, 2, 2, 1, 1, 1, 1, 0],
      "kv_source_layer_ids": [1, 4], "index_source_layer_ids": [1, 4, 6], "index_n_heads": 8, "index_head_dim": 128,
      "index_topk": 64, "candidate_source_layer_id": 4, "candidate_topk_blocks": 20, "engram_layer_ids": [2],
      "engram_vocab_size": 500, "engram_n_heads": 8, "engram_head_dim": 64, "num_nextn_predict_layers": 1,
      "dspark_block_size": 5, "dspark_target_layer_ids": [6, 7], "dspark_markov_rank": 64,
      "dspark_n_routed_experts": 8, "dspark_num_experts_per_tok": 3})",
     nullptr},
    // Selections as large as the released ones; neither Engram nor draft blocks.
    {"long", R"({
      "hidden_size": 160, "num_hidden_layers": 6, "num_attention_heads": 6, "head_dim": 96, "qk_rope_head_dim": 32,
      "q_lora_rank": 64, "o_lora_rank": 32, "o_groups": 3, "moe_intermediate_size": 32, "n_routed_experts": 5,
      "num_experts_per_tok": 2, "sliding_window": 128, "compress_ratios": [0, 2, 2, 1, 1, 1],
      "kv_source_layer_ids": [1, 3], "index_source_layer_ids": [1, 3, 5], "index_n_heads": 8, "index_head_dim": 64,
      "index_topk": 512, "candidate_source_layer_id": 3, "candidate_topk_blocks": 100})",
     nullptr},
    // What the released model is not, but the equations allow: two streams, a source in layer 0, two ratio-1 sources in
    // the encoder and a decoder of ratio 2, a window-only layer among them, candidates from a layer that is no source,
    // Engram in the first and in a decoder layer, other constants; and the vision tensors.
    {"odd", R"({
      "hidden_size": 96, "num_hidden_layers": 9, "num_attention_heads": 6, "head_dim": 96, "qk_rope_head_dim": 24,
      "q_lora_rank": 32, "o_lora_rank": 32, "o_groups": 3, "moe_intermediate_size": 160, "n_routed_experts": 7,
      "num_experts_per_tok": 3, "sliding_window": 24, "compress_ratios": [1, 1, 0, 1, 2, 2, 2, 2, 2, 0, 0],
      "kv_source_layer_ids": [0, 1, 4], "index_source_layer_ids": [0, 1, 3, 4, 6, 7], "index_n_heads": 3,
      "index_head_dim": 32, "index_topk": 12, "candidate_source_layer_id": 6, "candidate_topk_blocks": 5,
      "candidate_block_size": 3, "engram_layer_ids": [0, 7], "engram_vocab_size": 257, "engram_n_heads": 3,
      "engram_head_dim": 64, "engram_max_ngram_size": 3, "num_nextn_predict_layers": 2, "dspark_block_size": 3,
      "dspark_target_layer_ids": [5, 8], "dspark_markov_rank": 24, "dspark_n_routed_experts": 6,
      "dspark_num_experts_per_tok": 1, "hc_mult": 2, "hc_sinkhorn_iters": 7, "hc_eps": 1e-5, "rms_norm_eps": 1e-6,
      "swiglu_limit": 7.0, "routed_scaling_factor": 2.5, "rope_theta": 500, "compress_rope_theta": 4000,
      "rope_scaling": {"rope_type": "yarn", "factor": 8, "beta_fast": 16, "beta_slow": 2,
                       "original_max_position_embeddings": 4096}})",
     R"({
      "num_hidden_layers": 2, "hidden_size": 48, "num_attention_heads": 3, "intermediate_size": 80, "patch_size": 14,
      "rope_theta": 10000, "downsample_ratio": 3, "max_image_tokens": 64, "min_pixels": 3136})"},
    // Wide enough (some 100 MB) that time goes where it goes in large models.
    {"wide", R"({
      "hidden_size": 1024, "num_hidden_layers": 5, "num_attention_heads": 16, "head_dim": 128, "qk_rope_head_dim": 64,
      "q_lora_rank": 256, "o_lora_rank": 128, "o_groups": 4, "moe_intermediate_size": 384, "n_routed_experts": 32,
      "num_experts_per_tok": 6, "sliding_window": 128, "compress_ratios": [0, 2, 2, 1, 1],
      "kv_source_layer_ids": [1, 3], "index_source_layer_ids": [1, 3, 4], "index_n_heads": 16, "index_head_dim": 64,
      "index_topk": 256, "candidate_source_layer_id": 3, "candidate_topk_blocks": 64, "engram_layer_ids": [1],
      "engram_vocab_size": 2000, "engram_n_heads": 8, "engram_head_dim": 128})",
     nullptr},
};

json flat_to_file(const json& text_keys) {
  json file = json::parse(kTopKeys);
  file["text_config"] = json::parse(kCommonKeys);
  file["text_config"].update(text_keys);
  return file;
}

// The compressed vocabulary's size, asked for; a different one in the file would be a checkpoint that cannot run.
Status fill_compressed_vocab(json& text, std::string_view name, const CompressedVocabSize& compressed) {
  constexpr const char* kKey = "engram_compressed_vocab_size";
  const auto vocab = text.find("vocab_size");
  if (vocab == text.end() || !vocab->is_number_integer()) return {};  // parse_config says what is wrong
  const auto found = text.find(kKey);
  GANNET_TRY(const int64_t size, compressed(vocab->get<int64_t>()));
  if (found != text.end() && *found != size) {
    return invalid_input("{}: text_config.{} is {}; it must be {}, as the tokenizer gives", name, kKey, shown(*found),
                         size);
  }
  text[kKey] = size;
  return {};
}

// The sums of primes, where the keys that they depend on are sound.
void fill_table_rows(json& text) {
  const auto number = [&](const char* key, int64_t low, int64_t high) -> int64_t {
    const auto found = text.find(key);
    if (found == text.end() || !found->is_number_integer()) return -1;
    const auto value = found->get<int64_t>();
    return value >= low && value <= high ? value : -1;
  };
  const auto vocab = number("engram_vocab_size", 1, int64_t{1} << 31);
  const auto ngram = number("engram_max_ngram_size", 2, 8);
  const auto heads = number("engram_n_heads", 1, 64);
  if (vocab < 0 || ngram < 0 || heads < 0 || text.contains("engram_num_embeddings")) return;
  const auto layers = std::min<size_t>(text["engram_layer_ids"].size(), 1024);
  text["engram_num_embeddings"] = engram_table_rows(engram_primes(vocab, static_cast<int64_t>(layers), ngram, heads));
}

Result<Config> finish(json file, std::string_view name, const CompressedVocabSize& compressed) {
  json& text = file["text_config"];
  const auto layers = text.is_object() ? text.find("engram_layer_ids") : text.end();
  if (layers != text.end() && layers->is_array() && !layers->empty()) {
    fill_table_rows(text);
    GANNET_TRY_STATUS(fill_compressed_vocab(text, name, compressed));
  }
  return parse_config(file.dump(), name);
}

}  // namespace

std::vector<std::string_view> shape_names() {
  std::vector<std::string_view> names;
  for (const auto& shape : kShapes) names.push_back(shape.name);
  return names;
}

Result<Config> named_shape(std::string_view name, const CompressedVocabSize& compressed) {
  const auto* shape =
      std::find_if(std::begin(kShapes), std::end(kShapes), [&](const NamedShape& s) { return s.name == name; });
  if (shape == std::end(kShapes)) {
    return invalid_input("shape is '{}'; it must be one of {}", name, fmt::join(shape_names(), ", "));
  }
  json file = flat_to_file(json::parse(shape->text_config));
  if (shape->vision_config != nullptr) {
    file["vision_config"] = json::parse(shape->vision_config);
    file["image_token_id"] = file["text_config"]["vocab_size"].get<int64_t>() - 1;
  }
  return finish(std::move(file), name, compressed);
}

Result<Config> parse_shape(std::string_view text, std::string_view name, const CompressedVocabSize& compressed) {
  GANNET_TRY(json value, parse_strict_json(text, name));
  if (!value.is_object()) return invalid_input("{}: is {}; it must be a JSON object", name, shown(value));
  return finish(value.contains("text_config") ? std::move(value) : flat_to_file(value), name, compressed);
}

}  // namespace gannet

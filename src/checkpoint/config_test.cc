#include "checkpoint/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "checkpoint/shapes.h"

namespace gannet {
namespace {

using nlohmann::json;
using testing::HasSubstr;

Config small_config() {
  return named_shape("small", [](int64_t) -> Result<int64_t> { return 400; }).value();
}

TEST(Config, ReleasedRoundTrip) {
  const auto parsed = parse_config(config_to_json(released_config()), "config.json");
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(*parsed, released_config());
}

TEST(Config, ReleasedPlan) {
  const auto& c = released_config();
  EXPECT_EQ(c.compress_ratios.size(), 43U);
  EXPECT_EQ(c.compress_ratios[1], 0);
  EXPECT_EQ(c.compress_ratios[2], 2);
  EXPECT_EQ(c.compress_ratios[19], 2);
  EXPECT_EQ(c.compress_ratios[20], 1);
  EXPECT_EQ(c.compress_ratios[39], 1);
  EXPECT_EQ(c.compress_ratios[40], 0);
}

TEST(Config, WritesTheReleasedDialect) {
  const auto file = json::parse(config_to_json(released_config()));
  EXPECT_EQ(file["architectures"], json::array({"DeepseekV41ForCausalLM"}));
  EXPECT_EQ(file["quantization_config"]["weight_block_size"], json::array({32, 32}));
  EXPECT_EQ(file["text_config"]["rope_scaling"]["rope_type"], "yarn");
  EXPECT_EQ(file["vision_config"]["max_wh_ratio"], nullptr);
}

TEST(Config, UnknownKeysAreTolerated) {
  auto file = json::parse(config_to_json(released_config()));
  file["transformers_version"] = "5.0";
  file["text_config"]["use_cache"] = true;
  file["vision_config"]["new"] = {1, 2};
  const auto parsed = parse_config(file.dump(), "config.json");
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(*parsed, released_config());
}

TEST(Config, AbsentPartsNeedNoKeys) {
  auto file = json::parse(config_to_json(released_config()));
  file.erase("vision_config");
  file.erase("image_token_id");
  auto& text = file["text_config"];
  text["engram_layer_ids"] = json::array();
  text["num_nextn_predict_layers"] = 0;
  text["compress_ratios"].erase(40);
  text["compress_ratios"].erase(40);
  text["compress_ratios"].erase(40);
  for (const char* key :
       {"engram_num_embeddings", "engram_vocab_size", "engram_n_heads", "engram_head_dim", "engram_pad_token_id",
        "engram_compressed_vocab_size", "engram_max_ngram_size", "dspark_block_size", "dspark_noise_token_id",
        "dspark_target_layer_ids", "dspark_markov_rank", "dspark_n_routed_experts", "dspark_num_experts_per_tok",
        "candidate_source_layer_id", "candidate_topk_blocks", "candidate_block_size"}) {
    text.erase(key);
  }
  const auto parsed = parse_config(file.dump(), "config.json");
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_FALSE(parsed->has_vision);
  EXPECT_EQ(parsed->image_token_id, -1);
  EXPECT_EQ(parsed->candidate_source_layer_id, -1);
  EXPECT_EQ(parse_config(config_to_json(*parsed), "again").value(), *parsed);
}

// One change of the small shape's file, and what must be said about it.
struct Wrong {
  const char* pointer;
  const char* value;  // JSON; empty: the key is removed
  const char* message;
};

class WrongConfig : public testing::TestWithParam<Wrong> {};

TEST_P(WrongConfig, IsRefusedByName) {
  const auto& wrong = GetParam();
  auto file = json::parse(config_to_json(small_config()));
  const json::json_pointer pointer(wrong.pointer);
  if (*wrong.value == '\0') {
    ASSERT_EQ(file.at(pointer.parent_pointer()).erase(pointer.back()), 1U);
  } else {
    file[pointer] = json::parse(wrong.value);
  }
  const auto parsed = parse_config(file.dump(), "config.json");
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().kind, ErrorKind::invalid_input);
  EXPECT_THAT(parsed.error().message, HasSubstr("config.json: "));
  EXPECT_THAT(parsed.error().message, HasSubstr(wrong.message));
}

// Missing, mistyped, out of range.
INSTANTIATE_TEST_SUITE_P(
    Fields, WrongConfig,
    testing::Values(
        Wrong{"/model_type", R"("llama")", R"(model_type is "llama"; it must be "deepseek_v41")"},
        Wrong{"/architectures", R"(["Other"])", R"(architectures is ["Other"])"},
        Wrong{"/dtype", R"("float16")", R"(dtype is "float16"; it must be "bfloat16")"},
        Wrong{"/bos_token_id", "", "bos_token_id is missing"},
        Wrong{"/eos_token_id", "-1", "eos_token_id is -1; it must be a whole number from 0"},
        Wrong{"/tie_word_embeddings", "true", "tie_word_embeddings is true; it must be false"},
        Wrong{"/quantization_config", "", "quantization_config is missing; it must be an object"},
        Wrong{"/quantization_config", "[]", "quantization_config is []; it must be an object"},
        Wrong{"/quantization_config/quant_method", R"("awq")", R"(quant_method is "awq"; it must be "fp8")"},
        Wrong{"/quantization_config/activation_scheme", R"("static")", R"(activation_scheme is "static")"},
        Wrong{"/quantization_config/scale_fmt", R"("fp32")", R"(scale_fmt is "fp32"; it must be "ue8m0")"},
        Wrong{"/quantization_config/weight_block_size", "[128, 128]", "weight_block_size is [128,128]"},
        Wrong{"/quantization_config/expert_dtype", R"("fp8")", R"(expert_dtype is "fp8"; it must be "fp4")"},
        Wrong{"/text_config", "", "text_config is missing"},
        Wrong{"/text_config/model_type", R"("other")", R"(text_config.model_type is "other")"},
        Wrong{"/text_config/hidden_size", "", "text_config.hidden_size is missing"},
        Wrong{"/text_config/hidden_size", "128.0", "hidden_size is 128.0; it must be a whole number"},
        Wrong{"/text_config/hidden_size", R"("128")", R"(hidden_size is "128"; it must be a whole number)"},
        Wrong{"/text_config/hidden_size", "0", "hidden_size is 0; it must be a whole number from 32"},
        Wrong{"/text_config/hidden_size", "1000000000000000000000", "text_config.hidden_size is 1e+21"},
        Wrong{"/text_config/hidden_size", "18446744073709551615", "hidden_size is 18446744073709551615"},
        Wrong{"/text_config/vocab_size", "9223372036854775807", "vocab_size is 9223372036854775807"},
        Wrong{"/text_config/num_hidden_layers", "null", "num_hidden_layers is null"},
        Wrong{"/text_config/num_hidden_layers", "1000000", "num_hidden_layers is 1000000"},
        Wrong{"/text_config/num_key_value_heads", "2", "num_key_value_heads is 2; it must be 1"},
        Wrong{"/text_config/attention_bias", "true", "attention_bias is true; it must be false"},
        Wrong{"/text_config/hidden_act", R"("gelu")", R"(hidden_act is "gelu"; it must be "silu")"},
        Wrong{"/text_config/scoring_func", R"("sigmoid")", R"(scoring_func is "sigmoid"; it must be "sqrtsoftplus")"},
        Wrong{"/text_config/topk_method", R"("greedy")", R"(topk_method is "greedy"; it must be "noaux_tc")"},
        Wrong{"/text_config/norm_topk_prob", "false", "norm_topk_prob is false; it must be true"},
        Wrong{"/text_config/n_shared_experts", "2", "n_shared_experts is 2; it must be 1"},
        Wrong{"/text_config/swiglu_limit", "0", "swiglu_limit is 0; it must be a number from"},
        Wrong{"/text_config/rms_norm_eps", "-1e-6", "rms_norm_eps is -1e-06; it must be a number from 0 to 1"},
        Wrong{"/text_config/rope_theta", "\"10000\"", "rope_theta is \"10000\""},
        Wrong{"/text_config/rope_scaling", "null", "rope_scaling is null; it must be an object"},
        Wrong{"/text_config/rope_scaling/rope_type", R"("linear")", R"(rope_scaling.rope_type is "linear")"},
        Wrong{"/text_config/rope_scaling/factor", "", "text_config.rope_scaling.factor is missing"},
        Wrong{"/text_config/compress_ratios", "2", "compress_ratios is 2; it must be an array of whole numbers"},
        Wrong{"/text_config/compress_ratios/3", "4", "compress_ratios[3] is 4; it must be a whole number from 0 to 2"},
        Wrong{"/text_config/compress_ratios/3", "-1", "compress_ratios[3] is -1"},
        Wrong{"/text_config/kv_source_layer_ids/0", R"("2")", R"(kv_source_layer_ids[0] is "2")"},
        Wrong{"/text_config/hc_mult", "9", "hc_mult is 9; it must be a whole number from 1 to 8"},
        Wrong{"/text_config/engram_layer_ids", "", "engram_layer_ids is missing"},
        Wrong{"/text_config/engram_n_heads", "", "engram_n_heads is missing"},
        Wrong{"/text_config/engram_compressed_vocab_size", "", "engram_compressed_vocab_size is missing"},
        Wrong{"/text_config/engram_max_ngram_size", "1", "engram_max_ngram_size is 1"},
        Wrong{"/text_config/num_nextn_predict_layers", "", "num_nextn_predict_layers is missing"},
        Wrong{"/text_config/dspark_block_size", "", "dspark_block_size is missing"},
        Wrong{"/text_config/candidate_topk_blocks", "", "candidate_topk_blocks is missing"},
        Wrong{"/text_config/candidate_block_size", "0", "candidate_block_size is 0"},
        Wrong{"/vision_config", "{}", "vision_config.hidden_size is missing"},
        Wrong{"/vision_config", "null", "vision_config is null; it must be an object"}));

// Well-formed, but at odds with another field.
INSTANTIATE_TEST_SUITE_P(
    Contradictions, WrongConfig,
    testing::Values(
        Wrong{"/text_config/compress_ratios", "[0,0,2,2,2,2,1,1,1,1]",
              "compress_ratios has 10 entries; it must have num_hidden_layers + num_nextn_predict_layers = 13"},
        Wrong{"/text_config/compress_ratios/2", "0",
              "compress_ratios[2] is 0; it must be 1 or 2, as kv_source_layer_ids names the layer"},
        Wrong{"/text_config/compress_ratios/8", "0",
              "compress_ratios[8] is 0; it must be 1 or 2, as index_source_layer_ids names the layer"},
        Wrong{"/text_config/compress_ratios/1", "2",
              "compress_ratios[1] is 2; it must be 0 before the first of kv_source_layer_ids, which is 2"},
        Wrong{"/text_config/compress_ratios/3", "1",
              "compress_ratios[3] is 1; it must be 2, that of its KV source, layer 2"},
        Wrong{"/text_config/compress_ratios/11", "1", "compress_ratios[11] is 1; it must be 0 for a draft block"},
        Wrong{"/text_config/kv_source_layer_ids", "[]", "kv_source_layer_ids is []; it must name at least one layer"},
        Wrong{"/text_config/kv_source_layer_ids", "[2,6,4]",
              "kv_source_layer_ids is [2, 6, 4]; it must be ascending, each layer once"},
        Wrong{"/text_config/kv_source_layer_ids", "[2,2,6]", "kv_source_layer_ids is [2, 2, 6]; it must be ascending"},
        Wrong{"/text_config/kv_source_layer_ids", "[2,4,10]",
              "kv_source_layer_ids names layer 10; it must be below num_hidden_layers, which is 10"},
        Wrong{"/text_config/index_source_layer_ids", "[4,6,8]",
              "kv_source_layer_ids names layer 2, but index_source_layer_ids is [4, 6, 8]"},
        Wrong{"/text_config/index_source_layer_ids", "[1,2,4,6,8]",
              "compress_ratios[1] is 0; it must be 1 or 2, as index_source_layer_ids names the layer"},
        Wrong{"/text_config/index_source_layer_ids", "[2,4,8,6]", "index_source_layer_ids is [2, 4, 8, 6]"},
        Wrong{"/text_config/candidate_source_layer_id", "7",
              "candidate_source_layer_id is 7; it must be one of index_source_layer_ids, [2, 4, 6, 8]"},
        Wrong{"/text_config/candidate_source_layer_id", "4",
              "candidate_source_layer_id is 4; it must not be followed by a KV source, but layer 6 is one"},
        Wrong{"/text_config/o_groups", "3", "o_groups is 3; it must divide num_attention_heads, which is 4"},
        Wrong{"/text_config/o_lora_rank", "24", "o_lora_rank is 24; o_groups (2) times it must be a multiple of 32"},
        Wrong{"/text_config/hidden_size", "100", "hidden_size is 100; it must be a multiple of 32"},
        Wrong{"/text_config/q_lora_rank", "40", "q_lora_rank is 40; it must be a multiple of 32"},
        Wrong{"/text_config/moe_intermediate_size", "65", "moe_intermediate_size is 65; it must be a multiple of 32"},
        Wrong{"/text_config/head_dim", "80", "head_dim is 80; it must be a multiple of 32"},
        Wrong{"/text_config/index_head_dim", "48", "index_head_dim is 48; it must be a multiple of 32"},
        Wrong{"/text_config/engram_head_dim", "33", "engram_head_dim is 33; it must be a multiple of 32"},
        Wrong{"/text_config/qk_rope_head_dim", "31", "qk_rope_head_dim is 31; it must be even"},
        Wrong{"/text_config/qk_rope_head_dim", "34",
              "qk_rope_head_dim is 34; it must be at most head_dim (64) and index_head_dim (32)"},
        Wrong{"/text_config/rope_scaling/beta_slow", "64", "beta_fast is 32; it must be above beta_slow, which is 64"},
        Wrong{"/text_config/num_experts_per_tok", "9",
              "num_experts_per_tok is 9; it must be at most n_routed_experts, which is 8"},
        Wrong{"/text_config/n_routed_experts", "60000", "n_routed_experts is 60000; num_hidden_layers (10) times it"},
        Wrong{"/text_config/dspark_num_experts_per_tok", "5", "dspark_num_experts_per_tok is 5; it must be at most"},
        Wrong{"/text_config/dspark_target_layer_ids", "[9,8]", "dspark_target_layer_ids is [9, 8]"},
        Wrong{"/text_config/dspark_target_layer_ids", "[]", "dspark_target_layer_ids is []"},
        Wrong{"/text_config/dspark_target_layer_ids", "[10]", "dspark_target_layer_ids names layer 10"},
        Wrong{"/text_config/dspark_noise_token_id", "512", "dspark_noise_token_id is 512; it must be below"},
        Wrong{"/text_config/engram_num_embeddings", "[1,2]", "engram_num_embeddings is [1, 2]; it must be ["},
        Wrong{"/text_config/engram_num_embeddings", "[1]", "engram_num_embeddings is [1]; it must be ["},
        Wrong{"/text_config/engram_layer_ids", "[5,1]", "engram_layer_ids is [5, 1]; it must be ascending"},
        Wrong{"/text_config/engram_layer_ids", "[1,10]", "engram_layer_ids names layer 10"},
        Wrong{"/text_config/engram_compressed_vocab_size", "513", "engram_compressed_vocab_size is 513"},
        Wrong{"/text_config/engram_pad_token_id", "512", "engram_pad_token_id is 512; it must be below"},
        Wrong{"/bos_token_id", "512", "bos_token_id is 512; it must be below text_config.vocab_size, which is 512"},
        Wrong{"/image_token_id", "600", "image_token_id is 600; it must be below"}));

TEST(Config, VisionContradictions) {
  auto file = json::parse(config_to_json(released_config()));
  file["vision_config"]["num_attention_heads"] = 3;
  EXPECT_THAT(parse_config(file.dump(), "c").error().message,
              HasSubstr("vision_config.num_attention_heads is 3; it must divide hidden_size, which is 1024"));
  file["vision_config"]["num_attention_heads"] = 512;
  EXPECT_THAT(parse_config(file.dump(), "c").error().message, HasSubstr("must be a multiple of 4"));
  file["vision_config"]["num_attention_heads"] = 16;
  file.erase("image_token_id");
  EXPECT_THAT(parse_config(file.dump(), "c").error().message, HasSubstr("image_token_id is missing"));
}

TEST(Config, AllProblemsAtOnce) {
  auto file = json::parse(config_to_json(small_config()));
  file["text_config"].erase("head_dim");
  file["text_config"]["hidden_act"] = "gelu";
  file["eos_token_id"] = 1.5;
  const auto message = parse_config(file.dump(), "config.json").error().message;
  EXPECT_THAT(message, HasSubstr("config.json: 3 problems:\n"));
  EXPECT_THAT(message, HasSubstr("\n  text_config.head_dim is missing"));
  EXPECT_THAT(message, HasSubstr("\n  text_config.hidden_act is \"gelu\""));
  EXPECT_THAT(message, HasSubstr("\n  eos_token_id is 1.5"));

  file = json::parse(config_to_json(small_config()));
  file["text_config"]["o_groups"] = 3;
  file["text_config"]["compress_ratios"][3] = 1;
  EXPECT_THAT(parse_config(file.dump(), "config.json").error().message, HasSubstr("2 problems:"));
}

TEST(Config, NotAConfig) {
  const auto message = [](std::string_view text) { return parse_config(text, "config.json").error().message; };
  EXPECT_THAT(message(""), HasSubstr("config.json: is not valid JSON"));
  EXPECT_THAT(message("{"), HasSubstr("is not valid JSON"));
  EXPECT_THAT(message("{} {}"), HasSubstr("is not valid JSON"));
  EXPECT_THAT(message("{\"a\": \"\xff\"}"), HasSubstr("is not valid JSON"));
  EXPECT_THAT(message("{\"a\": NaN}"), HasSubstr("is not valid JSON"));
  EXPECT_THAT(message("[]"), HasSubstr("is []; it must be a JSON object"));
  EXPECT_THAT(message(R"({"model_type": 1, "model_type": 2})"), HasSubstr("has the key 'model_type' twice"));
  EXPECT_THAT(message(R"({"a": {"b": 1, "b": 1}})"), HasSubstr("has the key 'b' twice"));
  EXPECT_THAT(message(std::string(1'000'000, '[')), HasSubstr("is not valid JSON"));
  EXPECT_THAT(message(std::string(100, '[') + std::string(100, ']')), HasSubstr("nested deeper than 32"));
}

TEST(Config, RandomDamage) {
  const auto good = config_to_json(small_config());
  std::mt19937 random(1);
  for (int round = 0; round < 1000; ++round) {
    auto bad = good;
    for (size_t i = 0; i <= random() % 3; ++i)
      bad[random() % bad.size()] = "0123456789[]{},:\"-.e\xff\0"[random() % 22];
    const auto parsed = parse_config(bad, "config.json");
    if (parsed) {
      EXPECT_EQ(parse_config(config_to_json(*parsed), "again").value(), *parsed);
    } else {
      EXPECT_THAT(parsed.error().message, HasSubstr("config.json: "));
    }
  }
}

TEST(Config, UnreadableFile) {
  EXPECT_EQ(load_config("/nonexistent/config.json").error().kind, ErrorKind::invalid_input);
  EXPECT_THAT(load_config("/").error().message, HasSubstr("is not a regular file"));
}

}  // namespace
}  // namespace gannet

#include "checkpoint/config.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "base/mapped_file.h"
#include "checkpoint/config_check.h"
#include "checkpoint/config_fields.h"
#include "checkpoint/strict_json.h"

namespace gannet {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
namespace fields = config_fields;

// Reads the keys of one JSON object into fields; what is wrong is noted and the field left alone.
class FieldReader {
 public:
  FieldReader(const json& object, std::string prefix, std::vector<std::string>& problems)
      : object_(&object), prefix_(std::move(prefix)), problems_(&problems) {}

  bool has(const char* key) const { return object_->contains(key); }

  template <class Integer>
  void integer(const char* key, Integer& field, int64_t low, int64_t high) {
    const json* value = find(key, fmt::format("a whole number from {} to {}", low, high));
    if (value == nullptr) return;
    if (const auto number = whole_number(*value); number && *number >= low && *number <= high) {
      field = static_cast<Integer>(*number);
    } else {
      note(key, *value, fmt::format("a whole number from {} to {}", low, high));
    }
  }

  void number(const char* key, double& field, double low, double high) {
    const json* value = find(key, fmt::format("a number from {} to {}", low, high));
    if (value == nullptr) return;
    if (value->is_number() && value->get<double>() >= low && value->get<double>() <= high) {
      field = value->get<double>();
    } else {
      note(key, *value, fmt::format("a number from {} to {}", low, high));
    }
  }

  void integers(const char* key, std::vector<int64_t>& field, int64_t low, int64_t high) {
    const auto right = fmt::format("an array of whole numbers from {} to {}", low, high);
    const json* value = find(key, right);
    if (value == nullptr) return;
    if (!value->is_array()) return note(key, *value, right);
    std::vector<int64_t> numbers;
    for (size_t i = 0; i < value->size(); ++i) {
      const auto number = whole_number((*value)[i]);
      if (!number || *number < low || *number > high) {
        return note(fmt::format("{}[{}]", key, i), (*value)[i], fmt::format("a whole number from {} to {}", low, high));
      }
      numbers.push_back(*number);
    }
    field = std::move(numbers);
  }

  void constant(const char* key, const json& right) {
    const json* value = find(key, right.dump());
    if (value != nullptr && *value != right) note(key, *value, right.dump() + " in this model");
  }

  // A key that may be absent, but that says something else than this program knows when it is not `right`.
  void optional_constant(const char* key, const json& right) {
    if (has(key)) constant(key, right);
  }

  template <class Function>
  void section(const char* key, const Function& read) {
    const json* value = find(key, "an object");
    if (value == nullptr) return;
    if (!value->is_object()) return note(key, *value, "an object");
    FieldReader reader(*value, fmt::format("{}{}.", prefix_, key), *problems_);
    read(reader);
  }

 private:
  static std::optional<int64_t> whole_number(const json& value) {
    if (!value.is_number_integer()) return std::nullopt;
    if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}) {
      return std::nullopt;
    }
    return value.get<int64_t>();
  }

  const json* find(const char* key, const std::string& right) {
    const auto found = object_->find(key);
    if (found != object_->end()) return &*found;
    problems_->push_back(fmt::format("{}{} is missing; it must be {}", prefix_, key, right));
    return nullptr;
  }

  void note(const std::string& key, const json& value, const std::string& right) {
    problems_->push_back(fmt::format("{}{} is {}; it must be {}", prefix_, key, shown(value), right));
  }

  const json* object_;
  std::string prefix_;
  std::vector<std::string>* problems_;
};

// The counterpart: writes fields as keys of one JSON object.
class FieldWriter {
 public:
  explicit FieldWriter(ordered_json& object) : object_(&object) {}
  template <class Integer>
  void integer(const char* key, const Integer& field, int64_t, int64_t) {
    (*object_)[key] = field;
  }
  void number(const char* key, const double& field, double, double) { (*object_)[key] = field; }
  void integers(const char* key, const std::vector<int64_t>& field, int64_t, int64_t) { (*object_)[key] = field; }
  void constant(const char* key, const ordered_json& value) { (*object_)[key] = value; }
  template <class Function>
  void section(const char* key, const Function& write) {
    ordered_json inner = ordered_json::object();
    FieldWriter writer(inner);
    write(writer);
    (*object_)[key] = std::move(inner);
  }

 private:
  ordered_json* object_;
};

void read_text_config(FieldReader& text, Config& c) {
  text.optional_constant("model_type", "deepseek_v41_text");
  fields::attention_fields(text, c);
  fields::expert_fields(text, c);
  if (text.has("candidate_source_layer_id")) {
    text.integer("candidate_source_layer_id", c.candidate_source_layer_id, -1, fields::kMaxLayers - 1);
  }
  if (c.candidate_source_layer_id >= 0) fields::candidate_fields(text, c);
  text.integers("engram_layer_ids", c.engram_layer_ids, 0, fields::kMaxLayers - 1);
  if (!c.engram_layer_ids.empty()) fields::engram_fields(text, c);
  text.integer("num_nextn_predict_layers", c.num_nextn_predict_layers, 0, fields::kMaxDraftBlocks);
  if (c.num_nextn_predict_layers > 0) fields::draft_fields(text, c);
}

void read_config(FieldReader& top, Config& c) {
  constexpr int64_t kMaxId = fields::kMaxIds - 1;
  top.constant("model_type", "deepseek_v41");
  top.optional_constant("architectures", {"DeepseekV41ForCausalLM"});
  top.optional_constant("dtype", "bfloat16");
  top.constant("tie_word_embeddings", false);
  top.integer("bos_token_id", c.bos_token_id, 0, kMaxId);
  top.integer("eos_token_id", c.eos_token_id, 0, kMaxId);
  top.integer("pad_token_id", c.pad_token_id, 0, kMaxId);
  top.section("quantization_config", [](FieldReader& quantization) { fields::quantization_fields(quantization); });
  top.section("text_config", [&](FieldReader& text) { read_text_config(text, c); });
  c.has_vision = top.has("vision_config");
  if (c.has_vision) {
    top.section("vision_config", [&](FieldReader& vision) {
      vision.optional_constant("model_type", "deepseek_v41_vision");
      vision.optional_constant("max_wh_ratio", nullptr);
      fields::vision_fields(vision, c.vision);
    });
  }
  if (c.has_vision || top.has("image_token_id")) top.integer("image_token_id", c.image_token_id, 0, kMaxId);
}

tl::unexpected<Error> refuse(std::string_view name, const std::vector<std::string>& problems) {
  if (problems.size() == 1) return invalid_input("{}: {}", name, problems.front());
  return invalid_input("{}: {} problems:\n  {}", name, problems.size(), fmt::join(problems, "\n  "));
}

// The released model's values (spec: model 1.2).
Config make_released_config() {
  Config c;
  c.image_token_id = 129264;
  c.vocab_size = 129280;
  c.hidden_size = 5120;
  c.num_hidden_layers = 40;
  c.moe_intermediate_size = 2304;
  c.num_attention_heads = 64;
  c.head_dim = 512;
  c.qk_rope_head_dim = 64;
  c.q_lora_rank = 1280;
  c.o_lora_rank = 1024;
  c.o_groups = 8;
  c.max_position_embeddings = 1048576;
  c.sliding_window = 128;
  c.n_routed_experts = 384;
  c.num_experts_per_tok = 6;
  c.compress_ratios.assign(43, 0);
  for (size_t layer = 2; layer < 40; ++layer) c.compress_ratios[layer] = layer < 20 ? 2 : 1;
  c.kv_source_layer_ids = {2, 8, 14, 20};
  c.index_source_layer_ids = {2, 8, 14, 20, 24, 28, 32, 36};
  c.index_n_heads = 32;
  c.index_head_dim = 128;
  c.index_topk = 512;
  c.candidate_source_layer_id = 20;
  c.candidate_topk_blocks = 2048;
  c.candidate_block_size = 8;
  c.engram_layer_ids = {1, 14};
  c.engram_num_embeddings = {384006168, 384016682};
  c.engram_max_ngram_size = 4;
  c.engram_vocab_size = 16000000;
  c.engram_n_heads = 8;
  c.engram_head_dim = 256;
  c.engram_compressed_vocab_size = 99092;
  c.num_nextn_predict_layers = 3;
  c.dspark_block_size = 5;
  c.dspark_noise_token_id = 128799;
  c.dspark_target_layer_ids = {37, 38, 39};
  c.dspark_markov_rank = 256;
  c.dspark_n_routed_experts = 128;
  c.dspark_num_experts_per_tok = 3;
  c.has_vision = true;
  return c;
}

}  // namespace

Result<Config> parse_config(std::string_view text, std::string_view name) {
  GANNET_TRY(const json value, parse_strict_json(text, name));
  if (!value.is_object()) return invalid_input("{}: is {}; it must be a JSON object", name, shown(value));
  Config config;
  std::vector<std::string> problems;
  FieldReader reader(value, "", problems);
  read_config(reader, config);
  // Fields that could not be read would only raise follow-up complaints.
  if (problems.empty()) problems = contradictions(config);
  if (!problems.empty()) return refuse(name, problems);
  return config;
}

Result<Config> load_config(const std::filesystem::path& config_json) {
  constexpr size_t kLimit = size_t{16} << 20;
  GANNET_TRY(const std::string text, read_file(config_json, kLimit));
  return parse_config(text, config_json.string());
}

const Config& released_config() {
  static const Config config = make_released_config();
  return config;
}

std::string config_to_json(const Config& c) {
  ordered_json file;
  FieldWriter top(file);
  file["architectures"] = {"DeepseekV41ForCausalLM"};
  file["model_type"] = "deepseek_v41";
  file["dtype"] = "bfloat16";
  file["bos_token_id"] = c.bos_token_id;
  file["eos_token_id"] = c.eos_token_id;
  file["pad_token_id"] = c.pad_token_id;
  if (c.image_token_id >= 0) file["image_token_id"] = c.image_token_id;
  file["tie_word_embeddings"] = false;
  top.section("quantization_config", [](FieldWriter& quantization) { fields::quantization_fields(quantization); });
  top.section("text_config", [&](FieldWriter& text) {
    text.constant("model_type", "deepseek_v41_text");
    fields::attention_fields(text, c);
    fields::expert_fields(text, c);
    text.constant("candidate_source_layer_id", c.candidate_source_layer_id);
    if (c.candidate_source_layer_id >= 0) fields::candidate_fields(text, c);
    text.constant("engram_layer_ids", c.engram_layer_ids);
    if (!c.engram_layer_ids.empty()) fields::engram_fields(text, c);
    text.constant("num_nextn_predict_layers", c.num_nextn_predict_layers);
    if (c.num_nextn_predict_layers > 0) fields::draft_fields(text, c);
  });
  if (c.has_vision) {
    top.section("vision_config", [&](FieldWriter& vision) {
      vision.constant("model_type", "deepseek_v41_vision");
      fields::vision_fields(vision, c.vision);
      vision.constant("max_wh_ratio", nullptr);
    });
  }
  return file.dump(1) + "\n";
}

}  // namespace gannet

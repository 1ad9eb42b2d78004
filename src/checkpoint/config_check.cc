#include "checkpoint/config_check.h"

#include <algorithm>
#include <utility>

#include "checkpoint/engram_geometry.h"

namespace gannet {
namespace {

constexpr int64_t kGroup = 32;                          // channels under one block scale (spec: model 1.5, 3.1)
constexpr int64_t kMaxExpertsInAll = int64_t{1} << 18;  // bounds the number of tensors

bool contains(const std::vector<int64_t>& list, int64_t value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

std::string list_of(const std::vector<int64_t>& values) {
  return fmt::format("[{}]", fmt::join(values, ", "));
}

class Checker {
 public:
  explicit Checker(const Config& config) : c_(config) {}

  std::vector<std::string> check() {
    check_widths();
    check_token_ids();
    check_experts();
    check_rope();
    if (check_layer_lists()) {
      check_layers();
      check_candidates();
    }
    if (!c_.engram_layer_ids.empty()) check_engram();
    if (c_.num_nextn_predict_layers > 0) check_draft();
    if (c_.has_vision) check_vision();
    return std::move(problems_);
  }

 private:
  template <class... Args>
  void require(bool good, fmt::format_string<Args...> format, Args&&... args) {
    if (!good) problems_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  void require_groups(const char* field, int64_t value, const char* reason) {
    require(value % kGroup == 0, "{} is {}; it must be a multiple of {} ({})", field, value, kGroup, reason);
  }

  void check_widths() {
    constexpr const char* kLinear = "input of quantised linears";
    require_groups("text_config.hidden_size", c_.hidden_size, kLinear);
    require_groups("text_config.moe_intermediate_size", c_.moe_intermediate_size, kLinear);
    require_groups("text_config.q_lora_rank", c_.q_lora_rank, kLinear);
    require_groups("text_config.head_dim", c_.head_dim, "one scale for 32 channels of a window record");
    require_groups("text_config.index_head_dim", c_.index_head_dim, "one scale for 32 channels of an index key");
    require(c_.num_attention_heads % c_.o_groups == 0,
            "text_config.o_groups is {}; it must divide num_attention_heads, which is {}", c_.o_groups,
            c_.num_attention_heads);
    require(c_.o_groups * c_.o_lora_rank % kGroup == 0,
            "text_config.o_lora_rank is {}; o_groups ({}) times it must be a multiple of {} ({})", c_.o_lora_rank,
            c_.o_groups, kGroup, kLinear);
  }

  void check_id(const char* field, int64_t id) {
    require(id < c_.vocab_size, "{} is {}; it must be below text_config.vocab_size, which is {}", field, id,
            c_.vocab_size);
  }

  void check_token_ids() {
    check_id("bos_token_id", c_.bos_token_id);
    check_id("eos_token_id", c_.eos_token_id);
    check_id("pad_token_id", c_.pad_token_id);
    check_id("image_token_id", c_.image_token_id);
  }

  void check_experts() {
    require(c_.num_experts_per_tok <= c_.n_routed_experts,
            "text_config.num_experts_per_tok is {}; it must be at most n_routed_experts, which is {}",
            c_.num_experts_per_tok, c_.n_routed_experts);
    require(c_.num_hidden_layers * c_.n_routed_experts <= kMaxExpertsInAll,
            "text_config.n_routed_experts is {}; num_hidden_layers ({}) times it must be at most {}",
            c_.n_routed_experts, c_.num_hidden_layers, kMaxExpertsInAll);
  }

  void check_rope() {
    require(c_.qk_rope_head_dim % 2 == 0, "text_config.qk_rope_head_dim is {}; it must be even", c_.qk_rope_head_dim);
    require(c_.qk_rope_head_dim <= std::min(c_.head_dim, c_.index_head_dim),
            "text_config.qk_rope_head_dim is {}; it must be at most head_dim ({}) and index_head_dim ({})",
            c_.qk_rope_head_dim, c_.head_dim, c_.index_head_dim);
    require(c_.rope_scaling.beta_fast > c_.rope_scaling.beta_slow,
            "text_config.rope_scaling.beta_fast is {}; it must be above beta_slow, which is {}",
            c_.rope_scaling.beta_fast, c_.rope_scaling.beta_slow);
    require(c_.compress_rope_theta > 1, "text_config.compress_rope_theta is {}; it must be above 1",
            c_.compress_rope_theta);
  }

  // A list of layers: ascending, each once, each of the backbone.
  bool check_list(const char* field, const std::vector<int64_t>& layers) {
    const auto problems_before = problems_.size();
    const bool ascending = std::adjacent_find(layers.begin(), layers.end(), std::greater_equal<>()) == layers.end();
    require(ascending, "text_config.{} is {}; it must be ascending, each layer once", field, list_of(layers));
    for (const int64_t layer : layers) {
      require(layer < c_.num_hidden_layers,
              "text_config.{} names layer {}; it must be below num_hidden_layers, which is {}", field, layer,
              c_.num_hidden_layers);
    }
    return problems_.size() == problems_before;
  }

  // Whether the lists are sound enough to be compared with one another.
  bool check_layer_lists() {
    bool good = check_list("kv_source_layer_ids", c_.kv_source_layer_ids);
    good &= check_list("index_source_layer_ids", c_.index_source_layer_ids);
    const auto entries = c_.num_hidden_layers + c_.num_nextn_predict_layers;
    const bool complete = static_cast<int64_t>(c_.compress_ratios.size()) == entries;
    require(complete,
            "text_config.compress_ratios has {} entries; it must have num_hidden_layers + num_nextn_predict_layers = "
            "{}",
            c_.compress_ratios.size(), entries);
    require(!c_.kv_source_layer_ids.empty(),
            "text_config.kv_source_layer_ids is []; it must name at least one layer, the first of the decoder");
    return good && complete && !c_.kv_source_layer_ids.empty();
  }

  void check_layers() {
    for (const int64_t source : c_.kv_source_layer_ids) {
      require(contains(c_.index_source_layer_ids, source),
              "text_config.kv_source_layer_ids names layer {}, but index_source_layer_ids is {}; it must name every KV "
              "source too",
              source, list_of(c_.index_source_layer_ids));
    }
    int64_t source = -1;  // nearest KV source at or before the layer
    for (int64_t layer = 0; layer < c_.num_hidden_layers; ++layer) {
      if (contains(c_.kv_source_layer_ids, layer)) source = layer;
      check_layer(layer, source);
    }
    for (auto layer = static_cast<size_t>(c_.num_hidden_layers); layer < c_.compress_ratios.size(); ++layer) {
      require(c_.compress_ratios[layer] == 0, "text_config.compress_ratios[{}] is {}; it must be 0 for a draft block",
              layer, c_.compress_ratios[layer]);
    }
  }

  void check_layer(int64_t layer, int64_t source) {
    const int64_t ratio = c_.compress_ratios[static_cast<size_t>(layer)];
    const bool is_source = source == layer;
    const bool is_index_source = contains(c_.index_source_layer_ids, layer);
    if (is_source || is_index_source) {
      require(ratio > 0, "text_config.compress_ratios[{}] is 0; it must be 1 or 2, as {} names the layer", layer,
              is_source ? "kv_source_layer_ids" : "index_source_layer_ids");
    }
    if (ratio == 0) return;
    require(source >= 0,
            "text_config.compress_ratios[{}] is {}; it must be 0 before the first of kv_source_layer_ids, which is {}",
            layer, ratio, c_.kv_source_layer_ids.front());
    if (source < 0) return;
    const int64_t right = c_.compress_ratios[static_cast<size_t>(source)];
    require(ratio == right || right == 0,
            "text_config.compress_ratios[{}] is {}; it must be {}, that of its KV source, layer {}", layer, ratio,
            right, source);
  }

  void check_candidates() {
    const int64_t source = c_.candidate_source_layer_id;
    if (source < 0) return;
    require(contains(c_.index_source_layer_ids, source),
            "text_config.candidate_source_layer_id is {}; it must be one of index_source_layer_ids, {}", source,
            list_of(c_.index_source_layer_ids));
    require(source >= c_.kv_source_layer_ids.back(),
            "text_config.candidate_source_layer_id is {}; it must not be followed by a KV source, but layer {} is one",
            source, c_.kv_source_layer_ids.back());
  }

  void check_engram() {
    require_groups("text_config.engram_head_dim", c_.engram_head_dim, "one scale for 32 channels of a table row");
    check_id("text_config.engram_pad_token_id", c_.engram_pad_token_id);
    require(c_.engram_compressed_vocab_size <= c_.vocab_size,
            "text_config.engram_compressed_vocab_size is {}; it must be at most vocab_size, which is {}",
            c_.engram_compressed_vocab_size, c_.vocab_size);
    if (!check_list("engram_layer_ids", c_.engram_layer_ids)) return;
    const auto rows =
        engram_table_rows(engram_primes(c_.engram_vocab_size, static_cast<int64_t>(c_.engram_layer_ids.size()),
                                        c_.engram_max_ngram_size, c_.engram_n_heads));
    require(c_.engram_num_embeddings == rows,
            "text_config.engram_num_embeddings is {}; it must be {}, the sums of the primes from engram_vocab_size on",
            list_of(c_.engram_num_embeddings), list_of(rows));
  }

  void check_draft() {
    check_id("text_config.dspark_noise_token_id", c_.dspark_noise_token_id);
    check_list("dspark_target_layer_ids", c_.dspark_target_layer_ids);
    require(!c_.dspark_target_layer_ids.empty(),
            "text_config.dspark_target_layer_ids is []; it must name at least one layer");
    require(c_.dspark_num_experts_per_tok <= c_.dspark_n_routed_experts,
            "text_config.dspark_num_experts_per_tok is {}; it must be at most dspark_n_routed_experts, which is {}",
            c_.dspark_num_experts_per_tok, c_.dspark_n_routed_experts);
    require(c_.num_nextn_predict_layers * c_.dspark_n_routed_experts <= kMaxExpertsInAll,
            "text_config.dspark_n_routed_experts is {}; num_nextn_predict_layers ({}) times it must be at most {}",
            c_.dspark_n_routed_experts, c_.num_nextn_predict_layers, kMaxExpertsInAll);
  }

  // Each half of a head's channels turns with one of the two image coordinates, in pairs (spec: model 3.13).
  void check_vision() {
    const auto& v = c_.vision;
    const bool divides = v.hidden_size % v.num_attention_heads == 0;
    require(divides, "vision_config.num_attention_heads is {}; it must divide hidden_size, which is {}",
            v.num_attention_heads, v.hidden_size);
    require(!divides || v.hidden_size / v.num_attention_heads % 4 == 0,
            "vision_config.num_attention_heads is {}; hidden_size ({}) divided by it must be a multiple of 4",
            v.num_attention_heads, v.hidden_size);
  }

  const Config& c_;
  std::vector<std::string> problems_;
};

}  // namespace

std::vector<std::string> contradictions(const Config& config) {
  return Checker(config).check();
}

}  // namespace gannet

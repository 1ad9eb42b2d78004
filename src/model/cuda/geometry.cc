#include "model/cuda/geometry.h"

#include <utility>

#include "model/layer_plan.h"

namespace gannet {

Status check_cuda_config(const Config& c) {
  const auto refuse = [](const char* field, int64_t value, const char* right) {
    return invalid_input("config.json's {} is {}; the GPU kernels are written for {}", field, value, right);
  };
  if (c.head_dim != kHeadDim) return refuse("head_dim", c.head_dim, "512");
  if (c.qk_rope_head_dim != 64) return refuse("qk_rope_head_dim", c.qk_rope_head_dim, "64");
  if (c.index_n_heads > 0 && c.index_head_dim != kIndexDim) return refuse("index_head_dim", c.index_head_dim, "128");
  if (c.index_n_heads % 4 != 0 || c.index_n_heads > 64) {
    return refuse("index_n_heads", c.index_n_heads, "a multiple of 4 up to 64");
  }
  if (c.index_topk > 512) return refuse("index_topk", c.index_topk, "at most 512");
  if (c.candidate_topk_blocks > 2048) return refuse("candidate_topk_blocks", c.candidate_topk_blocks, "at most 2048");
  if (c.hc_mult != 4) return refuse("hc_mult", c.hc_mult, "4 streams");
  if (c.sliding_window > 128) return refuse("sliding_window", c.sliding_window, "at most 128");
  if (c.num_experts_per_tok > 8) return refuse("num_experts_per_tok", c.num_experts_per_tok, "at most 8");
  if (c.n_routed_experts > 512) return refuse("n_routed_experts", c.n_routed_experts, "at most 512");
  for (const auto& [field, value] :
       {std::pair{"hidden_size", c.hidden_size}, std::pair{"q_lora_rank", c.q_lora_rank},
        std::pair{"moe_intermediate_size", c.moe_intermediate_size}, std::pair{"o_lora_rank", c.o_lora_rank}}) {
    if (value % 32 != 0) return refuse(field, value, "multiples of 32");
  }
  const int64_t seam = plan_layers(c).seam;
  for (const int64_t layer : c.engram_layer_ids) {
    if (layer > seam) return refuse("engram_layer_ids", layer, "layers up to the last KV source");
  }
  return {};
}

}  // namespace gannet

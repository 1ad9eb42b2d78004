#include "model/cuda/workspace.h"

#include <algorithm>

#include "base/quantize.h"
#include "model/cuda/batch.h"
#include "model/cuda/geometry.h"
#include "ops/attention/sm90.h"
#include "ops/experts/sm90.h"
#include "ops/head/sm90_candidates.h"
#include "ops/hyper_mix/sm90.h"
#include "ops/index_scores/sm90.h"

namespace gannet {

CudaWorkspace::CudaWorkspace(const Config& c, int64_t rows, bool measure) : arena(measure) {
  for (Activations* activations : {&all, &kept}) {
    activations->streams = arena.get<__nv_bfloat16>(rows * 4 * c.hidden_size);
    activations->pre = arena.get<float>(rows * 4);
    activations->x = arena.get<__nv_bfloat16>(rows * c.hidden_size);
    activations->operand = arena.get<__nv_bfloat16>(rows * c.hidden_size);
  }
  post = arena.get<float>(rows * 4);
  mix = arena.get<float>(rows * 16);
  partial = arena.get<float>(ops::cuda::hyper_mix_scratch(rows));

  projected = arena.get<float>(rows * (std::max(c.q_lora_rank, kHeadDim) + kHeadDim));
  latent = arena.get<__nv_bfloat16>(rows * c.q_lora_rank);
  q = arena.get<__nv_bfloat16>(rows * c.num_attention_heads * kHeadDim);
  heads = arena.get<__nv_bfloat16>(rows * c.num_attention_heads * kHeadDim);
  grouped = arena.get<__nv_bfloat16>(rows * c.o_groups * c.o_lora_rank);
  y = arena.get<__nv_bfloat16>(rows * c.hidden_size);
  records = arena.get<std::byte>(c.num_hidden_layers * rows * q8_bytes(kHeadDim));
  entry_latent = arena.get<__nv_bfloat16>(rows * kHeadDim);
  key_projected = arena.get<float>(rows * kIndexDim);

  index_q = arena.get<float>(rows * c.index_n_heads * kIndexDim);
  index_weights = arena.get<float>(rows * c.index_n_heads);
  index = arena.get<std::byte>(ops::cuda::index_select_scratch(rows, c.index_topk, c.candidate_topk_blocks));
  selected = arena.get<int32_t>(rows * c.index_topk);
  selected_counts = arena.get<int32_t>(rows);
  candidates = arena.get<int32_t>(rows * c.candidate_topk_blocks * c.candidate_block_size);
  candidate_counts = arena.get<int32_t>(rows);

  const int64_t pairs = rows * c.num_experts_per_tok;
  router_logits = arena.get<float>(rows * c.n_routed_experts);
  lists = {.experts = arena.get<int32_t>(pairs),
           .weights = arena.get<float>(pairs),
           .pairs = arena.get<int32_t>(pairs),
           .offsets = arena.get<int32_t>(c.n_routed_experts + 1),
           .active = arena.get<int32_t>(c.n_routed_experts),
           .active_count = arena.get<int32_t>(1)};
  tiles = arena.get<int32_t>(ops::cuda::expert_tile_words(rows, c.num_experts_per_tok, c.n_routed_experts));
  inner = arena.get<__nv_bfloat16>(pairs * c.moe_intermediate_size);
  shared_inner = arena.get<__nv_bfloat16>(rows * c.moe_intermediate_size);
  outer = arena.get<float>(pairs * c.hidden_size);
  shared = arena.get<float>(rows * c.hidden_size);

  const int64_t columns = (c.engram_max_ngram_size - 1) * c.engram_n_heads;
  for (size_t e = 0; e < c.engram_layer_ids.size(); ++e) {
    engram_rows.push_back(arena.get<__nv_bfloat16>(rows * columns * c.engram_head_dim));
  }
  if (!engram_rows.empty()) engram_kv = arena.get<float>(rows * 5 * c.hidden_size);

  head_x = arena.get<__nv_bfloat16>(CudaBatch::kHeadRows * c.hidden_size);
  logits = arena.get<float>(CudaBatch::kHeadRows * c.vocab_size);
  candidate_logits = arena.get<float>(CudaBatch::kHeadRows * ops::cuda::kCandidates);
  candidate_ids = arena.get<int32_t>(CudaBatch::kHeadRows * ops::cuda::kCandidates);
  candidate_sums = arena.get<float>(2 * CudaBatch::kHeadRows);
}

}  // namespace gannet

"""nano's shape, and what each layer does in a model of this architecture."""
from __future__ import annotations

from dataclasses import dataclass

# text_config of the released config.json, shrunk. Head 512, rope 64, window 128, index heads of 128, four streams and
# the ratios 0/2/1 are the released model's, so that every kernel of an engine runs with its real inner sizes.
NANO: dict = dict(
    hidden_act="silu", swiglu_limit=10.0, rms_norm_eps=1e-20, max_position_embeddings=65536,
    rope_theta=10000, compress_rope_theta=160000,
    rope_scaling=dict(rope_type="yarn", factor=16, beta_fast=32, beta_slow=1,
                      original_max_position_embeddings=65536),
    vocab_size=4096, hidden_size=384, num_hidden_layers=9,
    num_attention_heads=4, num_key_value_heads=1, head_dim=512, qk_rope_head_dim=64, attention_bias=False,
    q_lora_rank=192, o_lora_rank=128, o_groups=2, sliding_window=128,
    compress_ratios=[0, 2, 2, 2, 2, 1, 1, 1, 1],
    kv_source_layer_ids=[1, 3, 5], index_source_layer_ids=[1, 3, 5, 7],
    index_n_heads=4, index_head_dim=128, index_topk=64,
    candidate_source_layer_id=5, candidate_topk_blocks=64, candidate_block_size=8,
    moe_intermediate_size=192, n_routed_experts=12, n_shared_experts=1, num_experts_per_tok=4,
    scoring_func="sqrtsoftplus", topk_method="noaux_tc", norm_topk_prob=True, routed_scaling_factor=1.5,
    hc_mult=4, hc_sinkhorn_iters=20, hc_eps=1e-6,
    engram_layer_ids=[1, 4], engram_max_ngram_size=4, engram_vocab_size=2500, engram_n_heads=4,
    engram_head_dim=32, engram_pad_token_id=2,
    num_nextn_predict_layers=0,
)


# The same layer plan with short vectors, for tests.
MINIATURE: dict = dict(
    hidden_size=64, head_dim=64, qk_rope_head_dim=32, num_attention_heads=2, q_lora_rank=32, o_lora_rank=32, o_groups=2,
    sliding_window=16, index_n_heads=2, index_head_dim=32, index_topk=8, candidate_topk_blocks=4, candidate_block_size=8,
    moe_intermediate_size=32, n_routed_experts=4, num_experts_per_tok=2, engram_vocab_size=40, engram_n_heads=2,
)


@dataclass(frozen=True)
class Layer:
    """The role of one layer; None where it has no such part."""
    index: int
    ratio: int                      # tokens to a global entry; 0 = window only
    kv_source: int | None           # layer whose global entries it reads
    index_source: int | None        # layer whose selection it uses
    publishes: bool                 # owns global entries and index keys
    selects: bool                   # owns an index query
    candidates: bool                # its scores choose the candidate blocks
    restricted: bool                # selects among the candidates only
    engram: bool
    decoder: bool                   # runs on replayed rows only when replay is on
    last_reader: bool               # the last layer that uses its selection


def layer_plan(c: dict) -> list[Layer]:
    """Derives every layer's role from the configuration alone."""
    split = max(c["kv_source_layer_ids"], default=0)
    candidate = c["candidate_source_layer_id"]
    plan, kv, index = [], None, None
    n = c["num_hidden_layers"]
    for i in range(n):
        ratio = c["compress_ratios"][i]
        if i in c["kv_source_layer_ids"]:
            kv = i
        if i in c["index_source_layer_ids"]:
            index = i
        next_uses_same = i + 1 < n and c["compress_ratios"][i + 1] > 0 and i + 1 not in c["index_source_layer_ids"]
        plan.append(Layer(
            i, ratio, kv if ratio else None, index if ratio else None,
            publishes=i in c["kv_source_layer_ids"], selects=i in c["index_source_layer_ids"],
            candidates=i == candidate, restricted=i in c["index_source_layer_ids"] and 0 <= candidate < i,
            engram=i in c["engram_layer_ids"], decoder=i >= split, last_reader=ratio > 0 and not next_uses_same))
    return plan


def config_json(text_config: dict) -> dict:
    """The whole config.json around a text_config."""
    return dict(
        architectures=["DeepseekV41ForCausalLM"], model_type="deepseek_v41", dtype="bfloat16",
        bos_token_id=0, eos_token_id=1, pad_token_id=2, tie_word_embeddings=False,
        quantization_config=dict(quant_method="fp8", activation_scheme="dynamic", weight_block_size=[32, 32],
                                 scale_fmt="ue8m0", expert_dtype="fp4"),
        text_config=dict(model_type="deepseek_v41_text", **text_config))

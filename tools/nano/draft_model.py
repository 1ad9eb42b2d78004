"""The DSpark draft blocks: window-only layers that guess the next five tokens from what the last backbone layers read.

After the backbone processed position p and chose token t for p + 1, the blocks run on the ids [t, noise, noise, ...] at
positions p + 1 and on. Their queries read a ring of the last 128 entries made of `main` (the stream means of the tapped
layers, projected) and all of the block's own entries, in both directions. A head of low rank adds what each token's
predecessor says about it, and a confidence head guesses whether a draft will be accepted if all before it are.

Everything but attention's reach, the input and the heads is the backbone's code: the blocks are a Model of layers
without global entries, over Params of their own.
"""
from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from . import chains, checkpoint
from .attention import window_keys
from .chains import fused, precise
from .config import Layer
from .kernels import window_mask
from .model import Batch, Mode, Model, State
from .params import Group, Params, constant, groups_for, normal

BLOCKS, BLOCK_SIZE, RANK, EXPERTS, EXPERTS_USED, TAPPED = 3, 5, 64, 4, 2, 3

# group -> tensor name; {first} and {last} are the first and the last block
EXTRA = {
    "main_proj": "mtp.{first}.main_proj.weight", "main_norm": "mtp.{first}.main_norm.weight",
    "norm": "mtp.{last}.norm.weight",
    "markov_embed": "mtp.{last}.markov_head.embed.weight", "markov_head": "mtp.{last}.markov_head.head.weight",
    "confidence": "mtp.{last}.confidence_head.proj.weight",
}


# ---- shape, parameters, tensor names -----------------------------------------------------------------------------------

def with_drafts(c: dict, noise: int) -> dict:
    """A text_config completed by nano's draft blocks; one that has draft blocks stays as it is."""
    if c["num_nextn_predict_layers"]:
        return dict(c)
    n = c["num_hidden_layers"]
    return dict(c, compress_ratios=c["compress_ratios"][:n] + [0] * BLOCKS, num_nextn_predict_layers=BLOCKS,
                dspark_block_size=BLOCK_SIZE, dspark_noise_token_id=noise,
                dspark_target_layer_ids=list(range(n - TAPPED, n)), dspark_markov_rank=RANK,
                dspark_n_routed_experts=EXPERTS, dspark_num_experts_per_tok=EXPERTS_USED)


def block_config(c: dict) -> dict:
    """The draft blocks of a text_config as a model of their own: window-only layers."""
    n = c["num_nextn_predict_layers"]
    return dict(c, num_hidden_layers=n, compress_ratios=[0] * n, kv_source_layer_ids=[], index_source_layer_ids=[],
                candidate_source_layer_id=-1, engram_layer_ids=[], n_routed_experts=c["dspark_n_routed_experts"],
                num_experts_per_tok=c["dspark_num_experts_per_tok"])


def draft_groups(c: dict) -> list[Group]:
    """The groups of a block_config: the backbone's kinds, without embedding and head, and the drafts' own."""
    d, v, r = c["hidden_size"], c["vocab_size"], c["dspark_markov_rank"]
    wide = d * len(c["dspark_target_layer_ids"])
    shared = [g for g in groups_for(c) if g.shape[0] and g.name not in ("embed", "head")]
    return shared + [
        Group("main_proj", (1, d, wide), "fp8", "muon", 4e-3, normal(wide ** -0.5)),
        Group("main_norm", (1, d), "bf16", "adam", 3e-3, constant(1.0)),
        Group("markov_embed", (1, v, r), "bf16", "adam", 3e-3, normal(1.0)),
        Group("markov_head", (1, v, r), "bf16", "adam", 3e-3, normal(0.1 * r ** -0.5)),
        Group("confidence", (1, 1, d + r), "bf16", "adam", 5e-4, constant(0.0)),
    ]


def draft_params(c: dict, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32, seed: int = 0) -> Params:
    """Draft blocks for a text_config with draft fields."""
    blocks = block_config(c)
    return Params(blocks, device, dtype, seed, draft_groups(blocks))


def draft_views(params: Params) -> dict[str, tuple[str, Tensor]]:
    """As checkpoint.views: tensor name -> (format in the file, the master's part that it holds)."""
    last = params.c["num_nextn_predict_layers"] - 1
    out = {"mtp." + name.removeprefix("layers."): view for name, view in checkpoint.views(params).items()
           if name.startswith("layers.")}
    for name, tensor in EXTRA.items():
        g = params.groups[name]
        out[tensor.format(first=0, last=last)] = (g.kind, g.master[0])
    return out


# ---- attention ---------------------------------------------------------------------------------------------------------

@fused
def draft_softmax(ring: Tensor, own: Tensor, visible: Tensor, sink: Tensor, scale: float):
    """Dot products [W, n, Q, 2W] with the ring and [W, n, Q, k] with the own block, visible bool [W, n, 2W], sink [Q]
    -> both as weights of one softmax."""
    a = ring.float().masked_fill(~visible.unsqueeze(2), float("-inf")) * scale
    b, zero = own.float() * scale, sink.view(1, 1, -1)
    top = torch.maximum(torch.maximum(a.amax(-1), b.amax(-1)), zero).detach().unsqueeze(-1)
    a, b = torch.exp(a - top), torch.exp(b - top)
    total = a.sum(-1, keepdim=True) + b.sum(-1, keepdim=True) + torch.exp(zero.unsqueeze(-1) - top)
    return (a / total).to(ring.dtype), (b / total).to(own.dtype)


def attend(q: Tensor, ring: Tensor, own: Tensor, visible: Tensor, sink: Tensor) -> Tensor:
    """n anchors in each of W blocks of a packed row: q [W*n, k*H, D] of k draft rows, ring [W, 2W, D] the window entries of
    a block and the one before it, own [W*n, k, D], visible bool [W, n, 2W], sink [k*H] -> [W*n, k*H, D]."""
    w, n = visible.shape[:2]
    queries, dim = q.shape[1:]
    a = torch.bmm(q.reshape(w, n * queries, dim), ring.transpose(1, 2)).view(w, n, queries, -1)
    b = torch.bmm(q, own.transpose(1, 2)).view(w, n, queries, -1)
    a, b = draft_softmax(a, b, visible, sink, dim ** -0.5)
    far = torch.bmm(a.view(w, n * queries, -1), ring).view(w * n, queries, dim)
    return torch.baddbmm(far, b.view(w * n, queries, -1), own)


# ---- the model ---------------------------------------------------------------------------------------------------------

@fused
def confidence_logit(x: Tensor, embed: Tensor, weight: Tensor):
    """x [R, D] before its norm, Markov embeddings [R, rank], weight [D + rank] -> [R] f32."""
    w = weight.float()
    return (x.float() * w[:x.shape[1]]).sum(-1) + (embed.float() * w[x.shape[1]:]).sum(-1)


@dataclass
class Ring:
    """What the draft rows read besides themselves."""
    main: Tensor                  # [B*L, D] in Q8
    angle: tuple[Tensor, Tensor]  # of every token
    visible: Tensor               # bool [B*L/W, n, 2W], which entries each anchor sees
    rows: int                     # B


@dataclass
class Drafts:
    """k drafts at each of A anchors."""
    logits: Tensor                # [A, k, vocab] f32
    confidence: Tensor            # [A, k] f32, the logit of being accepted
    load: Tensor                  # [blocks, experts]


class DraftModel(Model):
    """Evaluates draft blocks on the batches of a backbone, whose embedding and head it uses as constants."""

    def __init__(self, params: Params, backbone: Model):
        super().__init__(params, None)
        self.embed, self.head = backbone.p.leaf("embed").detach(), backbone.p.leaf("head").detach()

    def _attention(self, layer: Layer, x: Tensor, xq: Tensor, batch: Ring, state: State, mode: Mode, angles) -> Tensor:
        c, i, k = self.c, layer.index, self.c["dspark_block_size"]
        heads, dim, window = c["num_attention_heads"], c["head_dim"], c["sliding_window"]
        _, q = self._queries(i, xq, angles, mode)
        own = self._window(i, xq, angles, mode).view(-1, k, dim)
        ring = window_keys(self._window(i, batch.main, batch.angle, mode).view(batch.rows, -1, dim), window)
        o = attend(q.reshape(-1, k * heads, dim), ring, own, batch.visible, self.p.leaf("sink", i).repeat(k))
        return self._output(i, o.view(-1, heads, dim), angles, mode)

    def _ring(self, batch: Batch, tapped: list[Tensor], at: Tensor, mode: Mode) -> Ring:
        """tapped: State.tapped of the backbone's pass over the batch. Replay cuts the ring as it cuts a decoder window."""
        x = F.linear(chains.quantised(torch.cat(tapped, -1), mode.act_quant), self.p.leaf("main_proj"))
        _, main = chains.query_latent(x, self.p.leaf("main_norm"), self.eps, mode.act_quant)
        visible = window_mask(batch.decoder_seg, self.c["sliding_window"]).flatten(0, 1)[at]
        return Ring(main, self.angles(batch.pos, False), visible, len(batch.ids))

    def forward(self, batch: Batch, tapped: list[Tensor], at: Tensor, tokens: Tensor, mode: Mode) -> Drafts:
        """at [B*L/W, n]: anchors, as numbers of tokens of the flattened batch, n in every block of W tokens.
        tokens [B*L/W, n, k]: the token after the anchor and the first k - 1 drafts, each the predecessor of a draft."""
        c, p, state, k = self.c, self.p, State(), tokens.shape[-1]
        ids = torch.full_like(tokens, c["dspark_noise_token_id"])
        ids[..., 0] = tokens[..., 0]
        pos = batch.pos.flatten()[at].unsqueeze(-1) + torch.arange(1, k + 1, device=at.device)
        angle, ring = self.angles(pos, False), self._ring(batch, tapped, at, mode)
        x = F.embedding(ids.flatten(), self.embed)
        carried = chains.start_streams(x, p.leaf("attn_norm", 0), c["hc_mult"], self.eps, mode.act_quant)
        for layer in self.plan:
            i = layer.index
            following = p.leaf("norm") if i + 1 == len(self.plan) else p.leaf("attn_norm", i + 1)
            pre, carried = self._block(layer, following, carried, ring, state, mode, angle)
        embed = F.embedding(tokens.flatten(), p.leaf("markov_embed"))
        logits = precise(carried[2], self.head) + precise(embed, p.leaf("markov_head"))
        x = chains.collapsed(carried[0].detach(), pre.detach())
        confidence = confidence_logit(x, embed.detach(), p.leaf("confidence").flatten())
        return Drafts(logits.view(-1, k, logits.shape[-1]), confidence.view(-1, k), torch.stack(state.load))

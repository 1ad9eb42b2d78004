"""The forward pass on packed rows, differentiable.

A batch is [B, L] tokens; each row holds whole conversations one after the other, every one starting at a multiple of
8 tokens (so compressor pairs and candidate blocks never straddle two). Outside attention everything works on the
flattened token axis. With dtype fp32 and exact ties this agrees with a plain evaluation of the architecture to fp32
noise; in training, streams and sublayer inputs are bf16.
"""
from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from . import chains
from .attention import Attend, IndexScore, spans
from .chains import NEG, precise
from .config import Layer
from .engram import EngramHash
from .kernels import IndexLoss, sinkhorn
from .params import Params


@dataclass(frozen=True)
class Mode:
    """What is switched on besides plain arithmetic."""
    cache_quant: bool = True      # window KV, global KV, index keys and queries in their cache formats
    act_quant: bool = True        # Q8 in front of FP8 and FP4 linears
    select: bool = True           # top-k entries only (False: every visible entry)
    exact_ties: bool = False      # of equal scores the lowest position wins, as in an engine
    engram: bool = True           # n-gram values added to the streams


@dataclass
class Batch:
    """Packed rows. Segments cut the window: a token sees window keys of its own segment only (bounded replay)."""
    ids: Tensor                   # [B, L] int64
    pos: Tensor                   # [B, L] int32, restarts at each conversation
    doc: Tensor                   # [B, L] int32, number of the conversation in its row
    encoder_seg: Tensor           # [B, L] int32
    decoder_seg: Tensor           # [B, L] int32
    target: Tensor = None         # [B, L] int64, the next token
    weight: Tensor = None         # [B, L] f32, its share in the loss


@dataclass
class Output:
    logits: Tensor                # [B*L, vocab] f32
    index_loss: Tensor            # sum over index sources
    load: Tensor                  # [layers, experts] share of tokens routed to each expert


@dataclass
class State:
    """What earlier layers hand to later ones in one pass."""
    entries: dict = field(default_factory=dict)   # kv source -> [B, E, D]
    keys: dict = field(default_factory=dict)      # kv source -> [B, E, index dim]
    score: Tensor = None                          # of the current index source
    kept: Tensor = None                           # its selection
    candidates: Tensor = None
    mass: Tensor = None                           # attention mass of the layers that use it so far
    index_loss: list = field(default_factory=list)
    load: list = field(default_factory=list)
    tapped: list = field(default_factory=list)    # what draft blocks read: [B*L, hidden] of each tapped layer


# ---- the model ---------------------------------------------------------------------------------------------------------

class Model:
    """Evaluates Params on Batches."""

    def __init__(self, params: Params, token_map: list[int] | None):
        self.p, self.c, self.plan = params, params.c, params.plan
        self.eps, self.dtype = self.c["rms_norm_eps"], params.dtype
        self.hash = EngramHash(self.c, token_map, params.device) if self.c["engram_layer_ids"] else None
        self.kv_slot = {layer: i for i, layer in enumerate(self.c["kv_source_layer_ids"])}
        self.index_slot = {layer: i for i, layer in enumerate(self.c["index_source_layer_ids"])}
        gated = [i for i in self.c["kv_source_layer_ids"] if self.c["compress_ratios"][i] > 1]
        self.gate_slot = {layer: i for i, layer in enumerate(gated)}
        self.engram_slot = {layer: i for i, layer in enumerate(self.c["engram_layer_ids"])}
        self.taps = self.c.get("dspark_target_layer_ids", [])
        self.frequencies = [self._frequencies(False), self._frequencies(True)]

    def _frequencies(self, compressed: bool) -> Tensor:
        c, rope = self.c, self.c["qk_rope_head_dim"]
        base = c["compress_rope_theta"] if compressed else c["rope_theta"]
        f = 1.0 / (base ** (torch.arange(0, rope, 2, dtype=torch.float32) / rope))
        y = c["rope_scaling"]
        if compressed and y["original_max_position_embeddings"]:
            def correction(turns: float) -> float:
                return rope * math.log(y["original_max_position_embeddings"] / (turns * 2 * math.pi)) / (
                    2 * math.log(base))
            low = max(math.floor(correction(y["beta_fast"])), 0)
            high = min(math.ceil(correction(y["beta_slow"])), rope - 1)
            ramp = ((torch.arange(rope // 2, dtype=torch.float32) - low) / max(high - low, 1e-3)).clamp(0, 1)
            f = f / y["factor"] * ramp + f * (1 - ramp)
        return f.to(self.p.device)

    def angles(self, pos: Tensor, compressed: bool) -> tuple[Tensor, Tensor]:
        angle = pos.float().flatten().unsqueeze(-1) * self.frequencies[compressed]
        return torch.cos(angle), torch.sin(angle)

    def _publish(self, layer: Layer, x: Tensor, batch: Batch, state: State, mode: Mode) -> None:
        """Global entries and index keys of a source layer."""
        i, slot, p = layer.index, self.kv_slot[layer.index], self.p
        b = batch.ids.shape[0]
        a = precise(x, p.leaf("compressor_wkv", slot))
        norm = p.leaf("compressor_norm", slot)
        if layer.ratio > 1:
            g = precise(x, p.leaf("compressor_wgate", self.gate_slot[i]))
            latent = chains.pooled_latent(a, g, norm, layer.ratio, self.eps, self.dtype)
        else:
            latent = chains.plain_latent(a, norm, self.eps, self.dtype)
        cos, sin = self.angles(batch.pos[:, ::layer.ratio], True)
        state.entries[i] = chains.global_entry(latent, cos, sin, mode.cache_quant).unflatten(0, (b, -1))
        k = F.linear(latent.detach(), p.leaf("index_wk", slot))
        state.keys[i] = chains.index_key(k, p.leaf("k_norm", slot), cos, sin, self.eps, mode.cache_quant).unflatten(0, (b, -1))

    def _select(self, layer: Layer, x: Tensor, qr: Tensor, batch: Batch, state: State, mode: Mode, angle) -> None:
        """Index scores and, with selection on, the entries that this and the following layers may read.

        The inputs are detached: the indexer learns from its own loss only."""
        c, slot = self.c, self.index_slot[layer.index]
        b, length = batch.ids.shape
        q = F.linear(qr.detach(), self.p.leaf("index_wq_b", slot))
        q = chains.index_query(q, *angle, c["index_head_dim"], mode.cache_quant)
        weight = precise(x.detach(), self.p.leaf("index_weights", slot))
        keys = state.keys[layer.kv_source]
        score = IndexScore.apply(q.view(b, length, c["index_n_heads"], -1), keys, weight.view(b, length, -1), batch.doc,
                                 layer.ratio, (c["index_head_dim"] * c["index_n_heads"]) ** -0.5)
        state.score, state.mass, state.kept = score, None, None
        if mode.select:
            with torch.no_grad():
                state.kept = self._keep(layer, score.detach(), state, mode)

    def _keep(self, layer: Layer, score: Tensor, state: State, mode: Mode) -> Tensor:
        """[B, L, E] the selected entries."""
        kept = torch.zeros_like(score, dtype=torch.bool)
        if layer.candidates:
            state.candidates = torch.zeros_like(kept)
        for a, z in spans(score.shape[1]):
            here = slice(None), slice(a, z), slice(0, z // layer.ratio)
            part = score[here]
            if layer.candidates:
                state.candidates[here] = self._candidates(part, layer.ratio, mode, a)
            elif layer.restricted:
                part = part.masked_fill(~state.candidates[here], NEG)
            kept[here] = top_k_mask(part, self.c["index_topk"], mode.exact_ties)
        return kept

    def _candidates(self, score: Tensor, ratio: int, mode: Mode, first: int = 0) -> Tensor:
        """Scores of the queries from `first` on -> the entries in their best blocks; the block of the newest visible
        entry is always among them."""
        c, size = self.c, self.c["candidate_block_size"]
        length, entries = score.shape[1:]
        best = F.pad(score, (0, -entries % size), value=NEG).unflatten(-1, (-1, size)).amax(-1)
        newest = ((first + torch.arange(length, device=score.device) + 1) // ratio - 1) // size
        forced = newest.unsqueeze(-1) == torch.arange(best.shape[-1], device=score.device)
        best = best.masked_fill(forced, float("inf"))
        return top_k_mask(best, c["candidate_topk_blocks"], mode.exact_ties).repeat_interleave(size, -1)[..., :entries]

    def _queries(self, i: int, xq: Tensor, angle, mode: Mode) -> tuple[Tensor, Tensor]:
        """The query latent in Q8 [T, rank] and the rotated queries [T, heads, head dim]."""
        p = self.p
        _, qrq = chains.query_latent(F.linear(xq, p.leaf("wq_a", i)), p.leaf("q_norm", i), self.eps, mode.act_quant)
        return qrq, chains.rotated_heads(F.linear(qrq, p.leaf("wq_b", i)), *angle, self.c["head_dim"])

    def _window(self, i: int, xq: Tensor, angle, mode: Mode) -> Tensor:
        """Window entries [T, head dim], key and value in one."""
        p = self.p
        return chains.window_entry(F.linear(xq, p.leaf("wkv", i)), p.leaf("kv_norm", i), *angle, self.eps, mode.cache_quant)

    def _output(self, i: int, o: Tensor, angle, mode: Mode) -> Tensor:
        """Attention's result [T, heads, head dim] through the grouped low-rank output."""
        c, p = self.c, self.p
        o = chains.unrotated_heads(o, *angle).view(len(o), c["o_groups"], -1).transpose(0, 1)
        o = torch.bmm(o, p.leaf("wo_a", i).transpose(1, 2)).transpose(0, 1).flatten(1)
        return F.linear(chains.quantised(o, mode.act_quant), p.leaf("wo_b", i))

    def _attention(self, layer: Layer, x: Tensor, xq: Tensor, batch: Batch, state: State, mode: Mode, angles) -> Tensor:
        c, p, i = self.c, self.p, layer.index
        b, length = batch.ids.shape
        angle = angles[layer.ratio > 0]
        qrq, q = self._queries(i, xq, angle, mode)
        kv = self._window(i, xq, angle, mode)
        if layer.publishes:
            self._publish(layer, x, batch, state, mode)
        if layer.selects:
            self._select(layer, x, qrq, batch, state, mode, angle)
        seg = batch.decoder_seg if layer.decoder else batch.encoder_seg
        o, mass = Attend.apply(
            q.view(b, length, -1, c["head_dim"]), kv.view(b, length, -1), state.entries.get(layer.kv_source),
            p.leaf("sink", i), seg, batch.doc, state.kept if layer.ratio else None, layer.ratio, c["sliding_window"])
        if layer.ratio:
            state.mass = mass if state.mass is None else state.mass + mass
            if layer.last_reader:
                state.index_loss.append(IndexLoss.apply(state.score, state.mass, state.kept))
        return self._output(i, o.view(b * length, -1, c["head_dim"]), angle, mode)

    def _moe(self, i: int, x: Tensor, xq: Tensor, state: State, mode: Mode) -> Tensor:
        c, p = self.c, self.p
        weight, load = chains.routing(precise(x, p.leaf("gate", i)), p.leaf("gate_bias", i), c["num_experts_per_tok"],
                               c["routed_scaling_factor"])
        state.load.append(load.detach())
        h = F.linear(xq, p.leaf("w13", i).flatten(0, 2)).unflatten(-1, (2, -1, c["moe_intermediate_size"]))
        v = chains.expert_activation(h, weight, c["swiglu_limit"], mode.act_quant)
        return v @ p.leaf("w2", i).flatten(0, 1)

    def _mix(self, i: int, site: int, streams: Tensor, square: Tensor):
        c, p = self.c, self.p
        m = precise(streams.flatten(1), p.leaf("hc_fn", i)[site])
        pre, post, logits = chains.mixing(m, square, p.leaf("hc_base", i)[site], p.leaf("hc_scale", i)[site],
                                   c["hc_mult"], c["hc_eps"], self.eps)
        return pre, post, sinkhorn(logits, c["hc_sinkhorn_iters"], c["hc_eps"])

    def _engram_values(self, slot: int, rows: list[Tensor], mode: Mode) -> Tensor:
        e = F.embedding(rows[slot], self.p.leaf(f"engram_table{slot}")).flatten(1)
        if not mode.engram:
            e = torch.zeros_like(e)
        return F.linear(chains.quantised(e, mode.act_quant), self.p.leaf("engram_wkv", slot))

    def _block(self, layer: Layer, following: Tensor, carried: tuple, batch, state: State, mode: Mode, angles):
        """One layer. carried = (streams, mean square, input, input in Q8); `following` weighs the norm that reads the
        result. Returns the last site's `pre` and what is carried on."""
        i, (streams, square, x, xq) = layer.index, carried
        pre, post, comb = self._mix(i, 0, streams, square)
        y = self._attention(layer, x, xq, batch, state, mode, angles)
        streams, square, x, xq = chains.apply_mix(y, streams, post, comb, pre, self.p.leaf("ffn_norm", i), self.eps,
                                                  mode.act_quant)
        pre, post, comb = self._mix(i, 1, streams, square)
        y = self._moe(i, x, xq, state, mode)
        return pre, chains.apply_mix(y, streams, post, comb, pre, following, self.eps, mode.act_quant)

    def hidden(self, batch: Batch, mode: Mode) -> tuple[Tensor, State]:
        """The normed final state of every token, and what the pass left behind."""
        c, p, state = self.c, self.p, State()
        angles = [self.angles(batch.pos, False), self.angles(batch.pos, True)]
        rows = self.hash.rows(batch.ids, batch.pos) if self.hash else []
        x = F.embedding(batch.ids.flatten(), p.leaf("embed"))
        assert not self.plan[0].engram and not self.plan[0].publishes
        carried = chains.start_streams(x, p.leaf("attn_norm", 0), c["hc_mult"], self.eps, mode.act_quant)
        for layer in self.plan:
            i = layer.index
            if i in self.taps:
                state.tapped.append(chains.mean_stream(carried[0].detach()))
            last = i + 1 == len(self.plan)
            weight = p.leaf("norm") if last else p.leaf("attn_norm", i + 1)
            pre, carried = self._block(layer, weight, carried, batch, state, mode, angles)
            if not last and self.plan[i + 1].engram:
                slot = self.engram_slot[i + 1]
                streams = chains.engram_add(carried[0], self._engram_values(slot, rows, mode), p.leaf("engram_q", slot),
                                            p.leaf("engram_k", slot), self.eps)
                carried = streams, *chains.read_streams(streams, pre, weight, self.eps, mode.act_quant)
        return carried[2], state

    def forward(self, batch: Batch, mode: Mode) -> Output:
        x, state = self.hidden(batch, mode)
        index_loss = torch.stack(state.index_loss).sum() if state.index_loss else x.new_zeros(())
        return Output(precise(x, self.p.leaf("head")), index_loss, torch.stack(state.load))

    def loss(self, batch: Batch, mode: Mode, total: Tensor | None = None) -> tuple[Tensor, Output]:
        """Weighted mean next-token loss, with `total` in place of the batch's sum of weights; and the output."""
        out = self.forward(batch, mode)
        weight = batch.weight.flatten()
        ce = chains.cross_entropy(out.logits, batch.target.flatten(), weight) / (weight.sum() if total is None else total)
        return ce, out


def top_k_mask(score: Tensor, k: int, exact_ties: bool) -> Tensor:
    """Marks the k largest finite entries of each row."""
    k = min(k, score.shape[-1])
    if exact_ties:
        order = torch.sort(score, dim=-1, descending=True, stable=True).indices[..., :k]
    else:
        order = torch.topk(score, k, dim=-1, sorted=False).indices
    mask = torch.zeros_like(score, dtype=torch.bool).scatter_(-1, order, True)
    return mask & (score > NEG)

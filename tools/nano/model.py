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

from .attention import Attend
from .config import Layer
from .engram import EngramHash
from .kernels import IndexLoss, mix_backward, on_gpu, sinkhorn, visible_mask
from .params import Params
from .quant import q4mx, q4nv, q8, straight_through

NEG = float("-inf")


@dataclass(frozen=True)
class Mode:
    """What is switched on besides plain arithmetic."""
    cache_quant: bool = True      # window KV, global KV, index keys and queries in their cache formats
    act_quant: bool = True        # Q8 in front of FP8 and FP4 linears
    select: bool = True           # top-k entries only (False: every visible entry)
    exact_ties: bool = False      # of equal scores the lowest position wins, as in an engine


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


COMPILE = True  # the self-check compares with and without
_compiled: dict = {}


def fused(function):
    """Compiles an elementwise chain on a GPU; plain PyTorch on the CPU."""
    def call(*args):
        on_gpu = any(isinstance(a, Tensor) and a.is_cuda for a in args)
        if not (on_gpu and COMPILE):
            return function(*args)
        if function not in _compiled:
            _compiled[function] = torch.compile(function, dynamic=False)
        return _compiled[function](*args)
    return call


class PreciseMatmul(torch.autograd.Function):
    """x @ w.T with an fp32 result from bf16 operands (the small products that steer routing, mixing and selection)."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        if x.is_cuda and x.dtype == torch.bfloat16:
            return torch.mm(x, w.t(), out_dtype=torch.float32)
        return x.float() @ w.float().t()

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        g = g.to(x.dtype)
        return g @ w, g.t() @ x


precise = PreciseMatmul.apply


# ---- elementwise chains ------------------------------------------------------------------------------------------------

def norm_unit(x: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates adjacent pairs of the last 2*cos.shape[-1] channels of fp32 x; cos and sin broadcast to x's rows."""
    rope = 2 * cos.shape[-1]
    keep, turn = x[..., :-rope], x[..., -rope:].unflatten(-1, (-1, 2))
    a, b = turn[..., 0], turn[..., 1]
    return torch.cat([keep, torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)], -1)


def quantised_input(x: Tensor, act_quant: bool) -> Tensor:
    return straight_through(x, q8(x)) if act_quant else x


@fused
def mixing(m: Tensor, square: Tensor, base: Tensor, scale: Tensor, hc: int, eps: float, rms_eps: float):
    m = m * torch.rsqrt(square + rms_eps).unsqueeze(-1)
    pre = torch.sigmoid(m[:, :hc] * scale[0] + base[:hc]) + eps
    post = 2 * torch.sigmoid(m[:, hc:2 * hc] * scale[1] + base[hc:2 * hc])
    return pre, post, (m[:, 2 * hc:] * scale[2] + base[2 * hc:]).unflatten(-1, (hc, hc))


def collapse(streams: list[Tensor], pre: Tensor, weight: Tensor, rms_eps: float, act_quant: bool, dtype):
    """Streams -> the normed input of a sublayer, and the same rounded to Q8."""
    z = sum(pre[:, j, None] * s for j, s in enumerate(streams)).to(dtype).float()
    x = (weight.float() * norm_unit(z, rms_eps)).to(dtype)
    return x, quantised_input(x.float(), act_quant).to(dtype)


def mean_square(streams: list[Tensor]) -> Tensor:
    return sum(s.float().square().mean(-1) for s in streams) / len(streams)


@fused
def start_streams(x: Tensor, weight: Tensor, hc: int, rms_eps: float, act_quant: bool):
    """Embeddings -> streams; the first sublayer reads stream 0."""
    z = x.float()
    y = (weight.float() * norm_unit(z, rms_eps)).to(x.dtype)
    streams = x.unsqueeze(1).expand(-1, hc, -1).contiguous()
    return streams, z.square().mean(-1), y, quantised_input(y.float(), act_quant).to(x.dtype)


def mixed(y: Tensor, streams: Tensor, post: Tensor, comb: Tensor) -> list[Tensor]:
    hc = streams.shape[1]
    old, y = [streams[:, j].float() for j in range(hc)], y.float()
    return [(post[:, k, None] * y + sum(comb[:, j, k, None] * old[j] for j in range(hc))).to(streams.dtype)
            for k in range(hc)]


@fused
def mix_forward(y, streams, post, comb, pre, weight, rms_eps: float, act_quant: bool):
    new = mixed(y, streams, post, comb)
    x, xq = collapse([s.float() for s in new], pre, weight, rms_eps, act_quant, streams.dtype)
    return torch.stack(new, 1), mean_square(new), x, xq


@fused
def read_forward(streams, pre, weight, rms_eps: float, act_quant: bool):
    parts = [streams[:, j].float() for j in range(streams.shape[1])]
    return mean_square(parts), *collapse(parts, pre, weight, rms_eps, act_quant, streams.dtype)


class ApplyMix(torch.autograd.Function):
    """mix_forward with a backward kernel of its own."""

    @staticmethod
    def forward(ctx, y, streams, post, comb, pre, weight, rms_eps, act_quant):
        post, comb, pre = post.contiguous(), comb.contiguous(), pre.contiguous()
        new, square, x, xq = mix_forward(y, streams, post, comb, pre, weight, rms_eps, act_quant)
        ctx.save_for_backward(y, streams, post, comb, pre, weight, new)
        ctx.rms_eps = rms_eps
        return new, square, x, xq

    @staticmethod
    def backward(ctx, *grads):
        y, streams, post, comb, pre, weight, new = ctx.saved_tensors
        return *mix_backward(new, pre, weight, grads, ctx.rms_eps, (y, streams, post, comb)), None, None


class ReadStreams(torch.autograd.Function):
    """read_forward with the same backward kernel."""

    @staticmethod
    def forward(ctx, streams, pre, weight, rms_eps, act_quant):
        pre = pre.contiguous()
        ctx.save_for_backward(streams, pre, weight)
        ctx.rms_eps = rms_eps
        return read_forward(streams, pre, weight, rms_eps, act_quant)

    @staticmethod
    def backward(ctx, *grads):
        streams, pre, weight = ctx.saved_tensors
        grads = (torch.zeros_like(streams), *grads)
        _, d_streams, _, _, d_pre, d_weight = mix_backward(streams, pre, weight, grads, ctx.rms_eps, None)
        return d_streams, d_pre, d_weight, None, None


def apply_mix(y, streams, post, comb, pre, weight, rms_eps: float, act_quant: bool):
    """Sublayer output into the streams, and the next sublayer's input out of them:
    (streams, their mean square, input, input rounded to Q8)."""
    run = ApplyMix.apply if on_gpu(streams) else mix_forward
    return run(y, streams, post, comb, pre, weight, rms_eps, act_quant)


def read_streams(streams, pre, weight, rms_eps: float, act_quant: bool):
    """The last three results of apply_mix for streams as they are."""
    run = ReadStreams.apply if on_gpu(streams) else read_forward
    return run(streams, pre, weight, rms_eps, act_quant)


@fused
def engram_stream(stream, key, value, q_weight, k_weight, rms_eps: float):
    """One stream with Engram's gated value added."""
    h, k = stream.float(), key.float()
    unit = torch.rsqrt(h.square().mean(-1) + rms_eps) * torch.rsqrt(k.square().mean(-1) + rms_eps)
    dot = (h * (q_weight.float() * k_weight.float()) * k).sum(-1) * unit * h.shape[-1] ** -0.5
    size = dot.abs().clamp_min(1e-6).sqrt()
    gate = torch.sigmoid(torch.where(dot < 0, -size, size))
    return (h + gate.unsqueeze(-1) * value.float()).to(stream.dtype)


def engram_add(streams, kv, q_weight, k_weight, rms_eps: float):
    hc, d = streams.shape[1:]
    value = kv[:, hc * d:]
    return torch.stack([engram_stream(streams[:, j], kv[:, j * d:(j + 1) * d], value, q_weight[j], k_weight[j], rms_eps)
                        for j in range(hc)], 1)


@fused
def query_latent(x: Tensor, weight: Tensor, rms_eps: float, act_quant: bool):
    y = (weight.float() * norm_unit(x.float(), rms_eps)).to(x.dtype)
    return y, quantised_input(y.float(), act_quant).to(x.dtype)


@fused
def rotated_heads(x: Tensor, cos: Tensor, sin: Tensor, dim: int):
    return rotate(x.float().unflatten(-1, (-1, dim)), cos.unsqueeze(1), sin.unsqueeze(1)).to(x.dtype)


@fused
def unrotated_heads(x: Tensor, cos: Tensor, sin: Tensor):
    return rotate(x.float(), cos.unsqueeze(1), -sin.unsqueeze(1)).to(x.dtype)


@fused
def window_entry(x: Tensor, weight: Tensor, cos: Tensor, sin: Tensor, rms_eps: float, cache_quant: bool):
    y = rotate(weight.float() * norm_unit(x.float(), rms_eps), cos, sin)
    return (straight_through(y, q8(y)) if cache_quant else y).to(x.dtype)


@fused
def pooled_latent(a: Tensor, g: Tensor, weight: Tensor, ratio: int, rms_eps: float, dtype: torch.dtype):
    """Compressor: `ratio` tokens to one latent, channel by channel."""
    share = torch.softmax(g.unflatten(0, (-1, ratio)), 1)
    pooled = (a.unflatten(0, (-1, ratio)) * share).sum(1).to(dtype).float()
    return (weight.float() * norm_unit(pooled, rms_eps)).to(dtype)


@fused
def plain_latent(a: Tensor, weight: Tensor, rms_eps: float, dtype: torch.dtype):
    return (weight.float() * norm_unit(a.to(dtype).float(), rms_eps)).to(dtype)


@fused
def global_entry(latent: Tensor, cos: Tensor, sin: Tensor, cache_quant: bool):
    y = rotate(latent.float(), cos, sin)
    return (straight_through(y, q4nv(y)) if cache_quant else y).to(latent.dtype)


@fused
def index_key(k: Tensor, weight: Tensor, cos: Tensor, sin: Tensor, rms_eps: float, cache_quant: bool):
    y = rotate(weight.float() * norm_unit(k.float(), rms_eps), cos, sin)
    return (straight_through(y, q4mx(y)) if cache_quant else y).to(k.dtype)


@fused
def index_query(x: Tensor, cos: Tensor, sin: Tensor, dim: int, cache_quant: bool):
    y = rotate(x.float().unflatten(-1, (-1, dim)), cos.unsqueeze(1), sin.unsqueeze(1))
    return (straight_through(y, q4mx(y)) if cache_quant else y).to(x.dtype)


@fused
def index_score(dots: Tensor, weight: Tensor, doc: Tensor, ratio: int, scale: float):
    """dots [B, L, H, E], weight [B, L, H] -> [B, L, E] f32; -inf where invisible."""
    score = (torch.relu(dots.float()) * (weight * scale).unsqueeze(-1)).sum(2)
    return score.masked_fill(~visible_mask(doc, ratio), NEG)


@fused
def routing(logits: Tensor, bias: Tensor, k: int, factor: float):
    """[T, experts] logits -> weights (0 where not chosen; a last column of 1 for the shared expert), mean load."""
    score = torch.sqrt(F.softplus(logits))
    rank = (score + bias).detach()
    n = rank.shape[-1]
    above = rank.unsqueeze(1) > rank.unsqueeze(2)
    before = torch.arange(n, device=rank.device)
    above |= (rank.unsqueeze(1) == rank.unsqueeze(2)) & (before.unsqueeze(0) < before.unsqueeze(1))
    chosen = above.sum(-1) < k
    score = score * chosen
    weight = score / (score.sum(-1, keepdim=True) + 1e-20) * factor
    return torch.cat([weight, torch.ones_like(weight[:, :1])], -1), chosen.float().mean(0)


@fused
def expert_activation(h: Tensor, weight: Tensor, limit: float, act_quant: bool):
    """h [T, 2, experts, inter] (gate, up) -> [T, experts*inter], already weighted."""
    gate, up = h[:, 0].float().clamp(max=limit), h[:, 1].float().clamp(-limit, limit)
    v = (F.silu(gate) * up * weight.unsqueeze(-1)).to(h.dtype)
    return quantised_input(v.float(), act_quant).to(h.dtype).flatten(1)


@fused
def quantised(x: Tensor, act_quant: bool):
    return quantised_input(x.float(), act_quant).to(x.dtype)


@fused
def cross_entropy(logits: Tensor, target: Tensor, weight: Tensor):
    """Weighted sum of the losses of all tokens."""
    return (F.cross_entropy(logits, target, reduction="none") * weight).sum()


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
            latent = pooled_latent(a, g, norm, layer.ratio, self.eps, self.dtype)
        else:
            latent = plain_latent(a, norm, self.eps, self.dtype)
        cos, sin = self.angles(batch.pos[:, ::layer.ratio], True)
        state.entries[i] = global_entry(latent, cos, sin, mode.cache_quant).unflatten(0, (b, -1))
        k = F.linear(latent.detach(), p.leaf("index_wk", slot))
        state.keys[i] = index_key(k, p.leaf("k_norm", slot), cos, sin, self.eps, mode.cache_quant).unflatten(0, (b, -1))

    def _select(self, layer: Layer, x: Tensor, qr: Tensor, batch: Batch, state: State, mode: Mode, angle) -> None:
        """Index scores and, with selection on, the entries that this and the following layers may read.

        The inputs are detached: the indexer learns from its own loss only."""
        c, slot = self.c, self.index_slot[layer.index]
        b, length = batch.ids.shape
        q = F.linear(qr.detach(), self.p.leaf("index_wq_b", slot))
        q = index_query(q, *angle, c["index_head_dim"], mode.cache_quant)
        weight = precise(x.detach(), self.p.leaf("index_weights", slot))
        keys = state.keys[layer.kv_source]
        dots = torch.bmm(q.reshape(b, -1, c["index_head_dim"]), keys.transpose(1, 2))
        score = index_score(dots.view(b, length, c["index_n_heads"], -1), weight.view(b, length, -1), batch.doc,
                            layer.ratio, (c["index_head_dim"] * c["index_n_heads"]) ** -0.5)
        state.score, state.mass, state.kept = score, None, None
        if not mode.select:
            return
        with torch.no_grad():
            score = score.detach()
            if layer.candidates:
                state.candidates = self._candidates(score, layer.ratio, mode)
            elif layer.restricted:
                score = score.masked_fill(~state.candidates, NEG)
            state.kept = top_k_mask(score, c["index_topk"], mode.exact_ties)

    def _candidates(self, score: Tensor, ratio: int, mode: Mode) -> Tensor:
        """[B, L, E] entries in the best blocks; the block of the newest visible entry is always among them."""
        c, size = self.c, self.c["candidate_block_size"]
        length, entries = score.shape[1:]
        best = F.pad(score, (0, -entries % size), value=NEG).unflatten(-1, (-1, size)).amax(-1)
        newest = ((torch.arange(length, device=score.device) + 1) // ratio - 1) // size
        forced = newest.unsqueeze(-1) == torch.arange(best.shape[-1], device=score.device)
        best = best.masked_fill(forced, float("inf"))
        return top_k_mask(best, c["candidate_topk_blocks"], mode.exact_ties).repeat_interleave(size, -1)[..., :entries]

    def _attention(self, layer: Layer, x: Tensor, xq: Tensor, batch: Batch, state: State, mode: Mode, angles) -> Tensor:
        c, p, i = self.c, self.p, layer.index
        b, length = batch.ids.shape
        angle = angles[layer.ratio > 0]
        qr, qrq = query_latent(F.linear(xq, p.leaf("wq_a", i)), p.leaf("q_norm", i), self.eps, mode.act_quant)
        q = rotated_heads(F.linear(qrq, p.leaf("wq_b", i)), *angle, c["head_dim"])
        kv = window_entry(F.linear(xq, p.leaf("wkv", i)), p.leaf("kv_norm", i), *angle, self.eps, mode.cache_quant)
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
        o = unrotated_heads(o.view(b * length, -1, c["head_dim"]), *angle)
        o = o.view(b * length, c["o_groups"], -1).transpose(0, 1)
        o = torch.bmm(o, p.leaf("wo_a", i).transpose(1, 2)).transpose(0, 1).flatten(1)
        return F.linear(quantised(o, mode.act_quant), p.leaf("wo_b", i))

    def _moe(self, i: int, x: Tensor, xq: Tensor, state: State, mode: Mode) -> Tensor:
        c, p = self.c, self.p
        weight, load = routing(precise(x, p.leaf("gate", i)), p.leaf("gate_bias", i), c["num_experts_per_tok"],
                               c["routed_scaling_factor"])
        state.load.append(load.detach())
        h = F.linear(xq, p.leaf("w13", i).flatten(0, 2)).unflatten(-1, (2, -1, c["moe_intermediate_size"]))
        v = expert_activation(h, weight, c["swiglu_limit"], mode.act_quant)
        return v @ p.leaf("w2", i).flatten(0, 1)

    def _mix(self, i: int, site: int, streams: Tensor, square: Tensor):
        c, p = self.c, self.p
        m = precise(streams.flatten(1), p.leaf("hc_fn", i)[site])
        pre, post, logits = mixing(m, square, p.leaf("hc_base", i)[site], p.leaf("hc_scale", i)[site],
                                   c["hc_mult"], c["hc_eps"], self.eps)
        return pre, post, sinkhorn(logits, c["hc_sinkhorn_iters"], c["hc_eps"])

    def _engram_values(self, slot: int, rows: list[Tensor], mode: Mode) -> Tensor:
        e = F.embedding(rows[slot], self.p.leaf(f"engram_table{slot}")).flatten(1)
        return F.linear(quantised(e, mode.act_quant), self.p.leaf("engram_wkv", slot))

    def hidden(self, batch: Batch, mode: Mode) -> tuple[Tensor, State]:
        """The normed final state of every token, and what the pass left behind."""
        c, p, state = self.c, self.p, State()
        angles = [self.angles(batch.pos, False), self.angles(batch.pos, True)]
        rows = self.hash.rows(batch.ids, batch.pos) if self.hash else []
        x = F.embedding(batch.ids.flatten(), p.leaf("embed"))
        assert not self.plan[0].engram and not self.plan[0].publishes
        streams, square, x, xq = start_streams(x, p.leaf("attn_norm", 0), c["hc_mult"], self.eps, mode.act_quant)
        for layer in self.plan:
            i = layer.index
            pre, post, comb = self._mix(i, 0, streams, square)
            y = self._attention(layer, x, xq, batch, state, mode, angles)
            streams, square, x, xq = apply_mix(y, streams, post, comb, pre, p.leaf("ffn_norm", i), self.eps,
                                                    mode.act_quant)
            pre, post, comb = self._mix(i, 1, streams, square)
            y = self._moe(i, x, xq, state, mode)
            last = i + 1 == len(self.plan)
            weight = p.leaf("norm") if last else p.leaf("attn_norm", i + 1)
            streams, square, x, xq = apply_mix(y, streams, post, comb, pre, weight, self.eps, mode.act_quant)
            if not last and self.plan[i + 1].engram:
                slot = self.engram_slot[i + 1]
                streams = engram_add(streams, self._engram_values(slot, rows, mode), p.leaf("engram_q", slot),
                                     p.leaf("engram_k", slot), self.eps)
                square, x, xq = read_streams(streams, pre, weight, self.eps, mode.act_quant)
        return x, state

    def forward(self, batch: Batch, mode: Mode) -> Output:
        x, state = self.hidden(batch, mode)
        index_loss = torch.stack(state.index_loss).sum() if state.index_loss else x.new_zeros(())
        return Output(precise(x, self.p.leaf("head")), index_loss, torch.stack(state.load))

    def loss(self, batch: Batch, mode: Mode) -> tuple[Tensor, Output]:
        """Weighted mean next-token loss plus the indexer's own loss."""
        out = self.forward(batch, mode)
        weight = batch.weight.flatten()
        ce = cross_entropy(out.logits, batch.target.flatten(), weight) / weight.sum()
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

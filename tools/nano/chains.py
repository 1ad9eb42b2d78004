"""Elementwise chains of the forward pass, compiled into single kernels on a GPU, and the two products around them."""
from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .kernels import mix_backward, on_gpu
from .quant import q4mx, q4nv, q8, straight_through

NEG = float("-inf")
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
def mean_stream(streams: Tensor):
    """[T, hc, D] -> [T, D]: what draft blocks read of a layer's input."""
    return streams.float().mean(1).to(streams.dtype)


@fused
def collapsed(streams: Tensor, pre: Tensor):
    """The weighted sum of the streams, as the last norm reads it."""
    return (streams.float() * pre.unsqueeze(-1)).sum(1).to(streams.dtype)


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

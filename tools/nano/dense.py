"""A plain Transformer decoder with as many active parameters as nano, to compare with: pre-norm, RoPE, SwiGLU, full causal
attention within each conversation. Same tokenizer, data, optimiser and schedule; trained by `nano.train --dense`.
"""
from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from . import chains
from .model import Batch, Mode, Output
from .params import Group, Params, constant, normal

# 24.5 M parameters work on a token: nine layers of 2.52 M and the head.
DENSE = dict(layers=9, width=448, heads=7, inner=1280, rope_theta=10000.0, eps=1e-20)


def groups_for(vocabulary: int, shape: dict = DENSE) -> list[Group]:
    n, d, inner = shape["layers"], shape["width"], shape["inner"]

    def matrix(name: str, *size: int, gain: float = 1.0) -> Group:
        return Group(name, size, "fp8", "muon", 4e-3, normal(gain * size[-1] ** -0.5))

    def norm(name: str, count: int) -> Group:
        return Group(name, (count, d), "bf16", "adam", 3e-3, constant(1.0))
    return [Group("embed", (1, vocabulary, d), "bf16", "adam", 3e-3, normal(0.5)),
            Group("head", (1, vocabulary, d), "bf16", "adam", 3e-3, normal(0.5 * d ** -0.5)),
            norm("norm", 1), norm("attn_norm", n), norm("ffn_norm", n),
            matrix("wq", n, d, d), matrix("wk", n, d, d), matrix("wv", n, d, d), matrix("wo", n, d, d, gain=0.3),
            matrix("w1", n, inner, d, gain=0.7), matrix("w3", n, inner, d, gain=0.7), matrix("w2", n, d, inner, gain=0.3)]


def active_parameters(vocabulary: int, shape: dict = DENSE) -> int:
    """Of one token: all but the embedding, of which it reads one row."""
    d, inner = shape["width"], shape["inner"]
    return shape["layers"] * (4 * d * d + 3 * d * inner) + vocabulary * d


@chains.fused
def gated(gate: Tensor, up: Tensor):
    return (F.silu(gate.float()) * up.float()).to(up.dtype)


class DenseModel:
    """Evaluates the groups above on Batches, as model.Model does. Cache formats and selection do not apply."""

    def __init__(self, params: Params, shape: dict = DENSE):
        self.p, self.shape = params, shape
        size = shape["width"] // shape["heads"]
        self.frequencies = (1 / shape["rope_theta"] ** (torch.arange(0, size, 2).float() / size)).to(params.device)

    def _attention(self, i: int, x: Tensor, batch: Batch, mask: Tensor, angle: tuple[Tensor, Tensor], mode: Mode) -> Tensor:
        p, (b, length), heads = self.p, batch.ids.shape, self.shape["heads"]

        def split(name: str, rotated: bool) -> Tensor:
            y = F.linear(x, p.leaf(name, i))
            if rotated:
                y = chains.rotated_heads(y, *angle, self.shape["width"] // heads)
            return y.reshape(b, length, heads, -1).transpose(1, 2)
        o = F.scaled_dot_product_attention(split("wq", True), split("wk", True), split("wv", False), mask)
        o = chains.quantised(o.transpose(1, 2).flatten(2).flatten(0, 1), mode.act_quant)
        return F.linear(o, p.leaf("wo", i))

    def _inner(self, i: int, x: Tensor, mode: Mode) -> Tensor:
        p = self.p
        y = gated(F.linear(x, p.leaf("w1", i)), F.linear(x, p.leaf("w3", i)))
        return F.linear(chains.quantised(y, mode.act_quant), p.leaf("w2", i))

    def forward(self, batch: Batch, mode: Mode) -> Output:
        p, eps = self.p, self.shape["eps"]
        angle = batch.pos.float().flatten().unsqueeze(-1) * self.frequencies
        angle = torch.cos(angle), torch.sin(angle)
        length = batch.ids.shape[1]
        past = torch.ones(length, length, dtype=torch.bool, device=batch.ids.device).tril()
        mask = (past & (batch.doc.unsqueeze(1) == batch.doc.unsqueeze(2))).unsqueeze(1)
        x = F.embedding(batch.ids.flatten(), p.leaf("embed"))
        for i in range(self.shape["layers"]):
            y = chains.query_latent(x, p.leaf("attn_norm", i), eps, mode.act_quant)[1]
            x = x + self._attention(i, y, batch, mask, angle, mode)
            y = chains.query_latent(x, p.leaf("ffn_norm", i), eps, mode.act_quant)[1]
            x = x + self._inner(i, y, mode)
        x = chains.query_latent(x, p.leaf("norm"), eps, False)[0]
        none = torch.zeros((), device=x.device)
        return Output(chains.precise(x, p.leaf("head")), none, none.view(1, 1))

    def loss(self, batch: Batch, mode: Mode, total: Tensor | None = None) -> tuple[Tensor, Output]:
        out, weight = self.forward(batch, mode), batch.weight.flatten()
        ce = chains.cross_entropy(out.logits, batch.target.flatten(), weight)
        return ce / (weight.sum() if total is None else total), out

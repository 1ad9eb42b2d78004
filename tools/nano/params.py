"""Parameters: fp32 masters, the (quantised) working copies that the forward pass reads, and their gradients.

Tensors of one kind are stacked over layers, so that a quantiser or an optimiser treats all of them in one launch.
The forward pass sees one autograd leaf for each layer; a leaf and its gradient are views into the stacks.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from . import quant
from .config import layer_plan
from .engram import bucket_primes


@dataclass
class Group:
    """One kind of parameter, stacked along dimension 0."""
    name: str
    shape: tuple[int, ...]
    kind: str                  # fp8 | fp4+fp8 | table | bf16 | f32: how the file stores it
    rule: str                  # muon | adam | none: how it is trained
    rate: float                # learning rate at full schedule
    init: Callable[[Tensor, torch.Generator], None]
    transposed: bool = False   # stored [.., in, out]
    master: Tensor = None
    work: Tensor = None
    grad: Tensor = None
    leaves: list[Tensor] = None


def normal(std: float) -> Callable[[Tensor, torch.Generator], None]:
    return lambda t, g: t.normal_(0, std, generator=g)


def constant(value: float) -> Callable[[Tensor, torch.Generator], None]:
    return lambda t, g: t.fill_(value)


def hyper_base_init(hc: int) -> Callable[[Tensor, torch.Generator], None]:
    """Each site starts by reading one stream (another for every site) and mixing streams little."""
    def init(t: Tensor, _: torch.Generator) -> None:
        t.zero_()
        flat = t.view(-1, t.shape[-1])
        for site, base in enumerate(flat):
            base[:hc] = -1
            base[site % hc] = 1
            base[2 * hc:] = (4 * torch.eye(hc, device=t.device) - 2).flatten()
    return init


def groups_for(c: dict) -> list[Group]:
    """Every group of a configuration, with the rates of the recipe."""
    d, n, v, hc = c["hidden_size"], c["num_hidden_layers"], c["vocab_size"], c["hc_mult"]
    heads, hd, q, o, og = (c["num_attention_heads"], c["head_dim"], c["q_lora_rank"], c["o_lora_rank"], c["o_groups"])
    ih, ihd, e, inter = c["index_n_heads"], c["index_head_dim"], c["n_routed_experts"], c["moe_intermediate_size"]
    kv, index = len(c["kv_source_layer_ids"]), len(c["index_source_layer_ids"])
    gated = sum(c["compress_ratios"][i] > 1 for i in c["kv_source_layer_ids"])
    mix = (2 + hc) * hc

    def matrix(name, *shape, kind="fp8", gain=1.0, rule="muon", rate=4e-3, fan=None, transposed=False):
        return Group(name, shape, kind, rule, rate, normal(gain * (fan or shape[-1]) ** -0.5), transposed)

    def norm(name, *shape):
        return Group(name, shape, "bf16", "adam", 3e-3, constant(1.0))

    out = [
        Group("embed", (1, v, d), "bf16", "adam", 3e-3, normal(0.5)),
        Group("head", (1, v, d), "bf16", "adam", 3e-3, normal(0.5 * d ** -0.5)),
        norm("norm", 1, d), norm("attn_norm", n, d), norm("ffn_norm", n, d), norm("q_norm", n, q),
        norm("kv_norm", n, hd), norm("compressor_norm", kv, hd), norm("k_norm", kv, ihd),
        matrix("wq_a", n, q, d), matrix("wq_b", n, heads * hd, q, gain=0.7), matrix("wkv", n, hd, d),
        matrix("wo_a", n, og, o, heads * hd // og), matrix("wo_b", n, d, og * o, gain=0.3),
        Group("sink", (n, heads), "f32", "adam", 5e-3, constant(0.0)),
        matrix("compressor_wkv", kv, hd, d, kind="bf16"),
        matrix("index_wk", kv, ihd, hd, kind="bf16", rule="adam", rate=2e-3),
        matrix("index_wq_b", index, ih * ihd, q, rule="adam", rate=2e-3),
        matrix("index_weights", index, ih, d, kind="bf16", rule="adam", rate=2e-3),
        matrix("gate", n, e, d, kind="bf16", gain=0.7, rule="adam", rate=2e-3),
        Group("gate_bias", (n, e), "f32", "none", 0.0, constant(0.0)),
        # gate and up projections of all experts side by side (the shared expert last): one product for the whole MoE
        matrix("w13", n, 2, e + 1, inter, d, kind="fp4+fp8", gain=0.7),
        matrix("w2", n, e + 1, inter, d, kind="fp4+fp8", gain=0.3, fan=inter, transposed=True),
        # bf16 values in an fp32 tensor: the trainer multiplies them in bf16
        Group("hc_fn", (n, 2, mix, hc * d), "bf16", "adam", 1e-3, normal((hc * d) ** -0.5)),
        Group("hc_base", (n, 2, mix), "f32", "adam", 5e-3, hyper_base_init(hc)),
        Group("hc_scale", (n, 2, 3), "f32", "adam", 5e-3, constant(0.2)),
    ]
    if gated:
        out.append(matrix("compressor_wgate", gated, hd, d, kind="bf16"))
    if c["engram_layer_ids"]:
        m = len(c["engram_layer_ids"])
        columns = (c["engram_max_ngram_size"] - 1) * c["engram_n_heads"] * c["engram_head_dim"]
        out += [matrix("engram_wkv", m, d * (hc + 1), columns, gain=0.3), norm("engram_q", m, hc, d),
                norm("engram_k", m, hc, d)]
        out += [Group(f"engram_table{i}", (1, sum(primes), c["engram_head_dim"]), "table", "adam", 3e-3, normal(1.0))
                for i, primes in enumerate(bucket_primes(c))]
    return [g for g in out if g.shape[0]]


def on_grid(group: Group, w: Tensor) -> Tensor:
    """The values that the file will hold for a master."""
    if group.kind == "f32":
        return w
    if group.transposed:
        w = w.transpose(-1, -2)
    if group.kind == "bf16":
        w = quant.bf16_weight(w)
    elif group.kind == "fp8":
        w = quant.fp8_weight(w)
    elif group.kind == "table":
        w = quant.table_weight(w)
    else:  # routed experts, then the shared one
        w = torch.cat([quant.fp4_weight(w[..., :-1, :, :]), quant.fp8_weight(w[..., -1:, :, :])], -3)
    return w.transpose(-1, -2) if group.transposed else w


class Params:
    """All groups of one model on one device. dtype is the working precision of matrices."""

    def __init__(self, c: dict, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32, seed: int = 0,
                 groups: list[Group] | None = None):
        self.c, self.device, self.dtype = c, torch.device(device), dtype
        generator = torch.Generator(device="cpu").manual_seed(seed)
        self.groups = {g.name: g for g in groups or groups_for(c)}
        for g in self.groups.values():
            init = torch.empty(g.shape)
            g.init(init, generator)
            g.master = init.to(device)
            g.work = torch.empty(g.shape, device=device, dtype=torch.float32 if g.kind == "f32" else dtype)
        self.gradients = self._gradients()
        for g in self.groups.values():
            g.leaves = []
            for work, grad in zip(g.work, g.grad):
                leaf = work.detach().requires_grad_(g.rule != "none")
                leaf.grad = grad if g.rule != "none" else None
                g.leaves.append(leaf)
        self.plan = layer_plan(c)
        self.refresh(False)

    def _gradients(self) -> list[Tensor]:
        """One buffer for each working precision, of which the groups' gradients are views."""
        buffers = []
        for dtype in sorted({g.work.dtype for g in self.groups.values()}, key=str):
            mine = [g for g in self.groups.values() if g.work.dtype == dtype]
            places, total = [], 0
            for g in mine:
                places.append(total)
                total += g.work.numel() + -g.work.numel() % 64
            buffers.append(torch.zeros(total, device=self.device, dtype=dtype))
            for g, at in zip(mine, places):
                g.grad = buffers[-1][at:at + g.work.numel()].view(g.work.shape)
        return buffers

    def refresh(self, quantise: bool) -> None:
        """Makes the working copies from the masters, rounded to the file's formats if asked to."""
        with torch.no_grad():
            for g in self.groups.values():
                if g.kind != "f32" and (quantise or g.kind == "bf16"):
                    g.work.copy_(on_grid(g, g.master))
                else:
                    g.work.copy_(g.master)

    def snap(self) -> None:
        """Replaces the masters by the values the file will hold."""
        with torch.no_grad():
            for g in self.groups.values():
                g.master.copy_(on_grid(g, g.master))

    def zero_grad(self) -> None:
        for buffer in self.gradients:
            buffer.zero_()

    def leaf(self, name: str, i: int = 0) -> Tensor:
        return self.groups[name].leaves[i]

    def count(self) -> int:
        return sum(g.master.numel() for g in self.groups.values())

"""The attention core on packed rows, own window and global entries in one softmax with a sink, and the index scores.

Key and value are one vector shared by all heads. The window is computed block by block (a block of W queries against
its own and the previous block), the global part densely, with a mask for the selection; on a GPU that is three matrix
products forward and six backward, all at full rate. Rows of more than WHOLE tokens go span by span: the queries of a
span see no entry behind it, and their weights are computed again in the backward pass instead of being kept.
"""
from __future__ import annotations

import torch
from torch import Tensor

from .kernels import index_score, index_score_backward, softmax_backward, softmax_forward

WHOLE, SPAN = 4096, 2048


def spans(length: int) -> list[tuple[int, int]]:
    """Stretches of a row whose queries are computed together."""
    if length <= WHOLE:
        return [(0, length)]
    return [(a, min(a + SPAN, length)) for a in range(0, length, SPAN)]


def joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def window_keys(kv: Tensor, window: int) -> Tensor:
    """[B, L, D] -> [B * L/W, 2W, D]: every block with the one before it."""
    blocks = kv.view(kv.shape[0], -1, window, kv.shape[-1])
    before = torch.zeros_like(blocks)
    before[:, 1:] = blocks[:, :-1]
    return torch.cat([before, blocks], 2).flatten(0, 1)


def fold_window(grad: Tensor, rows: int, window: int) -> Tensor:
    """The transpose of window_keys."""
    grad = grad.view(rows, -1, 2 * window, grad.shape[-1])
    out = grad[:, :, window:].clone(memory_format=torch.contiguous_format)
    out[:, :-1] += grad[:, 1:, :window]
    return out.flatten(1, 2)


class Attend(torch.autograd.Function):
    """q [B, L, H, D], kv [B, L, D], entries [B, E, D] or None, sink [H], seg/doc [B, L] int32, kept bool [B, L, E] or
    None (= all visible) -> (output [B, L, H, D], mass on each entry [B, L, E] or None, without gradient)."""

    @staticmethod
    def forward(ctx, q, kv, entries, sink, seg, doc, kept, ratio, window):
        b, length, _, dim = q.shape
        mass = q.new_zeros(b, length, 0 if entries is None else entries.shape[1])
        ctx.constants = ratio, window, dim ** -0.5
        ctx.inputs = sink, seg, doc, kept
        near, parts, stretches = window_keys(kv, window).unflatten(0, (b, -1)), [], spans(length)
        for a, z in stretches:
            o, weights = attend_span(ctx, q[:, a:z], near[:, a // window:z // window], entries, a, mass)
            parts.append(o)
        o = joined(parts)
        ctx.save_for_backward(q, kv, entries, o, *(weights if len(stretches) == 1 else ()))
        ctx.mark_non_differentiable(mass)
        return o, mass

    @staticmethod
    def backward(ctx, do, _):
        q, kv, entries, o, *weights = ctx.saved_tensors
        window, stretches = ctx.constants[1], spans(q.shape[1])
        do = do.contiguous()
        dot = (do.float() * o.float()).sum(-1)
        near = window_keys(kv, window).unflatten(0, (len(kv), -1))
        dq, dnear, dsink = [], [], torch.zeros_like(ctx.inputs[0])
        dentries = mass = None
        if entries is not None and len(stretches) > 1:
            dentries = torch.zeros_like(entries, dtype=torch.float32)
            mass = q.new_empty(*q.shape[:2], entries.shape[1])  # written once more, not read
        for a, z in stretches:
            q_part, near_part = q[:, a:z], near[:, a // window:z // window]
            if len(stretches) > 1:
                _, weights = attend_span(ctx, q_part, near_part, entries, a, mass)
            grads = attend_span_backward(ctx, q_part, near_part, entries, weights, do[:, a:z], dot[:, a:z].contiguous())
            dq.append(grads[0])
            dnear.append(grads[1])
            dsink += grads[2]
            if dentries is not None:
                dentries[:, :grads[3].shape[1]] += grads[3]
        if entries is not None:
            dentries = grads[3] if dentries is None else dentries.to(entries.dtype)
        return joined(dq), fold_window(joined(dnear), len(kv), window), dentries, dsink, None, None, None, None, None


def attend_span(ctx, q, near, entries, first, mass):
    """The output of some queries, and their weights: on the window [blocks, W*H, 2W], on the entries that they may see
    [B, C*H, E] or None, and on the sink [B, C, H]."""
    sink, seg, doc, kept = ctx.inputs
    ratio, window, scale = ctx.constants
    b, count, heads, dim = q.shape
    near = near.flatten(0, 1)
    pw = torch.bmm(q.reshape(len(near), window * heads, dim), near.transpose(1, 2))
    pg = None
    if entries is not None:
        seen = entries[:, :(first + count) // ratio]
        pg = torch.bmm(q.reshape(b, count * heads, dim), seen.transpose(1, 2))
    ps = softmax_forward(pw.view(b, count, heads, -1), None if pg is None else pg.view(b, count, heads, -1), kept, sink,
                         seg, doc, ratio, window, scale, mass, first)
    o = torch.bmm(pw, near).view(b, count * heads, dim)
    if pg is not None:
        o.baddbmm_(pg, seen)
    return o.view(q.shape), (pw, pg, ps)


def attend_span_backward(ctx, q, near, entries, weights, do, dot):
    """Gradients of some queries, their window blocks, the sink, and the entries that they may see (or None)."""
    pw, pg, ps = weights
    _, window, scale = ctx.constants
    b, count, heads, dim = q.shape
    shape, near = near.shape, near.flatten(0, 1)
    q_blocks, do_blocks = (t.reshape(len(near), window * heads, dim) for t in (q, do))
    dw = torch.bmm(do_blocks, near.transpose(1, 2))
    dw = softmax_backward(pw, dw, dot.view(len(near), -1), scale)
    dq = torch.bmm(dw, near).view(b, count * heads, dim)
    dnear = torch.bmm(dw.transpose(1, 2), q_blocks).baddbmm_(pw.transpose(1, 2), do_blocks)
    dentries = None
    if pg is not None:
        seen = entries[:, :pg.shape[-1]]
        q_rows, do_rows = (t.reshape(b, count * heads, dim) for t in (q, do))
        dg = torch.bmm(do_rows, seen.transpose(1, 2))
        dg = softmax_backward(pg, dg, dot.view(b, -1), scale)
        dq.baddbmm_(dg, seen)
        dentries = torch.bmm(dg.transpose(1, 2), q_rows).baddbmm_(pg.transpose(1, 2), do_rows)
    return dq.view(q.shape), dnear.view(shape), -(ps * dot).sum((0, 1)), dentries


class IndexScore(torch.autograd.Function):
    """q [B, L, H, D], keys [B, E, D], weight [B, L, H] f32, doc [B, L] int32 -> [B, L, E] f32: the weighted sum of the
    heads' positive dot products, -inf where invisible."""

    @staticmethod
    def forward(ctx, q, keys, weight, doc, ratio, scale):
        b, length, heads, _ = q.shape
        score, stretches = torch.empty(b, length, keys.shape[1], device=q.device), spans(length)
        weight = weight.contiguous()
        for a, z in stretches:
            dots = index_dots(q[:, a:z], keys[:, :z // ratio])
            index_score(dots, weight, doc, ratio, scale, score, a)
        ctx.save_for_backward(q, keys, weight, *([dots] if len(stretches) == 1 else []))
        ctx.constants = ratio, scale
        return score

    @staticmethod
    def backward(ctx, grad):
        q, keys, weight, *saved = ctx.saved_tensors
        ratio, scale = ctx.constants
        grad, stretches = grad.contiguous(), spans(q.shape[1])
        dq, d_weight = [], torch.empty_like(weight)
        d_keys = torch.zeros_like(keys, dtype=torch.float32 if len(stretches) > 1 else keys.dtype)
        for a, z in stretches:
            q_part, seen = q[:, a:z], keys[:, :z // ratio]
            dots = saved[0] if saved else index_dots(q_part, seen)
            d_dots = index_score_backward(dots, weight, grad, scale, d_weight, a).flatten(1, 2)
            dq.append(torch.bmm(d_dots, seen).view(q_part.shape))
            d_keys[:, :z // ratio] += torch.bmm(d_dots.transpose(1, 2), q_part.flatten(1, 2))
        return joined(dq), d_keys.to(keys.dtype), d_weight, None, None, None


def index_dots(q: Tensor, keys: Tensor) -> Tensor:
    """[B, C, H, D] and [B, E, D] -> [B, C, H, E]."""
    return torch.bmm(q.flatten(1, 2), keys.transpose(1, 2)).view(*q.shape[:3], -1)

"""The attention core on packed rows: own window and global entries in one softmax with a sink.

Key and value are one vector shared by all heads. The window is computed block by block (a block of W queries against
its own and the previous block), the global part densely, with a mask for the selection; on a GPU that is three matrix
products forward and six backward, all at full rate.
"""
from __future__ import annotations

import torch
from torch import Tensor

from .kernels import softmax_backward, softmax_forward


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
        b, length, heads, dim = q.shape
        scale = dim ** -0.5
        blocks = q.reshape(b * length // window, window * heads, dim)
        near = window_keys(kv, window)
        pw = torch.bmm(blocks, near.transpose(1, 2)).view(b, length, heads, 2 * window)
        pg = None
        if entries is not None:
            pg = torch.bmm(q.reshape(b, length * heads, dim), entries.transpose(1, 2)).view(b, length, heads, -1)
        ps, mass = softmax_forward(pw, pg, kept, sink, seg, doc, ratio, window, scale)
        o = torch.bmm(pw.view(len(blocks), -1, 2 * window), near).view(b, length * heads, dim)
        if pg is not None:
            o.baddbmm_(pg.view(b, length * heads, -1), entries)
        o = o.view(b, length, heads, dim)
        ctx.save_for_backward(q, kv, entries, pw, pg, ps, o)
        ctx.constants = window, scale
        if mass is None:
            mass = q.new_zeros(0)
        ctx.mark_non_differentiable(mass)
        return o, mass

    @staticmethod
    def backward(ctx, do, _):
        q, kv, entries, pw, pg, ps, o = ctx.saved_tensors
        window, scale = ctx.constants
        b, length, heads, dim = q.shape
        do = do.contiguous()
        dot = (do.float() * o.float()).sum(-1)
        near = window_keys(kv, window)
        q_blocks, do_blocks = (t.reshape(len(near), window * heads, dim) for t in (q, do))
        pw = pw.view(len(near), window * heads, -1)
        dw = torch.bmm(do_blocks, near.transpose(1, 2))
        dw = softmax_backward(pw, dw, dot.view(len(near), -1), scale)
        dq = torch.bmm(dw, near).view(b, length * heads, dim)
        dnear = torch.bmm(dw.transpose(1, 2), q_blocks).baddbmm_(pw.transpose(1, 2), do_blocks)
        dkv, dentries = fold_window(dnear, b, window), None
        if pg is not None:
            pg, q_rows, do_rows = (t.reshape(b, length * heads, -1) for t in (pg, q, do))
            dg = torch.bmm(do_rows, entries.transpose(1, 2))
            dg = softmax_backward(pg, dg, dot.view(b, -1), scale)
            dq.baddbmm_(dg, entries)
            dentries = torch.bmm(dg.transpose(1, 2), q_rows).baddbmm_(pg.transpose(1, 2), do_rows)
        dsink = -(ps * dot).sum((0, 1))
        return dq.view_as(q), dkv, dentries, dsink, None, None, None, None, None

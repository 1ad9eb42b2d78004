"""Triton kernels of the trainer, each with a plain PyTorch twin that runs on the CPU and serves as its truth.

Three places are worth a kernel: Sinkhorn (unrolled autograd would be thousands of launches), the softmax over window
and global entries together (one pass over scores of up to 4,096 + 256 columns), and the indexer's loss.
"""
from __future__ import annotations

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # the CPU twins need no Triton
    triton = None


def on_gpu(t: Tensor) -> bool:
    return t.is_cuda


if triton is not None:
    @triton.jit
    def sinkhorn_forward_kernel(logits, out, sums, tokens, eps, ITERS: tl.constexpr, HC: tl.constexpr,
                                BLOCK: tl.constexpr):
        t = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        j = tl.arange(0, HC)
        at = t[:, None, None] * (HC * HC) + j[None, :, None] * HC + j[None, None, :]
        inside = (t < tokens)[:, None, None]
        x = tl.load(logits + at, mask=inside, other=0.0)
        x = tl.exp(x - tl.max(x, 2, keep_dims=True))
        x = x / tl.sum(x, 2, keep_dims=True) + eps
        for i in range(ITERS):
            if i > 0:
                s = tl.sum(x, 2, keep_dims=True)
                where = (2 * i - 1) * tokens * HC + t[:, None, None] * HC + j[None, :, None]
                tl.store(sums + where, s, mask=inside)
                x = x / (s + eps)
            s = tl.sum(x, 1, keep_dims=True)
            where = 2 * i * tokens * HC + t[:, None, None] * HC + j[None, None, :]
            tl.store(sums + where, s, mask=inside)
            x = x / (s + eps)
        tl.store(out + at, x, mask=inside)

    @triton.jit
    def sinkhorn_backward_kernel(logits, out, sums, grad, tokens, eps, ITERS: tl.constexpr, HC: tl.constexpr,
                                 BLOCK: tl.constexpr):
        """Walks the divisions backwards: y = x / (s + eps), so x = y (s + eps) and dx = (dy - sum(dy y)) / (s + eps)."""
        t = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        j = tl.arange(0, HC)
        at = t[:, None, None] * (HC * HC) + j[None, :, None] * HC + j[None, None, :]
        inside = (t < tokens)[:, None, None]
        y = tl.load(out + at, mask=inside, other=0.0)
        g = tl.load(grad + at, mask=inside, other=0.0)
        for k in range(ITERS):
            i = ITERS - 1 - k
            where = 2 * i * tokens * HC + t[:, None, None] * HC + j[None, None, :]
            s = tl.load(sums + where, mask=inside, other=1.0) + eps
            g = (g - tl.sum(g * y, 1, keep_dims=True)) / s
            y = y * s
            if i > 0:
                where = (2 * i - 1) * tokens * HC + t[:, None, None] * HC + j[None, :, None]
                s = tl.load(sums + where, mask=inside, other=1.0) + eps
                g = (g - tl.sum(g * y, 2, keep_dims=True)) / s
                y = y * s
        y = y - eps  # now the row softmax itself
        g = y * (g - tl.sum(g * y, 2, keep_dims=True))
        tl.store(grad + at, g, mask=inside)

    @triton.jit
    def softmax_forward_kernel(sw, sg, kept, sink, ps, mass, seg, doc, L, E, scale,
                               H: tl.constexpr, W: tl.constexpr, RATIO: tl.constexpr, SELECTED: tl.constexpr,
                               EP: tl.constexpr):
        """One token: scores of its H heads over 2W window slots and E entries -> weights, in place."""
        t = tl.program_id(0).to(tl.int64)
        row, i = t // L, t % L
        c = tl.arange(0, 2 * W)
        key = (i // W - 1) * W + c
        age = i - key
        in_window = (age >= 0) & (age < W) & (key >= 0)
        my_seg = tl.load(seg + t)
        in_window &= tl.load(seg + row * L + key, mask=in_window, other=-2) == my_seg
        if RATIO > 0:
            e = tl.arange(0, EP)
            if SELECTED:
                visible = tl.load(kept + t * E + e, mask=e < E, other=0) != 0
            else:
                visible = (e * RATIO + RATIO - 1 <= i) & (e < E)
                visible &= tl.load(doc + row * L + e * RATIO, mask=visible, other=-2) == tl.load(doc + t)
            total = tl.zeros([EP], tl.float32)
        for h in tl.static_range(H):
            a = tl.load(sw + (t * H + h) * (2 * W) + c, mask=in_window, other=float("-inf")).to(tl.float32) * scale
            m = tl.max(a, 0)
            if RATIO > 0:
                g = tl.load(sg + (t * H + h) * E + e, mask=visible, other=float("-inf")).to(tl.float32) * scale
                m = tl.maximum(m, tl.max(g, 0))
            a = tl.exp(a - m)
            zero = tl.exp(tl.load(sink + h) - m)
            d = tl.sum(a, 0) + zero
            if RATIO > 0:
                g = tl.exp(g - m)
                d += tl.sum(g, 0)
                g = g / d
                total += g
                tl.store(sg + (t * H + h) * E + e, g.to(sg.dtype.element_ty), mask=e < E)
            tl.store(sw + (t * H + h) * (2 * W) + c, (a / d).to(sw.dtype.element_ty))
            tl.store(ps + t * H + h, zero / d)
        if RATIO > 0:
            tl.store(mass + t * E + e, total.to(mass.dtype.element_ty), mask=e < E)

    @triton.jit
    def softmax_backward_kernel(p, dp, dot, n, scale, BLOCK: tl.constexpr):
        """ds = p (dp - dot) scale for one (token, head), in place of dp."""
        r = tl.program_id(0).to(tl.int64)
        e = tl.arange(0, BLOCK)
        inside = e < n
        x = tl.load(p + r * n + e, mask=inside, other=0.0).to(tl.float32)
        g = tl.load(dp + r * n + e, mask=inside, other=0.0).to(tl.float32)
        tl.store(dp + r * n + e, (x * (g - tl.load(dot + r)) * scale).to(dp.dtype.element_ty), mask=inside)

    @triton.jit
    def index_loss_kernel(score, mass, kept, loss, grad, E, weight, SELECTED: tl.constexpr, BLOCK: tl.constexpr):
        """One token: KL(mass || softmax(score)) over the finite (and selected) scores, and its gradient."""
        t = tl.program_id(0).to(tl.int64)
        e = tl.arange(0, BLOCK)
        inside = e < E
        s = tl.load(score + t * E + e, mask=inside, other=float("-inf"))
        if SELECTED:
            s = tl.where(tl.load(kept + t * E + e, mask=inside, other=0) != 0, s, float("-inf"))
        seen = s > float("-inf")
        m = tl.load(mass + t * E + e, mask=inside, other=0.0).to(tl.float32)
        m = tl.where(seen, m, 0.0)
        total = tl.sum(m, 0)
        top = tl.maximum(tl.max(s, 0), -1e30)
        x = tl.exp(s - top)
        z = tl.sum(x, 0)
        live = tl.where(total > 0, 1.0, 0.0)  # a token that sees no entry adds nothing
        target = m / tl.maximum(total, 1e-30)
        z = tl.maximum(z, 1e-30)
        log_ratio = tl.log(tl.maximum(target, 1e-30)) - (tl.where(seen, s, 0.0) - top - tl.log(z))
        kl = tl.sum(tl.where(target > 0, target * log_ratio, 0.0), 0)
        tl.store(loss + t, kl * live)
        tl.store(grad + t * E + e, tl.where(seen, (x / z - target) * weight * live, 0.0), mask=inside)


# ---- Sinkhorn ------------------------------------------------------------------------------------------------------

def sinkhorn_plain(logits: Tensor, iters: int, eps: float) -> Tensor:
    x = torch.softmax(logits, -1) + eps
    for i in range(iters):
        if i:
            x = x / (x.sum(-1, keepdim=True) + eps)
        x = x / (x.sum(-2, keepdim=True) + eps)
    return x


class Sinkhorn(torch.autograd.Function):
    """[T, hc, hc] logits -> near doubly stochastic matrices."""

    @staticmethod
    def forward(ctx, logits: Tensor, iters: int, eps: float) -> Tensor:
        tokens, hc = logits.shape[:2]
        logits, out = logits.contiguous(), torch.empty_like(logits, memory_format=torch.contiguous_format)
        sums = torch.empty(2 * iters - 1, tokens, hc, device=logits.device)
        sinkhorn_forward_kernel[(triton.cdiv(tokens, 64),)](logits, out, sums, tokens, eps, iters, hc, 64, num_warps=2)
        ctx.save_for_backward(logits, out, sums)
        ctx.constants = iters, eps
        return out

    @staticmethod
    def backward(ctx, grad: Tensor):
        logits, out, sums = ctx.saved_tensors
        iters, eps = ctx.constants
        tokens, hc = logits.shape[:2]
        grad = grad.clone(memory_format=torch.contiguous_format)
        sinkhorn_backward_kernel[(triton.cdiv(tokens, 64),)](
            logits, out, sums, grad, tokens, eps, iters, hc, 64, num_warps=2)
        return grad, None, None


def sinkhorn(logits: Tensor, iters: int, eps: float) -> Tensor:
    return Sinkhorn.apply(logits, iters, eps) if on_gpu(logits) else sinkhorn_plain(logits, iters, eps)


# ---- attention softmax -----------------------------------------------------------------------------------------------

def window_mask(seg: Tensor, window: int) -> Tensor:
    """[B, L, 2W] which slots of (previous block, own block) a token sees. seg [B, L] must match."""
    b, length = seg.shape
    i = torch.arange(length, device=seg.device)
    key = (i // window - 1).unsqueeze(1) * window + torch.arange(2 * window, device=seg.device)
    age = i.unsqueeze(1) - key
    inside = (age >= 0) & (age < window) & (key >= 0)
    return inside & (seg[:, key.clamp(0, length - 1)] == seg.unsqueeze(-1))


def visible_mask(doc: Tensor, ratio: int) -> Tensor:
    """[B, L, E] entries of the own conversation whose last token is not in the future."""
    length = doc.shape[1]
    e = torch.arange(length // ratio, device=doc.device)
    past = e * ratio + ratio - 1 <= torch.arange(length, device=doc.device).unsqueeze(1)
    return past & (doc[:, e * ratio].unsqueeze(1) == doc.unsqueeze(-1))


def softmax_forward(sw, sg, kept, sink, seg, doc, ratio: int, window: int, scale: float):
    """Raw dot products [B, L, H, 2W] and [B, L, H, E] -> weights in place, the sink's share [B, L, H], and the mass
    that all heads together put on each entry [B, L, E]."""
    b, length, heads = sw.shape[:3]
    entries = sg.shape[-1] if sg is not None else 0
    if on_gpu(sw):
        ps = torch.empty(b, length, heads, device=sw.device)
        mass = torch.empty(b, length, entries, device=sw.device, dtype=sw.dtype) if entries else ps
        block = triton.next_power_of_2(max(entries, 16))
        softmax_forward_kernel[(b * length,)](
            sw, sg if entries else sw, kept if kept is not None else ps, sink, ps, mass, seg, doc, length, entries,
            scale, heads, window, ratio if entries else 0, kept is not None, block, num_warps=8 if block > 1024 else 4)
        return ps, mass if entries else None
    score = sw.float().masked_fill(~window_mask(seg, window).unsqueeze(2), float("-inf"))
    if entries:
        visible = kept if kept is not None else visible_mask(doc, ratio)
        score = torch.cat([score, sg.float().masked_fill(~visible.unsqueeze(2), float("-inf"))], -1)
    score = score * scale
    top = score.amax(-1, keepdim=True)
    zero = torch.exp(sink.unsqueeze(-1) - top)
    weight = torch.exp(score - top)
    total = weight.sum(-1, keepdim=True) + zero
    weight = weight / total
    sw.copy_(weight[..., :sw.shape[-1]])
    if entries:
        sg.copy_(weight[..., sw.shape[-1]:])
    return (zero / total).squeeze(-1), sg.sum(2) if entries else None


def softmax_backward(p: Tensor, dp: Tensor, dot: Tensor, scale: float) -> Tensor:
    """p, dp [..., n], dot [...] -> gradient of the raw dot products, in place of dp."""
    if on_gpu(p):
        n = p.shape[-1]
        block = triton.next_power_of_2(n)
        softmax_backward_kernel[(p.numel() // n,)](p, dp, dot, n, scale, block, num_warps=4 if block > 512 else 1)
        return dp
    return dp.copy_(p * (dp - dot.unsqueeze(-1)) * scale)


# ---- the indexer's loss ------------------------------------------------------------------------------------------------

class IndexLoss(torch.autograd.Function):
    """Mean over tokens of KL(attention mass || softmax(index scores)); the gradient is made in the forward pass."""

    @staticmethod
    def forward(ctx, score: Tensor, mass: Tensor, kept: Tensor | None) -> Tensor:
        b, length, entries = score.shape
        tokens = b * length
        if on_gpu(score):
            loss = torch.empty(tokens, device=score.device)
            grad = torch.empty_like(score)
            block = triton.next_power_of_2(max(entries, 16))
            index_loss_kernel[(tokens,)](score, mass, kept if kept is not None else loss, loss, grad, entries,
                                         1.0 / tokens, kept is not None, block, num_warps=8 if block > 1024 else 4)
        else:
            s = score if kept is None else score.masked_fill(~kept, float("-inf"))
            m = mass.float().masked_fill(s == float("-inf"), 0)
            total = m.sum(-1, keepdim=True)
            live = total > 0
            target = m / total.clamp_min(1e-30)
            log_guess = torch.log_softmax(s.masked_fill(~live, 0), -1)
            ratio = target.clamp_min(1e-30).log() - log_guess
            loss = torch.where(target > 0, target * ratio, 0).sum(-1)
            grad = torch.where(live, log_guess.exp() - target, 0) / tokens
        ctx.save_for_backward(grad)
        return loss.mean()

    @staticmethod
    def backward(ctx, g: Tensor):
        (grad,) = ctx.saved_tensors
        return grad * g, None, None

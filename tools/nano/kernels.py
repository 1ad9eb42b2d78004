"""Triton kernels of the trainer, each with a plain PyTorch twin that runs on the CPU and serves as its truth.

Five places are worth a kernel: Sinkhorn (unrolled autograd would be thousands of launches), the softmax over window
and global entries together (one pass over scores of up to 16,384 + 256 columns), the indexer's scores and its loss, and
the backward pass of mixing streams, whose 26 sums a token the compiler turns into a kernel 30 times slower than memory allows.
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
                row = tl.sum(x, 2, keep_dims=True)
                tl.store(sums + (2 * i - 1) * tokens * HC + t[:, None, None] * HC + j[None, :, None], row, mask=inside)
                x = x / (row + eps)
            column = tl.sum(x, 1, keep_dims=True)
            tl.store(sums + 2 * i * tokens * HC + t[:, None, None] * HC + j[None, None, :], column, mask=inside)
            x = x / (column + eps)
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
            column_at = sums + 2 * i * tokens * HC + t[:, None, None] * HC + j[None, None, :]
            column = tl.load(column_at, mask=inside, other=1.0) + eps
            g = (g - tl.sum(g * y, 1, keep_dims=True)) / column
            y = y * column
            if i > 0:
                row_at = sums + (2 * i - 1) * tokens * HC + t[:, None, None] * HC + j[None, :, None]
                row = tl.load(row_at, mask=inside, other=1.0) + eps
                g = (g - tl.sum(g * y, 2, keep_dims=True)) / row
                y = y * row
        y = y - eps  # now the row softmax itself
        g = y * (g - tl.sum(g * y, 2, keep_dims=True))
        tl.store(grad + at, g, mask=inside)

    @triton.jit
    def mix_backward_kernel(streams, new, y, post, comb, pre, weight, g_new, g_ms, g_x, g_xq, d_streams, d_y, d_post,
                            d_comb, d_pre, d_weight, rms_eps, D: tl.constexpr, BD: tl.constexpr, PER: tl.constexpr,
                            MIX: tl.constexpr):
        """PER tokens of four streams, one after the other, by one warp (its sums need no barrier).

        new_k = post_k y + sum_j comb_jk streams_j (with MIX), z = sum_k pre_k new_k, x = weight z / rms(z), and the mean
        square of new; d_* are the gradients, d_weight [programs, D] partial sums."""
        c = tl.arange(0, BD)
        inside = c < D
        w = tl.load(weight + c, mask=inside, other=0.0).to(tl.float32)
        total = tl.zeros([BD], tl.float32)
        for i in range(PER):
            t = tl.program_id(0).to(tl.int64) * PER + i
            at = t * 4 * D + c
            n0 = tl.load(new + at, mask=inside, other=0.0).to(tl.float32)
            n1 = tl.load(new + at + D, mask=inside, other=0.0).to(tl.float32)
            n2 = tl.load(new + at + 2 * D, mask=inside, other=0.0).to(tl.float32)
            n3 = tl.load(new + at + 3 * D, mask=inside, other=0.0).to(tl.float32)
            p0, p1 = tl.load(pre + t * 4), tl.load(pre + t * 4 + 1)
            p2, p3 = tl.load(pre + t * 4 + 2), tl.load(pre + t * 4 + 3)
            z = (p0 * n0 + p1 * n1 + p2 * n2 + p3 * n3).to(new.dtype.element_ty).to(tl.float32)
            r = tl.rsqrt(tl.sum(z * z, 0) / D + rms_eps)
            unit = z * r
            gx = tl.load(g_x + t * D + c, mask=inside, other=0.0).to(tl.float32)
            gx += tl.load(g_xq + t * D + c, mask=inside, other=0.0).to(tl.float32)
            total += gx * unit
            gx = gx * w
            gz = r * (gx - unit * (tl.sum(gx * unit, 0) / D))
            tl.store(d_pre + t * 4, tl.sum(gz * n0, 0))
            tl.store(d_pre + t * 4 + 1, tl.sum(gz * n1, 0))
            tl.store(d_pre + t * 4 + 2, tl.sum(gz * n2, 0))
            tl.store(d_pre + t * 4 + 3, tl.sum(gz * n3, 0))
            q = tl.load(g_ms + t) / (2 * D)
            h0 = tl.load(g_new + at, mask=inside, other=0.0).to(tl.float32) + p0 * gz + q * n0
            h1 = tl.load(g_new + at + D, mask=inside, other=0.0).to(tl.float32) + p1 * gz + q * n1
            h2 = tl.load(g_new + at + 2 * D, mask=inside, other=0.0).to(tl.float32) + p2 * gz + q * n2
            h3 = tl.load(g_new + at + 3 * D, mask=inside, other=0.0).to(tl.float32) + p3 * gz + q * n3
            if MIX:
                a = tl.load(y + t * D + c, mask=inside, other=0.0).to(tl.float32)
                tl.store(d_post + t * 4, tl.sum(a * h0, 0))
                tl.store(d_post + t * 4 + 1, tl.sum(a * h1, 0))
                tl.store(d_post + t * 4 + 2, tl.sum(a * h2, 0))
                tl.store(d_post + t * 4 + 3, tl.sum(a * h3, 0))
                a = tl.load(post + t * 4) * h0 + tl.load(post + t * 4 + 1) * h1
                a += tl.load(post + t * 4 + 2) * h2 + tl.load(post + t * 4 + 3) * h3
                tl.store(d_y + t * D + c, a.to(d_y.dtype.element_ty), mask=inside)
                for j in tl.static_range(4):
                    k = comb + t * 16 + j * 4
                    s = tl.load(streams + at + j * D, mask=inside, other=0.0).to(tl.float32)
                    g = tl.load(k) * h0 + tl.load(k + 1) * h1 + tl.load(k + 2) * h2 + tl.load(k + 3) * h3
                    tl.store(d_streams + at + j * D, g.to(d_streams.dtype.element_ty), mask=inside)
                    k = d_comb + t * 16 + j * 4
                    tl.store(k, tl.sum(s * h0, 0))
                    tl.store(k + 1, tl.sum(s * h1, 0))
                    tl.store(k + 2, tl.sum(s * h2, 0))
                    tl.store(k + 3, tl.sum(s * h3, 0))
            else:
                tl.store(d_streams + at, h0.to(d_streams.dtype.element_ty), mask=inside)
                tl.store(d_streams + at + D, h1.to(d_streams.dtype.element_ty), mask=inside)
                tl.store(d_streams + at + 2 * D, h2.to(d_streams.dtype.element_ty), mask=inside)
                tl.store(d_streams + at + 3 * D, h3.to(d_streams.dtype.element_ty), mask=inside)
        tl.store(d_weight + tl.program_id(0) * D + c, total, mask=inside)

    @triton.jit
    def softmax_forward_kernel(sw, sg, kept, sink, ps, mass, seg, doc, C, FIRST, L, E, N, scale,
                               H: tl.constexpr, W: tl.constexpr, RATIO: tl.constexpr, SELECTED: tl.constexpr,
                               EP: tl.constexpr):
        """One of C tokens of a row, from FIRST on: scores of its H heads over 2W window slots and the first E of the
        row's N entries -> weights, in place."""
        t = tl.program_id(0).to(tl.int64)
        row, i = t // C, FIRST + t % C
        at = row * L + i
        c = tl.arange(0, 2 * W)
        key = (i // W - 1) * W + c
        age = i - key
        in_window = (age >= 0) & (age < W) & (key >= 0)
        my_seg = tl.load(seg + at)
        in_window &= tl.load(seg + row * L + key, mask=in_window, other=-2) == my_seg
        if RATIO > 0:
            e = tl.arange(0, EP)
            if SELECTED:
                visible = tl.load(kept + at * N + e, mask=e < E, other=0) != 0
            else:
                visible = (e * RATIO + RATIO - 1 <= i) & (e < E)
                visible &= tl.load(doc + row * L + e * RATIO, mask=visible, other=-2) == tl.load(doc + at)
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
            tl.store(mass + at * N + e, total.to(mass.dtype.element_ty), mask=e < E)

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
    def index_score_kernel(dots, weight, doc, score, C, FIRST, L, E, N, scale, H: tl.constexpr, RATIO: tl.constexpr,
                           BLOCK: tl.constexpr):
        """One of C tokens of a row, from FIRST on, and BLOCK of the row's N entries, of which dots holds the first E:
        score = sum_h weight_h relu(dots_h), -inf where invisible."""
        t = tl.program_id(0).to(tl.int64)
        row, i = t // C, FIRST + t % C
        at = row * L + i
        e = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        visible = (e * RATIO + RATIO - 1 <= i) & (e < E)
        visible &= tl.load(doc + row * L + e * RATIO, mask=visible, other=-2) == tl.load(doc + at)
        total = tl.zeros([BLOCK], tl.float32)
        for h in tl.static_range(H):
            x = tl.load(dots + (t * H + h) * E + e, mask=visible, other=0.0).to(tl.float32)
            total += tl.maximum(x, 0.0) * (tl.load(weight + at * H + h) * scale)
        tl.store(score + at * N + e, tl.where(visible, total, float("-inf")), mask=e < N)

    @triton.jit
    def index_score_backward_kernel(dots, weight, grad, d_weight, C, FIRST, L, E, N, scale, H: tl.constexpr,
                                    BLOCK: tl.constexpr):
        """One token: the gradient of its dots, in place of them, and of its weights."""
        t = tl.program_id(0).to(tl.int64)
        at = (t // C) * L + FIRST + t % C
        h = tl.arange(0, H)
        w = tl.load(weight + at * H + h) * scale
        total = tl.zeros([H, BLOCK], tl.float32)
        for start in range(0, E, BLOCK):
            e = start + tl.arange(0, BLOCK)
            place = dots + (t * H + h[:, None]) * E + e[None, :]
            inside = (h[:, None] < H) & (e[None, :] < E)
            g = tl.load(grad + at * N + e, mask=e < E, other=0.0)[None, :]
            x = tl.load(place, mask=inside, other=0.0).to(tl.float32)
            total += g * tl.maximum(x, 0.0)
            tl.store(place, tl.where(x > 0, g * w[:, None], 0.0).to(dots.dtype.element_ty), mask=inside)
        tl.store(d_weight + at * H + h, tl.sum(total, 1) * scale)

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


# ---- mixing streams --------------------------------------------------------------------------------------------------

def mix_backward(new, pre, weight, grads, rms_eps: float, mixed: tuple | None):
    """Gradients of model.apply_mix (mixed = its y, streams, post, comb) or model.read_streams (mixed = None)."""
    tokens, hc, d = new.shape
    per = 16
    assert hc == 4 and tokens % per == 0
    y, streams, post, comb = mixed or (new, new, pre, pre)
    d_streams, d_pre = torch.empty_like(new), torch.empty_like(pre)
    d_weight = torch.empty(tokens // per, d, device=new.device)
    d_y, d_post, d_comb = ((torch.empty_like(y), torch.empty_like(post), torch.empty_like(comb)) if mixed
                           else (new, pre, pre))
    mix_backward_kernel[(tokens // per,)](
        streams, new, y, post, comb, pre, weight, *(g.contiguous() for g in grads), d_streams, d_y, d_post, d_comb, d_pre,
        d_weight, rms_eps, d, triton.next_power_of_2(d), per, mixed is not None, num_warps=1)
    return d_y, d_streams, d_post, d_comb, d_pre, d_weight.sum(0).to(weight.dtype)


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


def warps(block: int) -> int:
    return 4 if block <= 1024 else 8 if block <= 4096 else 16


def softmax_forward(sw, sg, kept, sink, seg, doc, ratio: int, window: int, scale: float, mass, first: int = 0):
    """Raw dot products of the queries from `first` on, [B, C, H, 2W] and [B, C, H, E] -> weights in place; returns the
    sink's share [B, C, H]. mass [B, L, N] receives what all heads together put on each entry."""
    b, count, heads = sw.shape[:3]
    entries = sg.shape[-1] if sg is not None else 0
    if on_gpu(sw):
        ps = torch.empty(b, count, heads, device=sw.device)
        length = seg.shape[1]
        block = triton.next_power_of_2(max(entries, 16))
        softmax_forward_kernel[(b * count,)](
            sw, sg if entries else sw, kept if kept is not None else ps, sink, ps, mass if entries else ps, seg, doc, count, first,
            length, entries, mass.shape[-1] if entries else 0, scale, heads, window, ratio if entries else 0,
            kept is not None, block, num_warps=warps(block))
        return ps
    here = slice(first, first + count)
    score = sw.float().masked_fill(~window_mask(seg, window)[:, here].unsqueeze(2), float("-inf"))
    if entries:
        visible = (kept if kept is not None else visible_mask(doc, ratio))[:, here, :entries]
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
        mass[:, here, :entries] = sg.sum(2)
    return (zero / total).squeeze(-1)


def softmax_backward(p: Tensor, dp: Tensor, dot: Tensor, scale: float) -> Tensor:
    """p, dp [..., n], dot [...] -> gradient of the raw dot products, in place of dp."""
    if on_gpu(p):
        n = p.shape[-1]
        block = triton.next_power_of_2(n)
        softmax_backward_kernel[(p.numel() // n,)](p, dp, dot, n, scale, block, num_warps=max(4, block // 1024) if block > 512 else 1)
        return dp
    return dp.copy_(p * (dp - dot.unsqueeze(-1)) * scale)


# ---- the indexer's scores ----------------------------------------------------------------------------------------------

def index_score(dots: Tensor, weight: Tensor, doc: Tensor, ratio: int, scale: float, score: Tensor, first: int) -> None:
    """dots [B, C, H, E] of the queries from `first` on, weight [B, L, H] -> their rows of score [B, L, N] f32."""
    b, count, heads, entries = dots.shape
    length, all_entries = score.shape[1:]
    if on_gpu(dots):
        index_score_kernel[(b * count, triton.cdiv(all_entries, 1024))](
            dots, weight, doc, score, count, first, length, entries, all_entries, scale, heads, ratio, 1024)
        return
    here = slice(first, first + count)
    part = (torch.relu(dots.float()) * (weight[:, here] * scale).unsqueeze(-1)).sum(2)
    score[:, here, :entries] = part.masked_fill(~visible_mask(doc, ratio)[:, here, :entries], float("-inf"))
    score[:, here, entries:] = float("-inf")


def index_score_backward(dots: Tensor, weight: Tensor, grad: Tensor, scale: float, d_weight: Tensor, first: int) -> Tensor:
    """grad [B, L, N] of the scores, 0 where invisible -> the gradient of the dots, in place, and rows of d_weight."""
    b, count, heads, entries = dots.shape
    length, all_entries = grad.shape[1:]
    if on_gpu(dots):
        index_score_backward_kernel[(b * count,)](dots, weight, grad, d_weight, count, first, length, entries, all_entries,
                                                  scale, heads, 512)
        return dots
    here = slice(first, first + count)
    g, x = grad[:, here, :entries].unsqueeze(2), dots.float()
    d_weight[:, here] = (g * torch.relu(x)).sum(-1) * scale
    return dots.copy_(torch.where(x > 0, g * (weight[:, here] * scale).unsqueeze(-1), 0))


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
                                         1.0 / tokens, kept is not None, block, num_warps=warps(block))
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

"""The number formats of the model: fake quantisation for training and exact codes for the file.

Every function returns values, not codes, so training and export share one definition: `pack_*` turn values that are
already on the grid into codes and scales, and a value never changes on the way into the file.
"""
from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

E4M3_MAX, E2M1_MAX = 448.0, 6.0
# The model multiplies by the fp32 reciprocal of the format's limit rather than dividing by the limit.
RECIPROCAL = {limit: float(np.float32(1.0 / limit)) for limit in (E4M3_MAX, E2M1_MAX)}


def power_of_two_at_least(x: Tensor) -> Tensor:
    """The smallest power of two >= x for positive normal fp32 x: adding the mantissa mask carries into the exponent."""
    bits = x.view(torch.int32)
    return ((bits + 0x7FFFFF) & 0x7F800000).view(torch.float32)


def scale_for(amax: Tensor, limit: float) -> Tensor:
    """The UE8M0 scale of a group whose largest magnitude is amax."""
    return power_of_two_at_least(amax.float() * RECIPROCAL[limit])


def round_e4m3(x: Tensor) -> Tensor:
    return x.clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn).float()


def round_e2m1(x: Tensor) -> Tensor:
    """Nearest of 0, .5, 1, 1.5, 2, 3, 4, 6; ties go to the even code, which is round-half-even in steps of the octave."""
    a = x.clamp(-E2M1_MAX, E2M1_MAX)
    size = a.abs()
    step = torch.where(size < 2, 0.5, torch.where(size < 4, 1.0, 2.0))
    return torch.round(a / step) * step


# ---- caches and activations: groups along the last dimension --------------------------------------------------------

def q8(x: Tensor) -> Tensor:
    """E4M3, one UE8M0 scale for 32 channels (window KV, inputs of FP8 and FP4 linears)."""
    g = x.float().unflatten(-1, (-1, 32))
    s = scale_for(g.abs().amax(-1, keepdim=True).clamp_min(1e-4), E4M3_MAX)
    return (round_e4m3(g / s) * s).flatten(-2)


def q4mx(x: Tensor) -> Tensor:
    """E2M1, one UE8M0 scale for 32 channels (index keys and queries)."""
    g = x.float().unflatten(-1, (-1, 32))
    s = scale_for(g.abs().amax(-1, keepdim=True).clamp_min(6 * 2.0 ** -126), E2M1_MAX)
    return (round_e2m1(g / s) * s).flatten(-2)


def q4nv(x: Tensor) -> Tensor:
    """E2M1, one E4M3 scale for 16 channels (global KV)."""
    g = x.float().unflatten(-1, (-1, 16))
    s = round_e4m3(g.abs().amax(-1, keepdim=True).clamp_min(6 * 2.0 ** -9) / 6.0)
    return (round_e2m1(g / s) * s).flatten(-2)


def straight_through(x: Tensor, quantised: Tensor) -> Tensor:
    """The quantised value in the forward pass, the identity in the backward pass. x must be fp32."""
    return x + (quantised - x).detach()


# ---- weights -----------------------------------------------------------------------------------------------------

def _blocks(w: Tensor) -> Tensor:
    rows, cols = w.shape[-2:]
    return w.reshape(*w.shape[:-2], rows // 32, 32, cols // 32, 32)


def fp8_block_scale(w: Tensor) -> Tensor:
    """[..., rows/32, cols/32] scales of an FP8 matrix. Both sides must be multiples of 32."""
    return scale_for(_blocks(w).abs().amax((-3, -1)).clamp_min(1e-12), E4M3_MAX)


def fp8_weight(w: Tensor) -> Tensor:
    s = fp8_block_scale(w)[..., :, None, :, None]
    return (round_e4m3(_blocks(w) / s) * s).reshape(w.shape)


def fp4_group_scale(w: Tensor) -> Tensor:
    """[..., cols/32] scales of an MXFP4 matrix: of the covering power of two and half of it, whichever errs less.

    Half the covering scale clips the largest values but resolves the others twice as finely."""
    g = w.float().unflatten(-1, (-1, 32))
    cover = scale_for(g.abs().amax(-1, keepdim=True).clamp_min(1e-12), E2M1_MAX)

    def error(s: Tensor) -> Tensor:
        return (round_e2m1(g / s) * s - g).square().sum(-1, keepdim=True)
    return torch.where(error(cover / 2) < error(cover), cover / 2, cover).squeeze(-1)


def fp4_weight(w: Tensor) -> Tensor:
    s = fp4_group_scale(w).unsqueeze(-1)
    return (round_e2m1(w.float().unflatten(-1, (-1, 32)) / s) * s).flatten(-2)


def table_weight(w: Tensor) -> Tensor:
    """Engram rows: E4M3, one UE8M0 scale for each row and 32 columns."""
    s = table_scale(w).unsqueeze(-1)
    return (round_e4m3(w.float().unflatten(-1, (-1, 32)) / s) * s).flatten(-2)


def table_scale(w: Tensor) -> Tensor:
    g = w.float().unflatten(-1, (-1, 32))
    return scale_for(g.abs().amax(-1).clamp_min(1e-12), E4M3_MAX)


def bf16_weight(w: Tensor) -> Tensor:
    return w.to(torch.bfloat16).float()


# ---- codes for the file --------------------------------------------------------------------------------------------

def e8m0_code(scale: Tensor) -> Tensor:
    """Power-of-two scales as F8_E8M0."""
    return (scale.contiguous().view(torch.int32) >> 23).to(torch.uint8).view(torch.float8_e8m0fnu)


def pack_fp8(w: Tensor) -> tuple[Tensor, Tensor]:
    """One matrix -> (E4M3 codes, E8M0 block scales)."""
    s = fp8_block_scale(w)
    code = (_blocks(w) / s[:, None, :, None]).clamp(-E4M3_MAX, E4M3_MAX).reshape(w.shape).to(torch.float8_e4m3fn)
    return code, e8m0_code(s)


def pack_fp4(w: Tensor) -> tuple[Tensor, Tensor]:
    """One matrix -> (two E2M1 codes to a byte, even column in the low nibble; E8M0 group scales)."""
    s = fp4_group_scale(w)
    value = round_e2m1(w.float().unflatten(-1, (-1, 32)) / s.unsqueeze(-1)).flatten(-2)
    grid = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
    code = torch.searchsorted(grid, value.abs().contiguous()).to(torch.uint8)
    code |= (value < 0).to(torch.uint8) << 3
    return (code[:, 0::2] | (code[:, 1::2] << 4)).view(torch.int8), e8m0_code(s)


def pack_table(w: Tensor) -> tuple[Tensor, Tensor]:
    s = table_scale(w)
    code = (w.float().unflatten(-1, (-1, 32)) / s.unsqueeze(-1)).flatten(-2).to(torch.float8_e4m3fn)
    return code, e8m0_code(s)


def unpack(t: Tensor, scale: Tensor) -> Tensor:
    """Codes of any of the three formats -> fp32 values."""
    s = torch.exp2(scale.view(torch.uint8).float() - 127)
    if t.dtype == torch.int8:
        grid = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6])
        code = t.view(torch.uint8).long()
        t = torch.stack([grid[code & 15], grid[code >> 4]], -1).flatten(-2)
    if s.shape[0] != t.shape[0]:
        s = s.repeat_interleave(32, 0)[:t.shape[0]]
    return t.float() * s.repeat_interleave(32, 1)[:, :t.shape[1]]

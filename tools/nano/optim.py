"""Muon for the matrices that carry the work, Adam for the rest; both run on whole stacks."""
from __future__ import annotations

import torch
from torch import Tensor

from .params import Group, Params

MOMENTUM, DECAY = 0.95, 0.05
BETA1, BETA2, EPS = 0.9, 0.97, 1e-10


def orthogonalised(g: Tensor) -> Tensor:
    """Newton-Schulz iteration in bf16: pulls all singular values of each matrix of [n, rows, cols] towards 1."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    x = x / (x.float().square().sum((-2, -1), keepdim=True).sqrt() + 1e-7).bfloat16()
    for _ in range(5):
        s = torch.bmm(x, x.mT)
        s = torch.baddbmm(s, s, s, beta=b, alpha=c)
        x = torch.baddbmm(x, s, x, beta=a)
    return x.mT if tall else x


class Optimizer:
    """State and update of every group."""

    def __init__(self, params: Params):
        self.params, self.steps = params, 0
        self.first = {g.name: torch.zeros_like(g.master) for g in self.trained()}
        self.second = {g.name: torch.zeros_like(g.master) for g in self.trained() if g.rule == "adam"}

    def trained(self) -> list[Group]:
        return [g for g in self.params.groups.values() if g.rule != "none"]

    @torch.no_grad()
    def step(self, schedule: float) -> None:
        """One update at `schedule` times the groups' rates."""
        self.steps += 1
        for g in self.trained():
            grad, first = g.grad.float(), self.first[g.name]
            rate = g.rate * schedule
            if g.rule == "muon":
                first.mul_(MOMENTUM).add_(grad, alpha=1 - MOMENTUM)
                rows, cols = g.shape[-2:]
                update = orthogonalised(grad.lerp(first, MOMENTUM).view(-1, rows, cols)).view(g.shape)
                g.master.mul_(1 - rate * DECAY).add_(update, alpha=-rate * 0.2 * max(rows, cols) ** 0.5)
            else:
                second = self.second[g.name]
                first.lerp_(grad, 1 - BETA1)
                second.lerp_(grad.square(), 1 - BETA2)
                correction = (1 - BETA2 ** self.steps) ** 0.5 / (1 - BETA1 ** self.steps)
                g.master.addcdiv_(first, second.sqrt().add_(EPS), value=-rate * correction)

    @torch.no_grad()
    def balance(self, load: Tensor, rate: float = 1e-3) -> None:
        """Nudges the routers' selection biases towards equal load. load [layers, experts]."""
        if "gate_bias" in self.params.groups:
            bias = self.params.groups["gate_bias"].master
            bias.add_(torch.sign(load.mean(1, keepdim=True) - load), alpha=rate)

    def state(self) -> dict:
        return {"steps": self.steps, "first": self.first, "second": self.second}

    def restore(self, state: dict) -> None:
        self.steps = state["steps"]
        for mine, saved in ((self.first, state["first"]), (self.second, state["second"])):
            for name, t in mine.items():
                t.copy_(saved[name])

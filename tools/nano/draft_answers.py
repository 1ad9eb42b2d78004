"""Which texts of a batch are the backbone's own greedy answers, where drafts may start in them, and what they should be.

Nothing is generated. The backbone reads a conversation once; as long as the tokens of an answer are its first choices,
the text up to there is exactly what it would have written greedily after the same prompt, and so is its choice for the
next token. Strictly, an answer is used up to the first deviation, the choice there included; earlier turns count as
prompt. Training goes on behind a deviation: the answer's beginning then counts as prompt too, as it does for an engine
that samples, and what follows is again its own greedy text, up to the next deviation. Free English text deviates within a
few tokens and is not taken up again.
"""
from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from .chains import precise
from .model import Batch, Mode, Model

ANSWER_WEIGHT = 0.4     # of the tokens of answers at least; those of prompts weigh 0.1 at most


@dataclass
class Answers:
    """For each position of a batch [B, L], the text up to which is known."""
    choice: Tensor      # int64, the backbone's choice for the next token
    start: Tensor       # int64, where in its row the text begins that must be the backbone's own: the answer that the next
                        # token belongs to, or its part behind the last deviation
    inside: Tensor      # bool, the next token belongs to an answer
    own: Tensor         # bool, and the text from start to here is
    logits: Tensor = None   # f32 [B*L, vocab], the backbone's

    def offered(self, k: int) -> Tensor:
        """bool [B, L, k]: whether draft i of an anchor has a target. The anchor's own choice is given; draft i stands for
        the choice i + 1 positions later, in the same answer."""
        out = []
        for i in range(1, k + 1):
            later, start = F.pad(self.own[:, i:], (0, i)), F.pad(self.start[:, i:], (0, i), value=-1)
            out.append(self.own & later & (start == self.start))
        return torch.stack(out, -1)


def own_answers(batch: Batch, choice: Tensor, strict: bool) -> Answers:
    """choice [B, L]: the backbone's first choices."""
    inside = batch.weight >= ANSWER_WEIGHT
    before = F.pad(inside[:, :-1], (1, 0))
    at = torch.arange(inside.shape[1], device=inside.device).expand_as(inside)
    deviates = inside & (choice != batch.target)
    start = torch.where(inside & ~before, at, -1).cummax(1).values
    if not strict:  # English text is all answer, from position 0 on
        again = inside & F.pad(deviates[:, :-1], (1, 0)) & (batch.pos.gather(1, start.clamp(min=0)) > 0)
        start = torch.where(again, at, start).cummax(1).values
    wrong = F.pad(torch.where(deviates, at, -1).cummax(1).values[:, :-1], (1, 0), value=-1)
    return Answers(choice, start, inside, inside & (wrong < start))


@torch.no_grad()
def read(backbone: Model, batch: Batch, mode: Mode, strict: bool = True) -> tuple[Answers, list[Tensor]]:
    """One pass of the backbone: its answers, and what the draft blocks read."""
    x, state = backbone.hidden(batch, mode)
    logits = precise(x, backbone.p.leaf("head"))
    answers = own_answers(batch, logits.argmax(-1).view_as(batch.ids), strict)
    answers.logits = logits
    return answers, state.tapped


def sampled(offered: Tensor, window: int, n: int, generator: torch.Generator) -> Tensor:
    """[B*L/window, n] n random anchors with at least one target in every block (any others where there are not enough)."""
    usable = offered[..., 0].reshape(-1, window)
    rank = torch.rand(usable.shape, device=usable.device, generator=generator) + usable
    return rank.topk(n, -1).indices + torch.arange(len(usable), device=usable.device).unsqueeze(-1) * window


@dataclass
class Targets:
    """What the drafts at A anchors should be."""
    tokens: Tensor      # int64 [A, k], the predecessor of each draft
    labels: Tensor      # int64 [A, k], the backbone's choice
    offered: Tensor     # bool [A, k], whether there is one
    place: Tensor       # int64 [A, k], where in the flattened batch it is made


def targets(batch: Batch, answers: Answers, offered: Tensor, at: Tensor) -> Targets:
    """The targets at anchors `at` [W, n], flattened to A = W*n."""
    k, end = offered.shape[-1], batch.ids.numel() - 1
    before = (at.flatten().unsqueeze(-1) + torch.arange(k, device=at.device)).clamp(max=end)
    place = (before + 1).clamp(max=end)
    return Targets(batch.target.flatten()[before], answers.choice.flatten()[place], offered.flatten(0, 1)[at.flatten()], place)

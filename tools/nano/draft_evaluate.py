"""How many tokens a step of the engine yields with draft blocks, by family: greedy verification, replayed exactly.

Only answers that the backbone gives itself, every token its first choice, are looked at. The first token comes from the
prompt's pass. Every step then offers k drafts (fewer before the end of the answer), accepts them up to the first that is
not the backbone's choice, and adds that choice: accepted + 1 tokens. A draft counts only if all before it were right, so
drafts that are told the right predecessors are accepted exactly as drafts that follow their own.
"""
from __future__ import annotations

import numpy as np
import torch

from .draft_answers import read, targets
from .draft_model import DraftModel
from .evaluate import padded, to_batch
from .model import Mode, Model

FAMILIES = {
    "arithmetic": ["sums", "two-step problems, thinking", "word problems, 1 to 4 steps"],
    "recall": ["recall at 250 tokens", "recall at 1,000 tokens", "recall at 3,500 tokens"],
    "tools": ["one call of a usual tool", "tools"],
    "structure": ["JSON"],
    "chat": ["chat, known intents in new wordings", "chat, definitions and unknown things", "knowledge"],
}
LONG = ["recall at 1,000 tokens", "recall at 3,500 tokens"]    # do not fit into short rows


def set_names(length: int) -> list[str]:
    """The sets of all families that fit into rows of one length."""
    return [name for family in FAMILIES.values() for name in family if length >= 4096 or name not in LONG]


class Tally:
    """Counts over steps."""

    def __init__(self, k: int):
        self.k, self.answers, self.steps, self.tokens, self.full_steps, self.full_tokens = k, 0, 0, 0, 0, 0
        self.offered, self.accepted, self.chance = np.zeros(k, int), np.zeros(k, int), np.zeros(k)

    def answer(self, right: np.ndarray, chance: np.ndarray, start: int, end: int) -> None:
        """One answer. right [L, k]: which drafts of an anchor are the backbone's choices; chance: the confidences as
        probabilities. start and end: the positions whose choices are its first and its last token."""
        self.answers += 1
        at = start
        while at < end:
            room = min(self.k, end - at)
            good = int(np.cumprod(right[at, :room]).sum())
            asked = min(room, good + 1)
            self.offered[:asked] += 1
            self.accepted[:good] += 1
            self.chance[:asked] += chance[at, :asked]
            emitted, full = min(good + 1, end - at), end - at > self.k
            self.steps, self.tokens = self.steps + 1, self.tokens + emitted
            self.full_steps, self.full_tokens = self.full_steps + full, self.full_tokens + full * emitted
            at += emitted

    def add(self, other: Tally) -> None:
        for name in ("answers", "steps", "tokens", "full_steps", "full_tokens", "offered", "accepted", "chance"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def report(self) -> dict:
        """acceptance: of drafts all of whose predecessors were accepted, by position; confidence: what was predicted of
        the same; tokens_per_full_step: of steps with room for all drafts before the end of the answer."""
        def share(a, b):
            return [round(float(x), 4) for x in a / np.maximum(b, 1)]
        return {"tokens_per_step": round(self.tokens / max(self.steps, 1), 3),
                "tokens_per_full_step": round(self.full_tokens / max(self.full_steps, 1), 3),
                "acceptance": share(self.accepted, self.offered), "confidence": share(self.chance, self.offered),
                "steps": self.steps, "answers": self.answers}


def draft_everywhere(model: DraftModel, backbone: Model, batch, mode: Mode, n: int):
    """Drafts at every position of a batch: (answers, right bool [B, L, k], confidence as a probability [B, L, k])."""
    answers, tapped = read(backbone, batch, mode)
    k, window = model.c["dspark_block_size"], model.c["sliding_window"]
    offered = answers.offered(k)
    right, chance = torch.zeros_like(offered).flatten(0, 1), torch.zeros(offered.shape, device=offered.device).flatten(0, 1)
    first = torch.arange(0, batch.ids.numel(), window, device=offered.device).unsqueeze(-1)
    for lane in range(window // n):
        at = first + torch.arange(lane, window, window // n, device=offered.device)
        if not offered[..., 0].flatten()[at].any():
            continue
        t = targets(batch, answers, offered, at)
        drafts = model.forward(batch, tapped, at, t.tokens.view(*at.shape, k), mode)
        right[at.flatten()] = (drafts.logits.detach().argmax(-1) == t.labels) & t.offered
        chance[at.flatten()] = torch.sigmoid(drafts.confidence.detach())
    return answers, right.view_as(offered), chance.view_as(offered)


def whole_answers(inside: np.ndarray, start: np.ndarray, wrong: np.ndarray) -> list[tuple[int, int]]:
    """(start, end) of the answers of one row that are the backbone's own to the last token."""
    out = []
    for first in np.unique(start[inside]):
        where = np.flatnonzero(inside & (start == first))
        if not wrong[where].any():
            out.append((int(where[0]), int(where[-1])))
    return out


def tally(model: DraftModel, backbone: Model, rows: dict[str, np.ndarray], mode: Mode, tokens: int, n: int) -> Tally:
    """Replays every own answer of a held-out set's packed rows. n anchors of a block of tokens are drafted at a time."""
    count, out = max(1, tokens // rows["ids"].shape[1]), Tally(model.c["dspark_block_size"])
    for at in range(0, len(rows["ids"]), count):
        batch = to_batch(padded(rows, at, count), backbone.p.device)
        answers, right, chance = draft_everywhere(model, backbone, batch, mode, n)
        wrong = (answers.choice != batch.target).cpu().numpy()
        inside, start, right, chance = (t.cpu().numpy() for t in (answers.inside, answers.start, right, chance))
        for r in range(min(count, len(rows["ids"]) - at)):
            for first, last in whole_answers(inside[r], start[r], wrong[r]):
                out.answer(right[r], chance[r], first, last)
    return out


def evaluate(model: DraftModel, backbone: Model, sets: dict, mode: Mode, tokens: int, n: int) -> dict:
    """sets: as evaluate.build_sets makes them. Returns a report for every set, every family and all families together."""
    report, families, total = {}, {}, Tally(model.c["dspark_block_size"])
    for family, names in FAMILIES.items():
        sum_of = Tally(total.k)
        for name in names:
            if name in sets:
                mine = tally(model, backbone, sets[name][0], mode, tokens, n)
                report[name] = mine.report()
                print(f"{name}: {report[name]['tokens_per_step']} tokens a step, {mine.answers} answers", flush=True)
                sum_of.add(mine)
        families[family] = sum_of.report()
        total.add(sum_of)
    return {"families": families, "all": total.report(), "sets": report}


def table(report: dict) -> str:
    """The families of a report as lines of text."""
    lines = [f"{'family':12s} tokens/step  full steps  acceptance of draft 1 to {len(report['all']['acceptance'])} (confidence)"]
    for name, r in [*report["families"].items(), ("all", report["all"])]:
        shares = "  ".join(f"{100 * a:3.0f} ({100 * b:3.0f})" for a, b in zip(r["acceptance"], r["confidence"]))
        lines.append(f"{name:12s} {r['tokens_per_step']:11.2f}  {r['tokens_per_full_step']:10.2f}  {shares}"
                     f"   {r['steps']} steps, {r['answers']} answers")
    return "\n".join(lines)

"""Quick checks of the draft blocks' own parts, in miniature; no files needed.

    python -m nano.draft_selfcheck

On a machine with a GPU the kernels and compiled chains are compared with their plain twins as well.
"""
from __future__ import annotations

import json
import pathlib
import tempfile

import numpy as np
import torch

from . import chains, checkpoint, draft, kernels
from .draft_answers import own_answers, read, sampled, targets
from .draft_evaluate import Tally, draft_everywhere, whole_answers
from .draft_model import DraftModel, draft_params, draft_views, with_drafts
from .model import Batch, Mode, Model
from .params import Params
from .selfcheck import DEVICE, tiny_batch, tiny_config


def tiny_backbone(device: str, dtype: torch.dtype) -> tuple[dict, Model]:
    c = with_drafts(tiny_config(), noise=5)
    backbone = Model(Params(c, device, dtype, seed=5), list(range(c["vocab_size"])))
    backbone.p.refresh(True)
    return c, backbone


def own_batch(c: dict, backbone: Model, mode: Mode) -> Batch:
    """A batch in which most tokens are the backbone's choices: its answers are its own up to a place in some of them."""
    batch = tiny_batch(c, device=str(backbone.p.device))
    batch.weight = ((batch.pos >= 6) & (batch.pos < 21)).float()
    batch.ids = batch.ids.clone()
    for _ in range(24):
        choice = read(backbone, batch, mode)[0].choice
        follow = (batch.weight > 0) & (batch.pos != 15)
        batch.ids[:, 1:] = torch.where(follow[:, :-1], choice[:, :-1], batch.ids[:, 1:])
    batch.target = torch.roll(batch.ids, -1, 1)
    return batch


def check_answers() -> None:
    """Answers and offered drafts against their definition, token by token."""
    g, k = torch.Generator().manual_seed(1), 5
    rows, length = 4, 96
    doc = (torch.arange(length) // 32).int().repeat(rows, 1)
    weight = (torch.rand(rows, length // 8, generator=g) < 0.6).repeat_interleave(8, 1).float()
    weight[:, 31::32] = 0
    target = torch.randint(0, 9, (rows, length), generator=g)
    choice = torch.where(torch.rand(rows, length, generator=g) < 0.8, target, target + 1)
    for strict in (True, False):
        answers = own_answers(Batch(target, doc, doc, doc, doc, target, weight), choice, strict)
        for r in range(rows):
            compare_answers(answers, answers.offered(k), weight[r], choice[r] == target[r], doc[r], r, strict)


def compare_answers(answers, offered, weight, right, pos, r: int, strict: bool) -> None:
    """Row r by a loop over its tokens. pos 0 stands for English text here."""
    own, start, first = [], [], 0
    for t in range(len(weight)):
        inside = bool(weight[t] > 0)
        begins = inside and (t == 0 or weight[t - 1] == 0)
        first = t if begins else first
        again = inside and not begins and not strict and not right[t - 1] and pos[first] > 0
        start.append(t if begins or again else start[-1] if inside else None)
        own.append(bool(inside and (begins or again or own[-1] and right[t - 1])))
    assert own == answers.own[r].tolist()
    for t in range(len(weight)):
        for i in range(offered.shape[-1]):
            later = t + 1 + i
            want = own[t] and later < len(weight) and own[later] and start[later] == start[t]
            assert bool(offered[r, t, i]) == want, (r, t, i, strict)


def check_tally() -> None:
    """Every token of an answer but the first is emitted by some step, and drafts are accepted as a loop accepts them."""
    rng, k, out = np.random.default_rng(3), 5, Tally(5)
    right, tokens, steps = rng.random((400, k)) < 0.7, 0, 0
    for start, end in ((0, 0), (1, 2), (5, 90), (100, 399)):
        out.answer(right, np.full((400, k), 0.7), start, end)
        at, tokens = start, tokens + end - start
        while at < end:
            accepted = 0
            while accepted < k and at + 1 + accepted <= end and right[at, accepted]:
                accepted += 1
            at, steps = min(end, at + accepted + 1), steps + 1
    assert (out.tokens, out.steps, out.answers) == (tokens, steps, 4)
    inside, start = np.array([0, 1, 1, 0, 1, 1], bool), np.array([-1, 1, 1, 1, 4, 4])
    assert whole_answers(inside, start, np.array([1, 0, 0, 1, 1, 0], bool)) == [(1, 2)]


def one_loss(device: str, dtype: torch.dtype, mode: Mode):
    """(model, batch, backbone, loss, gradients by group, anchors that count) of one step on a batch of own answers."""
    c, backbone = tiny_backbone(device, dtype)
    model = DraftModel(draft_params(c, device, dtype, seed=7), backbone)
    model.p.refresh(True)
    batch = own_batch(c, backbone, mode)
    answers, tapped = read(backbone, batch, mode)
    offered = answers.offered(c["dspark_block_size"])
    at = sampled(offered, c["sliding_window"], 2, torch.Generator(device).manual_seed(1))
    t = targets(batch, answers, offered, at)
    drafts = model.forward(batch, tapped, at, t.tokens.view(*at.shape, -1), mode)
    ce, confidence, seen = draft.losses(drafts, t, answers.logits)
    (ce + confidence).backward()
    grads = {g.name: g.grad.float().clone() for g in model.p.groups.values() if g.rule != "none"}
    return model, batch, backbone, float(ce.detach()) + float(confidence.detach()), grads, int(seen[2])


def write_backbone(backbone: Model, folder: pathlib.Path) -> None:
    """A released directory of the miniature, without draft blocks."""
    tokenizer = folder / "empty.json"
    tokenizer.write_text("{}")
    whole = backbone.p.c
    backbone.p.c = dict({k: v for k, v in whole.items() if not k.startswith("dspark")}, num_nextn_predict_layers=0)
    checkpoint.save(backbone.p, folder, tokenizer, shards=2)
    backbone.p.c = whole


def check_training() -> None:
    """Every group learns; what is written and read back gives the same drafts."""
    for dtype in (torch.float32, torch.bfloat16):
        mode = Mode(exact_ties=True)
        model, batch, backbone, loss, grads, anchors = one_loss("cpu", dtype, mode)
        assert anchors > 4 and np.isfinite(loss)
        for name, g in grads.items():
            assert torch.isfinite(g).all() and g.abs().sum() > 0, name
    with tempfile.TemporaryDirectory() as folder:
        source, out = pathlib.Path(folder) / "source", pathlib.Path(folder) / "out"
        source.mkdir()
        write_backbone(backbone, source)
        draft.save(model.p, backbone.c, source, out)
        again = draft.load(out, checkpoint.read_config(out), backbone, seed=8)
        _, right, chance = draft_everywhere(model, backbone, batch, mode, 4)
        _, same_right, same = draft_everywhere(again, backbone, batch, mode, 4)
        assert torch.equal(chance, same) and torch.equal(right, same_right)
        index = json.loads((out / "model.safetensors.index.json").read_text())
        assert set(draft_views(model.p)) <= set(index["weight_map"]) and len(set(index["weight_map"].values())) == 3


def check_gpu() -> None:
    """Kernels and compiled chains against plain PyTorch: loss and gradients."""
    results = []
    for plain in (True, False):
        chains.on_gpu = kernels.on_gpu = (lambda t: False) if plain else (lambda t: t.is_cuda)
        chains.COMPILE = not plain
        results.append(one_loss(DEVICE, torch.bfloat16, Mode(exact_ties=True)))
    (*_, a, ga, n), (*_, b, gb, m) = results
    cosine = {k: float(torch.nn.functional.cosine_similarity(ga[k].flatten(), gb[k].flatten(), 0)) for k in ga}
    worst = min(cosine, key=cosine.get)
    print(f"  GPU: loss {a:.4f} / {b:.4f}, anchors {n} / {m}, worst gradient cosine {worst} {cosine[worst]:.3f}")
    assert abs(a - b) < 0.1


def main() -> None:
    checks = [check_answers, check_tally, check_training] + ([check_gpu] if DEVICE == "cuda" else [])
    for check in checks:
        check()
        print(f"{check.__name__}: fine", flush=True)
    print(f"{len(checks)} passed, 0 failed")


if __name__ == "__main__":
    main()
